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

// ---- what C++ has beyond C's <math.h> ---------------------------------------------------------------------------------
#ifdef FMHA_PLAIN_MATH
#undef isnan
#undef isinf
#undef isfinite
#undef signbit
#define FMHA_FLOAT1(name) \
    static FMHA_INLINE float name(float x) { return name##f(x); }
#define FMHA_FLOAT2(name)                                                              \
    static FMHA_INLINE float name(float x, float y) { return name##f(x, y); }          \
    static FMHA_INLINE double name(float x, double y) { return name((double)x, y); }   \
    static FMHA_INLINE double name(double x, float y) { return name(x, (double)y); }
#define FMHA_TEST(name)                                                         \
    static FMHA_INLINE bool name(float x) { return __builtin_##name(x); }       \
    static FMHA_INLINE bool name(double x) { return __builtin_##name(x); }
FMHA_FLOAT1(exp) FMHA_FLOAT1(exp2) FMHA_FLOAT1(expm1) FMHA_FLOAT1(log) FMHA_FLOAT1(log2) FMHA_FLOAT1(log10)
FMHA_FLOAT1(log1p) FMHA_FLOAT1(sqrt) FMHA_FLOAT1(cbrt) FMHA_FLOAT1(sin) FMHA_FLOAT1(cos) FMHA_FLOAT1(tan)
FMHA_FLOAT1(tanh) FMHA_FLOAT1(erf) FMHA_FLOAT1(fabs) FMHA_FLOAT1(floor) FMHA_FLOAT1(ceil) FMHA_FLOAT1(round)
FMHA_FLOAT1(rint) FMHA_FLOAT1(trunc)
FMHA_FLOAT2(pow) FMHA_FLOAT2(fmod) FMHA_FLOAT2(fmax) FMHA_FLOAT2(fmin) FMHA_FLOAT2(copysign)
static FMHA_INLINE float fma(float x, float y, float z) { return fmaf(x, y, z); }
FMHA_TEST(isnan) FMHA_TEST(isinf) FMHA_TEST(isfinite) FMHA_TEST(signbit)
template <class T>
static FMHA_INLINE T abs(T x) { return x < 0 ? -x : x == 0 ? T(0) : x; }
#endif

#ifdef FMHA_COUNT_FLOPS
#include "counting.h"
typedef fmha::Float fmha_float;
#else
typedef float fmha_float;
#define FMHA_COUNT(kind, many) ((void)0)
static FMHA_INLINE float fmha_rsqrt(float x) { return 1.0f / sqrtf(x); }
static FMHA_INLINE double fmha_rsqrt(double x) { return 1 / sqrt(x); }
#define rsqrt fmha_rsqrt  // macros: newer C libraries declare functions of these names
#define rsqrtf fmha_rsqrt
// As on the GPU: a number wins over a NaN.
static FMHA_INLINE float max(float a, float b) { return fmaxf(a, b); }
static FMHA_INLINE float min(float a, float b) { return fminf(a, b); }
static FMHA_INLINE double max(float a, double b) { return fmax(a, b); }
static FMHA_INLINE double max(double a, float b) { return fmax(a, b); }
static FMHA_INLINE double min(float a, double b) { return fmin(a, b); }
static FMHA_INLINE double min(double a, float b) { return fmin(a, b); }
// Other mixtures nvcc does not take either; what is shorter than an int becomes one.
template <class A, class B, int = 1 / (sizeof(A) >= 4 && sizeof(B) >= 4)>
void max(A a, B b) = delete;
template <class A, class B, int = 1 / (sizeof(A) >= 4 && sizeof(B) >= 4)>
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
static FMHA_INLINE int max(int a, int b) { return b > a ? b : a; }
static FMHA_INLINE int min(int a, int b) { return b < a ? b : a; }
#define FMHA_MIXED(S, U)                                                          \
    static FMHA_INLINE U max(S a, U b) { return b > (U)a ? b : (U)a; }            \
    static FMHA_INLINE U max(U a, S b) { return max(b, a); }                      \
    static FMHA_INLINE U min(S a, U b) { return b < (U)a ? b : (U)a; }            \
    static FMHA_INLINE U min(U a, S b) { return min(b, a); }
FMHA_MIXED(int, unsigned)
FMHA_MIXED(long, unsigned long)
FMHA_MIXED(long long, unsigned long long)
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
static FMHA_INLINE fmha_float atomicAdd(fmha_float* at, fmha_float value) {
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
