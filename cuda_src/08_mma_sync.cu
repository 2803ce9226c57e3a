// Changed:  Tensor cores: a warp multiplies 16 x 16 by 16 x 8 numbers of 16 bits in one instruction, sums in fp32.
// Who:      a block owns Br queries of one head, each of its 4 warps a quarter of them; 4 lanes share two rows in 16.
// Where:    Q, K, V tiles in SMEM; S, P, O, m, l in REG.
// Run:      python -m fmha bench --kernel 08 --dtype bf16 --N 4096 --d 64 --H 16 --Br 128 --Bc 64
#include "common.cuh"
#include "mma.cuh"
#include "strides.cuh"

#ifndef HEAD_DIM
#define HEAD_DIM 64  // d, rounded up to 64, 128 or 256; what lies beyond d is 0
#endif
constexpr int Br = BR, Bc = BC, D = HEAD_DIM;
constexpr int WARPS = 4, THREADS = 32 * WARPS;
constexpr int M_TILES = Br / WARPS / 16;                           // of 16 rows, of a warp
constexpr int N_TILES = Bc / 8, O_TILES = D / 8;                   // of 8 columns, of S and of O
constexpr int K_STEPS = D / 16, P_STEPS = Bc / 16;                 // of 16, along d and along the keys
constexpr int CHUNKS = D / 8;                                      // 16-byte pieces of a row
constexpr float LOWEST = -3.402823466e38f;                         // for m before a row has seen a key
constexpr unsigned ALL = 0xffffffffu;

// Where a chunk of a tile lies.
__device__ inline int place(int row, int chunk) { return row * CHUNKS + chunk; }
// From the place of a chunk to that of the chunk so many further along the row.
__device__ inline int along(int place, int further) { return place + further; }

// Copies rows into a tile; those from `first` to `end` are there, the others become 0.
__device__ inline void copy_tile(uint4* tile, int tile_rows, const uint4* rows, int stride, int first, int end, int chunks) {
    for (int e = threadIdx.x; e < tile_rows * CHUNKS; e += THREADS) {
        const int row = e / CHUNKS, chunk = e % CHUNKS;
        const bool inside = row >= first && row < end && chunk < chunks;
        tile[place(row, chunk)] = inside ? rows[(long long)row * stride + chunk] : make_uint4(0, 0, 0, 0);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
mma_sync(
    const uint4* Q,           // [B, H, Nq, d], 16-bit
    const uint4* K,           // [B, Hk, Nk, d]
    const uint4* V,           // [B, Hk, Nk, d]
    uint4* O,                 // [B, H, Nq, d]
    float* LSE,               // [B, H, Nq], or null
    const int* key_range,     // [B, 2], or null
    int H,
    int Hk,
    int Nq,
    int Nk,
    int d,
    float scale,
    int causal_offset,
    const long long* strides  // [4, 3], or null
) {
    extern __shared__ uint4 smem[];
    uint4* Kj_at = smem + Br * CHUNKS;
    uint4* Vj_at = Kj_at + Bc * CHUNKS;
    const Tile Qi = tile_at(smem);                                  // [Br, D]  query tile
    const Tile Kj = tile_at(Kj_at);                                 // [Bc, D]  key tile
    const Tile Vj = tile_at(Vj_at);                                 // [Bc, D]  value tile
    uint4* Oi = smem;                                               // [Br, D]  where Qi was

    const int Tr = (Nq + Br - 1) / Br;
    const int i = blockIdx.x % Tr;
    const int b = blockIdx.x / Tr / H, h = blockIdx.x / Tr % H, hk = h / (H / Hk);
    const int tid = threadIdx.x, lane = tid % 32, warp_row = tid / 32 * 16 * M_TILES;
    const int chunks = d / 8, first_row = i * Br, rows = min(Br, Nq - first_row);
    const Keys keys = real_keys(key_range, b, Nk);
    const Strides of_q = strides_of(strides, 0, H, Nq, d);
    const Strides of_k = strides_of(strides, 1, Hk, Nk, d), of_v = strides_of(strides, 2, Hk, Nk, d);
    const uint4* Q_tile = Q + (b * of_q.b + h * of_q.h + first_row * of_q.n) / 8;
    const uint4* K_head = K + (b * of_k.b + hk * of_k.h) / 8;
    const uint4* V_head = V + (b * of_v.b + hk * of_v.h) / 8;
    const int k_stride = int(of_k.n / 8), v_stride = int(of_v.n / 8);

    const int end = seen_end(keys, first_row + rows - 1, causal_offset);  // the last row sees furthest
    const int j_first = keys.first / Bc;
    const int j_end = keys.first < end ? (end + Bc - 1) / Bc : j_first;

    // Qi = Q tile, O = 0, l = 0, m = -inf
    copy_tile(smem, Br, Q_tile, int(of_q.n / 8), 0, rows, chunks);
    const int q_place = place(warp_row + lane % 16, lane / 16);
    const int k_place = place(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    const int v_place = place(lane % 16, lane / 16);
    float o[M_TILES][O_TILES][4] = {}, l[M_TILES][2] = {}, m[M_TILES][2];
#pragma unroll
    for (int t = 0; t < M_TILES; ++t) m[t][0] = m[t][1] = LOWEST;

    for (int j = j_first; j < j_end; ++j) {
        // Kj, Vj = K tile, V tile
        const int c_first = keys.first - j * Bc;
        copy_tile(Kj_at, Bc, K_head + (long long)j * Bc * k_stride, k_stride, c_first, keys.end - j * Bc, chunks);
        copy_tile(Vj_at, Bc, V_head + (long long)j * Bc * v_stride, v_stride, c_first, keys.end - j * Bc, chunks);
        __syncthreads();  // write before read: Kj, Vj (and Qi, the first time) were filled by all threads

        // S = QK^T
        float s[M_TILES][N_TILES][4] = {};
#pragma unroll
        for (int k = 0; k < K_STEPS; ++k) {
            unsigned q[M_TILES][4];
#pragma unroll
            for (int t = 0; t < M_TILES; ++t) load_matrices(q[t], Qi, along(q_place, 2 * k) + 16 * t * CHUNKS);
#pragma unroll
            for (int n = 0; n < N_TILES; n += 2) {
                unsigned w[4];  // of two neighbouring column tiles
                load_matrices(w, Kj, along(k_place, 2 * k) + 8 * n * CHUNKS);
#pragma unroll
                for (int t = 0; t < M_TILES; ++t) {
                    mma(s[t][n], q[t], w[0], w[1]);
                    mma(s[t][n + 1], q[t], w[2], w[3]);
                }
            }
        }
#pragma unroll
        for (int t = 0; t < M_TILES; ++t)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = first_row + warp_row + 16 * t + 8 * half + lane / 4;
                const int c_end = seen_end(keys, row, causal_offset) - j * Bc;
                // m_new = max(m, rowmax S)
                float m_new = m[t][half];
#pragma unroll
                for (int n = 0; n < N_TILES; ++n)
#pragma unroll
                    for (int c = 0; c < 2; ++c) {
                        const int col = 8 * n + lane % 4 * 2 + c;
                        float& x = s[t][n][2 * half + c];
                        x = col >= c_first && col < c_end ? x * scale : MINUS_INFINITY;
                        m_new = fmaxf(m_new, x);
                    }
                m_new = fmaxf(m_new, __shfl_xor_sync(ALL, m_new, 1));
                m_new = fmaxf(m_new, __shfl_xor_sync(ALL, m_new, 2));
                const float alpha = expf(m[t][half] - m_new);
                m[t][half] = m_new;
                l[t][half] *= alpha;
#pragma unroll
                for (int n = 0; n < O_TILES; ++n) {
                    o[t][n][2 * half] *= alpha;
                    o[t][n][2 * half + 1] *= alpha;
                }
            }
#pragma unroll
        for (int k = 0; k < P_STEPS; ++k) {
            unsigned p[M_TILES][4];
#pragma unroll
            for (int t = 0; t < M_TILES; ++t) {
                // P = exp(S - m_new), l = alpha l + rowsum P
#pragma unroll
                for (int n = 2 * k; n < 2 * k + 2; ++n)
#pragma unroll
                    for (int c = 0; c < 4; ++c) {
                        s[t][n][c] = expf(s[t][n][c] - m[t][c / 2]);
                        l[t][c / 2] += s[t][n][c];
                    }
                p[t][0] = pack(s[t][2 * k][0], s[t][2 * k][1]);
                p[t][1] = pack(s[t][2 * k][2], s[t][2 * k][3]);
                p[t][2] = pack(s[t][2 * k + 1][0], s[t][2 * k + 1][1]);
                p[t][3] = pack(s[t][2 * k + 1][2], s[t][2 * k + 1][3]);
            }
            // O = alpha O + P V
#pragma unroll
            for (int n = 0; n < O_TILES; n += 2) {
                unsigned w[4];
                load_matrices_transposed(w, Vj, along(v_place, n) + 16 * k * CHUNKS);
#pragma unroll
                for (int t = 0; t < M_TILES; ++t) {
                    mma(o[t][n], p[t], w[0], w[1]);
                    mma(o[t][n + 1], p[t], w[2], w[3]);
                }
            }
        }
        __syncthreads();  // read before write: the next tile overwrites Kj, Vj; at the end, Qi becomes the output tile
    }

    // O = O / l, only after the last tile; a row that saw no key is 0
    if (j_first == j_end) __syncthreads();  // write before write: Qi was filled by all threads
#pragma unroll
    for (int t = 0; t < M_TILES; ++t)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float sum = l[t][half];
            sum += __shfl_xor_sync(ALL, sum, 1);
            sum += __shfl_xor_sync(ALL, sum, 2);
            const float scale_l = sum > 0.0f ? 1.0f / sum : 0.0f;
            const int row = warp_row + 16 * t + 8 * half + lane / 4;
#pragma unroll
            for (int n = 0; n < O_TILES; ++n)
                ((unsigned*)(Oi + place(row, n)))[lane % 4] = pack(o[t][n][2 * half] * scale_l, o[t][n][2 * half + 1] * scale_l);
            // LSE = m + ln l
            if (LSE != nullptr && lane % 4 == 0 && row < rows)
                LSE[((long long)b * H + h) * Nq + first_row + row] = sum > 0.0f ? m[t][half] + logf(sum) : MINUS_INFINITY;
        }
    const Strides of_o = strides_of(strides, 3, H, Nq, d);
    uint4* O_tile = O + (b * of_o.b + h * of_o.h + first_row * of_o.n) / 8;
    __syncwarp();  // write before read: a warp stores the rows that its own lanes wrote
    for (int e = lane; e < 16 * M_TILES * CHUNKS; e += 32) {
        const int row = warp_row + e / CHUNKS, chunk = e % CHUNKS;
        if (row < rows && chunk < chunks) O_tile[row * (of_o.n / 8) + chunk] = Oi[place(row, chunk)];
    }
}
