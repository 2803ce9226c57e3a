// Arithmetic of device code, on float or on a float that counts what is done with it, by line of the source.
#pragma once

namespace fmha {
template <class To, class From>
static FMHA_INLINE To bits(const From& from) {
    static_assert(sizeof(To) == sizeof(From), "bits() keeps the size");
    To to;
    __builtin_memcpy((void*)&to, (const void*)&from, sizeof to);
    return to;
}
}  // namespace fmha

#ifdef FMHA_COUNT_FLOPS
#include "counting.h"
typedef fmha::Float fmha_float;
#else
typedef float fmha_float;
#define FMHA_LINE
#define FMHA_COUNT(kind, many) ((void)0)
static FMHA_INLINE float fmha_rsqrtf(float x) { return 1.0f / sqrtf(x); }
#define rsqrtf fmha_rsqrtf  // a macro: newer C libraries declare a function of this name
// As on the GPU: a number wins over a NaN.
static FMHA_INLINE float max(float a, float b) { return fmaxf(a, b); }
static FMHA_INLINE float min(float a, float b) { return fminf(a, b); }
static FMHA_INLINE double max(float a, double b) { return fmax(a, b); }
static FMHA_INLINE double max(double a, float b) { return fmax(a, b); }
static FMHA_INLINE double min(float a, double b) { return fmin(a, b); }
static FMHA_INLINE double min(double a, float b) { return fmin(a, b); }
template <class A, class B>
void max(A a, B b) = delete;  // other mixtures: nvcc does not take them either
template <class A, class B>
void min(A a, B b) = delete;
#endif

// ---- names that only CUDA has ----------------------------------------------------------------------------------------
#define exp10f(x) powf(10.0f, (x))
#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __powf(a, b) powf((a), (b))
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __fdividef(a, b) ((a) / (b))
#define __fdiv_rn(a, b) ((a) / (b))
#define __frcp_rn(a) (1.0f / (a))
#define __fsqrt_rn(a) sqrtf(a)
#define __frsqrt_rn(a) rsqrtf(a)
#define __fmaf_rn(a, b, c) fmaf((a), (b), (c))
#define __fadd_rn(a, b) ((a) + (b))
#define __fsub_rn(a, b) ((a) - (b))
#define __fmul_rn(a, b) ((a) * (b))
#define __saturatef(x) fminf(fmaxf((x), 0.0f), 1.0f)
#define __int_as_float(i) fmha::bits<fmha_float>((int)(i))
#define __uint_as_float(i) fmha::bits<fmha_float>((unsigned)(i))
#define __float_as_int(f) fmha::bits<int>((fmha_float)(f))
#define __float_as_uint(f) fmha::bits<unsigned>((fmha_float)(f))
#define __int2float_rn(i) ((fmha_float)(int)(i))
#define __uint2float_rn(i) ((fmha_float)(unsigned)(i))
#define __float2int_rz(f) ((int)(f))
#define __float2int_rn(f) ((int)rintf(f))
#define __float2int_rd(f) ((int)floorf(f))
#define __float2int_ru(f) ((int)ceilf(f))
#define CUDART_INF_F __int_as_float(0x7f800000)
#define CUDART_NAN_F __int_as_float(0x7fffffff)

static FMHA_INLINE double max(double a, double b) { return fmax(a, b); }
static FMHA_INLINE double min(double a, double b) { return fmin(a, b); }
static FMHA_INLINE unsigned max(int a, unsigned b) { return b > (unsigned)a ? b : (unsigned)a; }
static FMHA_INLINE unsigned max(unsigned a, int b) { return max(b, a); }
static FMHA_INLINE unsigned min(int a, unsigned b) { return b < (unsigned)a ? b : (unsigned)a; }
static FMHA_INLINE unsigned min(unsigned a, int b) { return min(b, a); }
template <class T>
static FMHA_INLINE T max(T a, T b) { return b > a ? b : a; }
template <class T>
static FMHA_INLINE T min(T a, T b) { return b < a ? b : a; }

static FMHA_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
static FMHA_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static FMHA_INLINE int __ffs(int x) { return __builtin_ffs(x); }
static FMHA_INLINE int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1u) << (31 - i);
    return reversed;
}
static FMHA_INLINE int __mul24(int a, int b) { return a * b; }
static FMHA_INLINE unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
static FMHA_INLINE int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
template <class T>
static FMHA_INLINE T __ldg(const T* at) { return *at; }

// ---- atomic operations -----------------------------------------------------------------------------------------------
enum { FMHA_ATOMIC_ADD, FMHA_ATOMIC_MAX, FMHA_ATOMIC_MIN, FMHA_ATOMIC_UMAX, FMHA_ATOMIC_UMIN, FMHA_ATOMIC_AND,
       FMHA_ATOMIC_OR, FMHA_ATOMIC_XOR, FMHA_ATOMIC_EXCH };  // as in runtime.c
static FMHA_INLINE fmha_float atomicAdd(fmha_float* at, fmha_float value FMHA_LINE) {
    FMHA_COUNT(FMHA_ADD, 1);
    return fmha_atomic_add_f32((float*)at, (float)value);
}
#define FMHA_ATOMIC(name, T, operation) \
    static FMHA_INLINE T name(T* at, T value) { return (T)fmha_atomic_i32((int*)at, (int)value, operation); }
#define FMHA_ATOMIC_BOTH(name, operation, unsigned_operation) \
    FMHA_ATOMIC(name, int, operation)                         \
    FMHA_ATOMIC(name, unsigned, unsigned_operation)
FMHA_ATOMIC_BOTH(atomicAdd, FMHA_ATOMIC_ADD, FMHA_ATOMIC_ADD)
FMHA_ATOMIC_BOTH(atomicMax, FMHA_ATOMIC_MAX, FMHA_ATOMIC_UMAX)
FMHA_ATOMIC_BOTH(atomicMin, FMHA_ATOMIC_MIN, FMHA_ATOMIC_UMIN)
FMHA_ATOMIC_BOTH(atomicExch, FMHA_ATOMIC_EXCH, FMHA_ATOMIC_EXCH)
FMHA_ATOMIC_BOTH(atomicAnd, FMHA_ATOMIC_AND, FMHA_ATOMIC_AND)
FMHA_ATOMIC_BOTH(atomicOr, FMHA_ATOMIC_OR, FMHA_ATOMIC_OR)
FMHA_ATOMIC_BOTH(atomicXor, FMHA_ATOMIC_XOR, FMHA_ATOMIC_XOR)
static FMHA_INLINE int atomicSub(int* at, int value) { return atomicAdd(at, -value); }
static FMHA_INLINE unsigned atomicSub(unsigned* at, unsigned value) { return atomicAdd(at, 0u - value); }
static FMHA_INLINE int atomicCAS(int* at, int expected, int value) { return fmha_atomic_cas(at, expected, value); }
static FMHA_INLINE unsigned atomicCAS(unsigned* at, unsigned expected, unsigned value) {
    return (unsigned)fmha_atomic_cas((int*)at, (int)expected, (int)value);
}
