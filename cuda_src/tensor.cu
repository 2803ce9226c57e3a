// Changed:  (working copy) FlashAttention-2's order on tensor cores.
// Who:      a block owns Br queries of one head; a warp 32 of them; lanes share rows four by four.
// Where:    Q, K, V tiles in SMEM, swizzled; S, P, O, m, l in REG.
// Run:      python -m fmha bench --kernel 10 --N 4096 --d 64 --H 16 --dtype bf16
#include "common.cuh"
#include "mma.cuh"

#ifndef HEAD_DIM
#define HEAD_DIM 64  // d, rounded up to a multiple of 64; what lies beyond d is 0
#endif
constexpr int Br = BR, Bc = BC, D = HEAD_DIM;
constexpr int M_TILES = 2;                     // 16 rows each, of a warp
constexpr int WARPS = Br / (16 * M_TILES), THREADS = 32 * WARPS;
constexpr int CHUNKS = D / 8;                  // 16-byte pieces of a row
constexpr int N_TILES = Bc / 8, O_TILES = D / 8, K_STEPS = D / 16, P_STEPS = Bc / 16;
constexpr bool KEEP_Q = D <= 64;               // Q fragments stay in registers

// Where a chunk of a tile lies: rows 128 bytes apart would meet in one bank, so their chunks are exchanged.
__device__ inline int place(int row, int chunk) { return row * CHUNKS + (chunk ^ (row & 7)); }

// Starts copying rows of a matrix into a tile; rows from `first` to `end` are there, the others become 0.
__device__ inline void copy_tile(Tile tile, const uint4* matrix, int tile_rows, int first, int end, int chunks) {
    for (int e = threadIdx.x; e < tile_rows * CHUNKS; e += THREADS) {
        const int row = e / CHUNKS, chunk = e % CHUNKS;
        const bool inside = row >= first && row < end && chunk < chunks;
        copy_async(tile, place(row, chunk), inside ? matrix + (long long)row * chunks + chunk : matrix, inside);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
tensor(const uint4* Q,        // [B, H, Nq, d], 16-bit
       const uint4* K,        // [B, Hk, Nk, d]
       const uint4* V,        // [B, Hk, Nk, d]
       uint4* O,              // [B, H, Nq, d]
       float* LSE,            // [B, H, Nq], or null
       const int* key_range,  // [B, 2], or null
       int H,
       int Hk,
       int Nq,
       int Nk,
       int d,
       float scale,
       int causal_offset) {
    extern __shared__ uint4 smem[];
    uint4* Oi = smem;                                         // [Br * CHUNKS]  where Qi was
    const Tile Qi = tile_at(smem);                            // [Br * CHUNKS]  query tile
    const Tile Kj = tile_at(smem + Br * CHUNKS);              // [Bc * CHUNKS]  key tile
    const Tile Vj = tile_at(smem + (Br + Bc) * CHUNKS);       // [Bc * CHUNKS]  value tile

    const int Tr = (Nq + Br - 1) / Br;
    const int i = Tr - 1 - blockIdx.x % Tr;  // a causal mask gives the last tiles most to do: they go first
    const long long bh = blockIdx.x / Tr;
    const long long bhk = bh / H * Hk + bh % H / (H / Hk);  // query head h reads K/V head h / (H / Hk)
    const int tid = threadIdx.x, lane = tid % 32, warp_row = tid / 32 * 16 * M_TILES;
    const int chunks = d / 8, first_row = i * Br, rows = min(Br, Nq - first_row);
    const Keys keys = real_keys(key_range, int(bh / H), Nk);
    const uint4* K_head = K + bhk * Nk * chunks;
    const uint4* V_head = V + bhk * Nk * chunks;
    const float scale_log2 = fabsf(scale) * 1.44269504f;
    const unsigned signs = scale < 0.0f ? 0x80008000u : 0u;  // of Q: then the largest S is the largest S * scale

    const int end = seen_end(keys, first_row + rows - 1, causal_offset);  // the last row sees furthest
    const int all_end = seen_end(keys, first_row, causal_offset);         // up to here every row sees
    int j = keys.first / Bc;
    const int j_end = keys.first < end ? (end + Bc - 1) / Bc : j;

    // Qi = Q tile, O = 0, l = 0, m = -inf
    copy_tile(Qi, Q + (bh * Nq + first_row) * chunks, Br, 0, rows, chunks);
    if (j < j_end) copy_tile(Kj, K_head + (long long)j * Bc * chunks, Bc, max(keys.first - j * Bc, 0), min(keys.end - j * Bc, Bc), chunks);
    copies_issued();
    float o[M_TILES][O_TILES][4] = {}, m[M_TILES][2], l[M_TILES][2] = {};
    for (int t = 0; t < M_TILES; ++t) m[t][0] = m[t][1] = MINUS_INFINITY;
    unsigned q[M_TILES][KEEP_Q ? K_STEPS : 1][4];

    for (int first = j; j < j_end; ++j) {
        const int c_first = max(keys.first - j * Bc, 0), c_end = min(keys.end - j * Bc, Bc);
        copies_done<0>();
        __syncthreads();  // write before read: Kj (and Qi, the first time); read before write: Vj of the tile before
        // Vj = V tile, while S is computed
        copy_tile(Vj, V_head + (long long)j * Bc * chunks, Bc, c_first, c_end, chunks);
        copies_issued();
        if (KEEP_Q && j == first)
            for (int t = 0; t < M_TILES; ++t)
                for (int k = 0; k < K_STEPS; ++k) {
                    load_matrices(q[t][k], Qi, place(warp_row + 16 * t + lane % 16, 2 * k + lane / 16));
                    for (int n = 0; n < 4; ++n) q[t][k][n] ^= signs;
                }

        // S = QK^T
        float s[M_TILES][N_TILES][4] = {};
#pragma unroll
        for (int k = 0; k < K_STEPS; ++k) {
            if (!KEEP_Q)
                for (int t = 0; t < M_TILES; ++t) {
                    load_matrices(q[t][0], Qi, place(warp_row + 16 * t + lane % 16, 2 * k + lane / 16));
                    for (int n = 0; n < 4; ++n) q[t][0][n] ^= signs;
                }
#pragma unroll
            for (int n = 0; n < N_TILES; n += 2) {
                unsigned b[4];  // of two neighbouring column tiles
                load_matrices(b, Kj, place(8 * n + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
                for (int t = 0; t < M_TILES; ++t) {
                    mma(s[t][n], q[t][KEEP_Q ? k : 0], b[0], b[1]);
                    mma(s[t][n + 1], q[t][KEEP_Q ? k : 0], b[2], b[3]);
                }
            }
        }
        copies_done<0>();
        __syncthreads();  // write before read: Vj; read before write: Kj
        // Kj = the next K tile, while P and O are computed
        if (j + 1 < j_end) {
            copy_tile(Kj, K_head + (long long)(j + 1) * Bc * chunks, Bc, max(keys.first - (j + 1) * Bc, 0), min(keys.end - (j + 1) * Bc, Bc), chunks);
            copies_issued();
        }
        if (c_first > 0 || (j + 1) * Bc > all_end) {  // some row does not see some key
#pragma unroll
            for (int t = 0; t < M_TILES; ++t)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int row = warp_row + 16 * t + 8 * half + lane / 4;
                    const int row_end = seen_end(keys, first_row + row, causal_offset) - j * Bc;
#pragma unroll
                    for (int n = 0; n < N_TILES; ++n)
#pragma unroll
                        for (int c = 0; c < 2; ++c) {
                            const int col = 8 * n + lane % 4 * 2 + c;
                            if (col < c_first || col >= row_end) s[t][n][2 * half + c] = MINUS_INFINITY;
                        }
                }
        }
#pragma unroll
        for (int t = 0; t < M_TILES; ++t)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                // m_new = max(m, rowmax S)
                float m_new = m[t][half];
#pragma unroll
                for (int n = 0; n < N_TILES; ++n) m_new = fmaxf(m_new, fmaxf(s[t][n][2 * half], s[t][n][2 * half + 1]));
                m_new = fmaxf(m_new, __shfl_xor_sync(0xffffffffu, m_new, 1));
                m_new = fmaxf(m_new, __shfl_xor_sync(0xffffffffu, m_new, 2));
                const float shift = m_new == MINUS_INFINITY ? 0.0f : m_new * scale_log2;  // nothing seen yet: P = 0
                const float alpha = exp2_fast(m[t][half] == MINUS_INFINITY ? MINUS_INFINITY : m[t][half] * scale_log2 - shift);
                m[t][half] = m_new;
                // P = exp(S - m_new), l = alpha l + rowsum P
                float row_l = 0.0f;
#pragma unroll
                for (int n = 0; n < N_TILES; ++n)
#pragma unroll
                    for (int c = 0; c < 2; ++c) {
                        float& p = s[t][n][2 * half + c];
                        p = exp2_fast(p * scale_log2 - shift);
                        row_l += p;
                    }
                l[t][half] = alpha * l[t][half] + row_l;
#pragma unroll
                for (int n = 0; n < O_TILES; ++n) {
                    o[t][n][2 * half] *= alpha;
                    o[t][n][2 * half + 1] *= alpha;
                }
            }

        // O = alpha O + P V
#pragma unroll
        for (int k = 0; k < P_STEPS; ++k) {
            unsigned p[M_TILES][4];
#pragma unroll
            for (int t = 0; t < M_TILES; ++t) {
                p[t][0] = pack(s[t][2 * k][0], s[t][2 * k][1]);
                p[t][1] = pack(s[t][2 * k][2], s[t][2 * k][3]);
                p[t][2] = pack(s[t][2 * k + 1][0], s[t][2 * k + 1][1]);
                p[t][3] = pack(s[t][2 * k + 1][2], s[t][2 * k + 1][3]);
            }
#pragma unroll
            for (int n = 0; n < O_TILES; n += 2) {
                unsigned b[4];
                load_matrices_transposed(b, Vj, place(16 * k + lane % 16, n + lane / 16));
                for (int t = 0; t < M_TILES; ++t) {
                    mma(o[t][n], p[t], b[0], b[1]);
                    mma(o[t][n + 1], p[t], b[2], b[3]);
                }
            }
        }
    }

    // O = O / l, only after the last tile; a row that saw no key is 0
    copies_done<0>();
    __syncthreads();  // read before write: Qi becomes the output tile
#pragma unroll
    for (int t = 0; t < M_TILES; ++t)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float sum = l[t][half];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            const float scale_l = sum > 0.0f ? 1.0f / sum : 0.0f;
            const int row = warp_row + 16 * t + 8 * half + lane / 4;
#pragma unroll
            for (int n = 0; n < O_TILES; ++n)
                ((unsigned*)(Oi + place(row, n)))[lane % 4] = pack(o[t][n][2 * half] * scale_l, o[t][n][2 * half + 1] * scale_l);
            // LSE = m + ln l
            if (LSE != nullptr && lane % 4 == 0 && row < rows)
                LSE[bh * Nq + first_row + row] = sum > 0.0f ? m[t][half] * fabsf(scale) + logf(sum) : MINUS_INFINITY;
        }
    __syncwarp();  // write before read: a warp stores the rows that its own lanes wrote
    for (int e = lane; e < 16 * M_TILES * CHUNKS; e += 32) {
        const int row = warp_row + e / CHUNKS, chunk = e % CHUNKS;
        if (row < rows && chunk < chunks) O[((bh * Nq + first_row + row) * chunks) + chunk] = Oi[place(row, chunk)];
    }
}
