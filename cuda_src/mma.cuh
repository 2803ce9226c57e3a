// Tensor cores: 16 x 8 x 16 products of 16-bit numbers with fp32 sums, the loads that feed them, and copies past registers.
// Each function is one PTX instruction on the GPU; on the CPU it is what that instruction does.
#pragma once

#ifndef HALF
#define HALF 0  // 0: numbers are bf16, 1: fp16
#endif

#ifdef FMHA_ON_CPU
#include "mma_on_cpu.h"
#else

// Two floats, rounded to 16 bits each: `low` in the lower half.
__device__ inline unsigned pack(float low, float high) {
    unsigned both;
#if HALF
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
#else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
#endif
    return both;
}

// 2^x, with 2^-inf = 0.
__device__ inline float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// sum += A B for a 16 x 16 piece of A and a 16 x 8 piece of B, spread over the lanes of a warp.
__device__ inline void mma(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if HALF
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#endif
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A number in two parts that tf32 (11 significant bits) can hold: x = high + low to 2^-23 of x.
__device__ inline void split(float x, unsigned& high, unsigned& low) {
    high = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;                // rounded
    low = __float_as_uint(x - __uint_as_float(high)) + 0x1000u;         // the last 13 bits are not looked at
}

// sum += A B for a 16 x 8 piece of A and an 8 x 8 piece of B in tf32, spread over the lanes of a warp.
__device__ inline void mma_tf32(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A tile in shared memory, known by its 32-bit address there.
struct Tile {
    unsigned at;
};
__device__ inline Tile tile_at(const uint4* smem) { return {(unsigned)__cvta_generic_to_shared(smem)}; }
// What begins so many pieces of 16 bytes later.
__device__ inline Tile piece_of(Tile tile, int piece) { return {tile.at + 16 * piece}; }

// Four 8 x 8 matrices from a tile; lane n says where row n % 8 of matrix n / 8 lies, in pieces of 16 bytes.
__device__ inline void load_matrices(unsigned (&to)[4], Tile tile, int piece) {
    const unsigned at = tile.at + 16 * piece;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
}
__device__ inline void load_matrices_transposed(unsigned (&to)[4], Tile tile, int piece) {
    const unsigned at = tile.at + 16 * piece;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
}

// 16 bytes from device memory to shared memory without a stop in registers; zeros where `inside` is false.
__device__ inline void copy_async(Tile tile, int piece, const uint4* from, bool inside) {
    const unsigned at = tile.at + 16 * piece, nbytes = inside ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(nbytes) : "memory");
}
__device__ inline void copies_issued() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most LEFT groups of this thread's copies are still under way.
template <int LEFT>
__device__ inline void copies_done() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

#endif
