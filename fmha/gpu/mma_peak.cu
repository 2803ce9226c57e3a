// What:   mma.sync and nothing else: how fast tensor cores are fed by the instruction that kernels 08 to 13 use.
// Who:    a warp adds the product of two small matrices to each of its 16 sums, `rounds` times over.
// Where:  all in registers; device memory is touched before the first product and after the last.
// Run:    python -m fmha bench --peak
#include "mma.cuh"

#ifndef TF32
#define TF32 0  // 1: tf32, 0: 16 bits, bf16 or with HALF=1 fp16
#endif
constexpr int WARPS = 4, THREADS = 32 * WARPS;  // a warp for each of an SM's four schedulers
constexpr int SUMS = 16;                        // of a warp, none of which waits for another
constexpr int DEPTH = TF32 ? 8 : 16;            // of one product

// One product. The sums differ from the start, so that no two products can be made one by a compiler.
__device__ inline void product(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#if TF32
    mma_tf32(sum, a, b[0], b[1]);
#else
    mma(sum, a, b[0], b[1]);
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS)
mma_peak(
    const float* A,  // [2, 16, DEPTH], small whole numbers
    const float* B,  // [2, DEPTH, 8]
    float* C,        // [blocks * 4 warps, 16 sums, 16, 8]
    int rounds
) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;

    // Fragments as the PTX manual lays them out: register r of A holds row g + 8 (r % 2).
    unsigned a[2][4], b[2][2];
    for (int m = 0; m < 2; ++m) {
        const float *Am = A + m * 16 * DEPTH, *Bm = B + m * DEPTH * 8;
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            const int row = g + 8 * (r % 2);
#if TF32
            a[m][r] = __float_as_uint(Am[row * DEPTH + t + 4 * (r / 2)]);
#else
            const int k = 2 * t + 8 * (r / 2);
            a[m][r] = pack(Am[row * DEPTH + k], Am[row * DEPTH + k + 1]);
#endif
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
#if TF32
            b[m][r] = __float_as_uint(Bm[(t + 4 * r) * 8 + g]);
#else
            const int k = 2 * t + 8 * r;
            b[m][r] = pack(Bm[k * 8 + g], Bm[(k + 1) * 8 + g]);
#endif
        }
    }

    // C = n + rounds * A B for sum n
    float sum[SUMS][4];
#pragma unroll
    for (int n = 0; n < SUMS; ++n)
        for (int e = 0; e < 4; ++e) sum[n][e] = n;
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int n = 0; n < SUMS; ++n) product(sum[n], a[n % 2], b[n / 2 % 2]);
    }

    float* Cw = C + (long long)(blockIdx.x * WARPS + threadIdx.x / 32) * SUMS * 16 * 8;
#pragma unroll
    for (int n = 0; n < SUMS; ++n)
        for (int e = 0; e < 4; ++e) Cw[n * 128 + (g + 8 * (e / 2)) * 8 + 2 * t + e % 2] = sum[n][e];
}
