// The CUDA kernel language for a host C++ compiler: included before an unmodified .cu file.
// Kernels compiled with it run under runtime.c, one fiber per CUDA thread, one block at a time.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FMHA_ON_CPU 1
#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
// A process runs one block at a time, so what a block shares may be static. The builder finds these variables in the
// compiler's output and tells the runtime where they are. `extern __shared__` it turns into plain `extern`.
#define __shared__ static

// ---- what runtime.c provides -------------------------------------------------------------------------------------
struct uint3 {
    unsigned x, y, z;
};
extern "C" {
// Constant as long as a fiber lives.
uint3 fmha_thread_idx(void) __attribute__((const));
uint3 fmha_block_idx(void) __attribute__((const));
uint3 fmha_block_dim(void) __attribute__((const));
uint3 fmha_grid_dim(void) __attribute__((const));
void fmha_barrier(unsigned line);
int fmha_barrier_vote(int predicate, int operation, unsigned line);
uint64_t fmha_exchange(unsigned mask, uint64_t value, int source, unsigned line);
unsigned fmha_ballot(unsigned mask, int predicate, unsigned line);
void fmha_warp_do(void (*work)(void** lanes), void* lane, unsigned line);
void fmha_vector_copy(void* to, const void* from, size_t nbytes);
float fmha_atomic_add_f32(float* at, float value);
int fmha_atomic_i32(int* at, int value, int operation);
unsigned long long fmha_clock(void);  // nanoseconds
int fmha_atomic_cas(int* at, int expected, int value);
}

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
#define threadIdx (fmha_thread_idx())
#define blockIdx (fmha_block_idx())
#define blockDim (fmha_block_dim())
#define gridDim (fmha_grid_dim())
static constexpr int warpSize = 32;

// A barrier is known by its line: optimisers duplicate calls, so an address would not do.
#define __syncthreads() fmha_barrier(__LINE__)
#define __syncthreads_or(p) fmha_barrier_vote((p) != 0, 0, __LINE__)
#define __syncthreads_and(p) fmha_barrier_vote((p) != 0, 1, __LINE__)
#define __syncthreads_count(p) fmha_barrier_vote((p) != 0, 2, __LINE__)
#define __threadfence() ((void)0)
#define __threadfence_block() ((void)0)

// ---- float, or a float that counts its arithmetic ----------------------------------------------------------------
namespace fmha {
template <class To, class From>
static inline To bits(const From& from) {
    static_assert(sizeof(To) == sizeof(From), "bits() keeps the size");
    To to;
    memcpy((void*)&to, (const void*)&from, sizeof to);
    return to;
}
}  // namespace fmha

#ifdef FMHA_COUNT_FLOPS
#define FMHA_INLINE static inline __attribute__((always_inline))
enum { FMHA_ADD, FMHA_MUL, FMHA_DIV, FMHA_SPECIAL, FMHA_MAX, FMHA_FLOP_KINDS };
extern "C" uint64_t fmha_flops[][FMHA_FLOP_KINDS];  // by line of the .cu file; line 0: of a header
namespace fmha {
constexpr bool is_header(const char* file) {
    while (*file) ++file;
    return file[-1] != 'u';
}
struct Float {
    float v;
    Float() = default;
    constexpr Float(float x) : v(x) {}
    constexpr Float(double x) : v(float(x)) {}
    constexpr Float(int x) : v(float(x)) {}
    constexpr Float(unsigned x) : v(float(x)) {}
    constexpr Float(long x) : v(float(x)) {}
    constexpr Float(long long x) : v(float(x)) {}
    constexpr Float(unsigned long x) : v(float(x)) {}
    explicit operator float() const { return v; }
    explicit operator double() const { return v; }
    explicit operator int() const { return int(v); }
    explicit operator bool() const { return v != 0; }
};
// An operand that knows the line it was written on: operators have no default arguments, but constructors have.
struct Operand {
    float v;
    int line;
#define FMHA_FROM(T) \
    FMHA_HERE Operand(T x, int line_ = __builtin_LINE(), const char* file = __builtin_FILE()) : v((float)x), line(is_header(file) ? 0 : line_) {}
#define FMHA_HERE __attribute__((always_inline))
    FMHA_FROM(const Float&) FMHA_FROM(float) FMHA_FROM(double) FMHA_FROM(int) FMHA_FROM(unsigned) FMHA_FROM(long)
    FMHA_FROM(long long) FMHA_FROM(unsigned long)
};
#define FMHA_BINARY(op, kind)                                    \
    FMHA_INLINE Float operator op(const Float& a, Operand b) {   \
        ++fmha_flops[b.line][kind];                              \
        return a.v op b.v;                                       \
    }                                                            \
    FMHA_INLINE Float& operator op##=(Float & a, Operand b) {    \
        ++fmha_flops[b.line][kind];                              \
        a.v = a.v op b.v;                                        \
        return a;                                                \
    }
FMHA_BINARY(+, FMHA_ADD)
FMHA_BINARY(-, FMHA_ADD)
FMHA_BINARY(*, FMHA_MUL)
FMHA_BINARY(/, FMHA_DIV)
#define FMHA_COMPARE(op) \
    FMHA_INLINE bool operator op(Float a, Float b) { return a.v op b.v; }
FMHA_COMPARE(<) FMHA_COMPARE(>) FMHA_COMPARE(<=) FMHA_COMPARE(>=) FMHA_COMPARE(==) FMHA_COMPARE(!=)
FMHA_INLINE Float operator-(Float a) { return -a.v; }
#define FMHA_UNARY(name, result)             \
    FMHA_INLINE Float name(Operand a) {      \
        ++fmha_flops[a.line][FMHA_SPECIAL];  \
        const float x = a.v;                 \
        return Float(result);                \
    }
FMHA_UNARY(expf, ::expf(x))
FMHA_UNARY(exp2f, ::exp2f(x))
FMHA_UNARY(logf, ::logf(x))
FMHA_UNARY(log2f, ::log2f(x))
FMHA_UNARY(sqrtf, ::sqrtf(x))
FMHA_UNARY(rsqrtf, 1.0f / ::sqrtf(x))
FMHA_INLINE Float fabsf(Float a) { return ::fabsf(a.v); }
FMHA_INLINE Float fmaxf(Float a, Operand b) {
    ++fmha_flops[b.line][FMHA_MAX];
    return ::fmaxf(a.v, b.v);
}
FMHA_INLINE Float fminf(Float a, Operand b) {
    ++fmha_flops[b.line][FMHA_MAX];
    return ::fminf(a.v, b.v);
}
FMHA_INLINE Float fmaf(Float a, Float b, Operand c) {
    ++fmha_flops[c.line][FMHA_MUL];
    ++fmha_flops[c.line][FMHA_ADD];
    return ::fmaf(a.v, b.v, c.v);
}
FMHA_INLINE bool isinf(Float a) { return __builtin_isinf(a.v); }
FMHA_INLINE bool isnan(Float a) { return __builtin_isnan(a.v); }
}  // namespace fmha
using fmha::exp2f; using fmha::expf; using fmha::fabsf; using fmha::fmaf; using fmha::fmaxf; using fmha::fminf;
using fmha::isinf; using fmha::isnan; using fmha::log2f; using fmha::logf; using fmha::rsqrtf; using fmha::sqrtf;
typedef fmha::Float fmha_float;
#else
typedef float fmha_float;
static inline float fmha_rsqrtf(float x) { return 1.0f / sqrtf(x); }
#define rsqrtf fmha_rsqrtf  // a macro: newer C libraries declare a function of this name
#endif

#define __expf(x) expf(x)
#define __exp2f(x) exp2f(x)
#define __logf(x) logf(x)
#define __fdividef(a, b) ((a) / (b))
#define __frcp_rn(a) (1.0f / (a))
#define __fmaf_rn(a, b, c) fmaf(a, b, c)
#define __fadd_rn(a, b) ((a) + (b))
#define __fmul_rn(a, b) ((a) * (b))
#define __int_as_float(i) fmha::bits<fmha_float>((int)(i))
#define __uint_as_float(i) fmha::bits<fmha_float>((unsigned)(i))
#define __float_as_int(f) fmha::bits<int>(f)
#define __float_as_uint(f) fmha::bits<unsigned>(f)
#define CUDART_INF_F __int_as_float(0x7f800000)
template <class T>
static inline T max(T a, T b) { return b > a ? b : a; }
template <class T>
static inline T min(T a, T b) { return b < a ? b : a; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
template <class T>
static inline __attribute__((always_inline)) T __ldg(const T* at) { return *at; }

// ---- vectors: a copy is one access of 8 or 16 bytes, as on the GPU; the compiler alone would make four of it --------
#ifdef FMHA_TRACE
#define FMHA_COPIES(V)                                                              \
    __attribute__((always_inline)) V(const V& o) { fmha_vector_copy(this, &o, sizeof(V)); } \
    __attribute__((always_inline)) V& operator=(const V& o) {                       \
        fmha_vector_copy(this, &o, sizeof(V));                                      \
        return *this;                                                               \
    }
#else
#define FMHA_COPIES(V)       \
    V(const V&) = default;   \
    V& operator=(const V&) = default;
#endif
#define FMHA_VECTOR2(V, T)                                   \
    struct alignas(2 * sizeof(T)) V {                        \
        T x, y;                                              \
        V() = default;                                       \
        V(T x_, T y_) : x(x_), y(y_) {}                      \
        FMHA_COPIES(V)                                       \
    };                                                       \
    static inline V make_##V(T x, T y) { return V(x, y); }
#define FMHA_VECTOR4(V, T)                                                       \
    struct alignas(4 * sizeof(T)) V {                                            \
        T x, y, z, w;                                                            \
        V() = default;                                                           \
        V(T x_, T y_, T z_, T w_) : x(x_), y(y_), z(z_), w(w_) {}                \
        FMHA_COPIES(V)                                                           \
    };                                                                           \
    static inline V make_##V(T x, T y, T z, T w) { return V(x, y, z, w); }
FMHA_VECTOR2(float2, fmha_float)
FMHA_VECTOR4(float4, fmha_float)
FMHA_VECTOR2(int2, int)
FMHA_VECTOR4(int4, int)
FMHA_VECTOR2(uint2, unsigned)
FMHA_VECTOR4(uint4, unsigned)

// ---- warps -------------------------------------------------------------------------------------------------------
namespace fmha {
static inline int lane() {
    const uint3 t = threadIdx, d = blockDim;
    return int((t.x + d.x * (t.y + d.y * t.z)) % 32);
}
template <class T>
static inline T shuffle(unsigned mask, T value, int source, unsigned line) {
    static_assert(sizeof(T) <= 8, "a shuffle moves 8 bytes at most");
    uint64_t raw = 0;
    memcpy(&raw, (const void*)&value, sizeof value);
    raw = fmha_exchange(mask, raw, source, line);
    T result;
    memcpy((void*)&result, &raw, sizeof result);
    return result;
}
static inline int within(int source, int width) {  // a source outside the lane's own part: the lane itself
    const int l = lane();
    return source >= 0 && source / width == l / width ? source : l;
}
static inline void sync_warp(unsigned line, unsigned mask = 0xffffffffu) { (void)fmha_ballot(mask, 0, line); }
template <class T>
static inline T any_lane(unsigned m, T v, int s, unsigned line, int w = 32) { return shuffle(m, v, lane() / w * w + s % w, line); }
template <class T>
static inline T xor_lane(unsigned m, T v, int x, unsigned line, int w = 32) { return shuffle(m, v, within(lane() ^ x, w), line); }
template <class T>
static inline T down_lane(unsigned m, T v, int by, unsigned line, int w = 32) { return shuffle(m, v, within(lane() + by, w), line); }
template <class T>
static inline T up_lane(unsigned m, T v, int by, unsigned line, int w = 32) { return shuffle(m, v, within(lane() - by, w), line); }
}  // namespace fmha
// `width` is a further argument in CUDA, and here the line comes before it.
#define FMHA_PICK(_1, _2, _3, _4, name, ...) name
#define FMHA_S3(f, m, v, s) fmha::f(m, v, s, __LINE__)
#define FMHA_S4(f, m, v, s, w) fmha::f(m, v, s, __LINE__, w)
#define __shfl_sync(...) FMHA_PICK(__VA_ARGS__, FMHA_S4, FMHA_S3, )(any_lane, __VA_ARGS__)
#define __shfl_xor_sync(...) FMHA_PICK(__VA_ARGS__, FMHA_S4, FMHA_S3, )(xor_lane, __VA_ARGS__)
#define __shfl_down_sync(...) FMHA_PICK(__VA_ARGS__, FMHA_S4, FMHA_S3, )(down_lane, __VA_ARGS__)
#define __shfl_up_sync(...) FMHA_PICK(__VA_ARGS__, FMHA_S4, FMHA_S3, )(up_lane, __VA_ARGS__)
#define __ballot_sync(mask, p) fmha_ballot((mask), (p) != 0, __LINE__)
#define __any_sync(mask, p) (fmha_ballot((mask), (p) != 0, __LINE__) != 0)
#define __all_sync(mask, p) (fmha_ballot((mask), !(p), __LINE__) == 0)
#define __syncwarp(...) fmha::sync_warp(__LINE__, ##__VA_ARGS__)
#define __activemask() 0xffffffffu

static inline fmha_float atomicAdd(fmha_float* at, fmha_float value) {
    return fmha_atomic_add_f32((float*)at, (float)value);
}
static inline int atomicAdd(int* at, int value) { return fmha_atomic_i32(at, value, 0); }
static inline unsigned atomicAdd(unsigned* at, unsigned value) { return (unsigned)fmha_atomic_i32((int*)at, (int)value, 0); }
static inline int atomicMax(int* at, int value) { return fmha_atomic_i32(at, value, 1); }
static inline int atomicCAS(int* at, int expected, int value) { return fmha_atomic_cas(at, expected, value); }

// ---- from an array of addresses to a call, as cuLaunchKernel does it -------------------------------------------------
namespace fmha {
template <size_t...>
struct Numbers {};
template <size_t N, size_t... I>
struct UpTo : UpTo<N - 1, N - 1, I...> {};
template <size_t... I>
struct UpTo<0, I...> {
    typedef Numbers<I...> type;
};
template <class T>
struct Plain {
    typedef T type;
};
template <class T>
struct Plain<const T> : Plain<T> {};
template <class... A, size_t... I>
__attribute__((no_sanitize("thread"))) static inline void spread(void (*kernel)(A...), void** at, Numbers<I...>) {
    kernel(*(typename Plain<A>::type*)at[I]...);
}
template <class... A>
__attribute__((no_sanitize("thread"))) static inline void call(void (*kernel)(A...), void** at) {
    spread(kernel, at, typename UpTo<sizeof...(A)>::type{});
}
}  // namespace fmha

#ifdef FMHA_COUNT_FLOPS
#define float fmha::Float
#endif
