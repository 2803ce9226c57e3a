// The CUDA kernel language for a host C++ compiler: included before an unmodified .cu file. Needs C++14 or later.
// Kernels compiled with it run under runtime.c, one fiber per CUDA thread, one block at a time.
#pragma once
#include <float.h>
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
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
// A process runs one block at a time, so what a block shares may be static. The builder finds these variables in the
// compiler's output and tells the runtime where they are; `used` keeps a compiler from thinking that it sees all that
// happens to them. `extern __shared__` it turns into plain `extern`.
#define __shared__ static __attribute__((used))

// What such a function does to memory belongs to the line that it is called on: clang takes `nodebug` for that, and g++
// keeps the beginnings of statements (compilers.py).
#ifdef __clang__
#define FMHA_INLINE inline __attribute__((always_inline, nodebug))
#else
#define FMHA_INLINE inline __attribute__((always_inline))
#endif

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
void fmha_copy_later(void* to, const void* value);  // 16 bytes
void fmha_copies_issued(void);
void fmha_copies_done(unsigned left);
void fmha_warp_do(void (*work)(void** lanes), void* lane, unsigned line);
float fmha_atomic_add_f32(float* at, float value);
int fmha_atomic_i32(int* at, int value, int operation);
unsigned long long fmha_clock(void);  // nanoseconds
int fmha_atomic_cas(int* at, int expected, int value);
}

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};
#define threadIdx (fmha_thread_idx())
#define blockIdx (fmha_block_idx())
#define blockDim (fmha_block_dim())
#define gridDim (fmha_grid_dim())
static constexpr int warpSize = 32;

#include "arithmetic.h"
#include "vectors.h"
#include "warp.h"

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
// Whether a kernel's parameters are of these kinds: p a pointer, i a whole number, f a float.
template <class T>
struct Kind {
    static constexpr char of = sizeof(T) == 4 ? 'f' : '?';
};
template <class T>
struct Kind<T*> {
    static constexpr char of = 'p';
};
template <>
struct Kind<int> {
    static constexpr char of = 'i';
};
template <>
struct Kind<unsigned> {
    static constexpr char of = 'i';
};
template <class... A>
constexpr bool takes(void (*)(A...), const char* kinds) {
    const char mine[] = {Kind<A>::of..., 0};
    int i = 0;
    while (mine[i] && mine[i] == kinds[i]) ++i;
    return mine[i] == kinds[i];
}
}  // namespace fmha

#ifdef FMHA_COUNT_FLOPS
#define float fmha::Float
#endif
