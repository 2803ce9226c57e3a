// Changed:  fp32 on tensor cores: each number is split into two of tf32, and three of their four products are added up.
// Who:      a block owns Br queries of one head, each of its 4 warps a quarter of them; 4 lanes share two rows in 16.
// Where:    Q, K, V tiles in SMEM as fp32; S, P, O, m, l in REG.
// Run:      python -m fmha bench --kernel 13 --N 4096 --d 128 --H 16 --Br 128 --Bc 32
#include "common.cuh"
#include "mma.cuh"
#include "strides.cuh"

#ifndef HEAD_DIM
#define HEAD_DIM 64  // d, rounded up to 64, 128 or 256; what lies beyond d is 0
#endif
constexpr int Br = BR, Bc = BC, D = HEAD_DIM;
constexpr int WARPS = 4, THREADS = 32 * WARPS;
constexpr int M_TILES = Br / WARPS / 16;           // of 16 rows, of a warp
constexpr int N_TILES = Bc / 8, O_TILES = D / 8;   // of 8 columns, of S and of O
constexpr int K_STEPS = D / 8, P_STEPS = Bc / 8;   // of 8, along d and along the keys
constexpr int CHUNKS = D / 4;                      // 16-byte pieces of a row
constexpr float LOWEST = -3.402823466e38f;         // for m before a row has seen a key
constexpr float LAG = 8.0f;                        // P is at most 2^8
constexpr unsigned ALL = 0xffffffffu;

// Where a chunk of a tile lies. Of Q and K, eight rows are read at once; of V, every other of eight rows (EVERY is 6).
template <int EVERY>
__device__ inline int place(int row, int chunk) { return row * CHUNKS + (chunk ^ (row & EVERY)); }
// From the place of a chunk to that of the chunk so many, an even number, further along the row.
__device__ inline int along(int place, int further) { return (place ^ (further & 7)) + (further & ~7); }

// Starts copying rows into a tile; those from `first` to `end` are there, the others become 0.
template <int EVERY>
__device__ inline void copy_tile(Tile tile, int tile_rows, const uint4* rows, int stride, int first, int end, int chunks) {
    constexpr int STEP = THREADS / CHUNKS;
    const int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
    const unsigned low = first - row, many = chunk < chunks && end > first ? end - first : 0;
    rows += (long long)row * stride + chunk;
#pragma unroll
    for (int r = 0; r < tile_rows; r += STEP, rows += (long long)STEP * stride)
        copy_async(tile, place<EVERY>(row + r, chunk), rows, r - low < many);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
tf32x3(
    const uint4* Q,           // [B, H, Nq, d], fp32
    const uint4* K,           // [B, Hk, Nk, d]
    const uint4* V,           // [B, Hk, Nk, d]
    float* O,                 // [B, H, Nq, d]
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
    uint4* V_at = smem + (Br + Bc) * CHUNKS;
    const Tile Qi = tile_at(smem);                // [Br, D]  query tile
    const Tile Kj = tile_at(smem + Br * CHUNKS);  // [Bc, D]  key tile
    const Tile Vj = tile_at(V_at);                // [Bc, D]  value tile

    const int Tr = (Nq + Br - 1) / Br;
    const int i = Tr - 1 - blockIdx.x % Tr;  // a causal mask gives the last tiles most to do: they go first
    const int b = blockIdx.x / Tr / H, h = blockIdx.x / Tr % H, hk = h / (H / Hk);
    const int tid = threadIdx.x, lane = tid % 32, warp_row = tid / 32 * 16 * M_TILES;
    const int chunks = d / 4, first_row = i * Br, rows = min(Br, Nq - first_row);
    const Keys keys = real_keys(key_range, b, Nk);
    const Strides of_q = strides_of(strides, 0, H, Nq, d);
    const Strides of_k = strides_of(strides, 1, Hk, Nk, d), of_v = strides_of(strides, 2, Hk, Nk, d);
    const uint4* Q_tile = Q + (b * of_q.b + h * of_q.h + first_row * of_q.n) / 4;
    const uint4* K_head = K + (b * of_k.b + hk * of_k.h) / 4;
    const uint4* V_head = V + (b * of_v.b + hk * of_v.h) / 4;
    const int k_stride = int(of_k.n / 4), v_stride = int(of_v.n / 4);
    const float scale_log2 = scale * 1.44269504f;

    const int end = seen_end(keys, first_row + rows - 1, causal_offset);  // the last row sees furthest
    const int all_end = seen_end(keys, first_row, causal_offset);         // up to here every row sees
    const int j_first = keys.first / Bc;
    const int j_end = keys.first < end ? (end + Bc - 1) / Bc : j_first;
    auto copy_k = [&](int j) {
        copy_tile<7>(Kj, Bc, K_head + (long long)j * Bc * k_stride, k_stride, keys.first - j * Bc, keys.end - j * Bc, chunks);
        copies_issued();
    };

    // Qi = Q tile, O = 0, l = 0, m = -inf
    copy_tile<7>(Qi, Br, Q_tile, int(of_q.n / 4), 0, rows, chunks);
    if (j_first < j_end) copy_k(j_first);
    const int q_place = place<7>(warp_row + lane % 16, lane / 16);
    const int k_place = place<7>(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    const int v_place = place<6>(lane % 4 * 2, lane / 16), v_word = lane / 4 % 4;  // lane / 4 is the column
    float o[M_TILES][O_TILES][4] = {}, l[M_TILES][2] = {}, m[M_TILES][2];
#pragma unroll
    for (int t = 0; t < M_TILES; ++t) m[t][0] = m[t][1] = LOWEST;

    for (int j = j_first; j < j_end; ++j) {
        copies_done<0>();
        __syncthreads();  // write before read: Kj (and Qi, the first time); read before write: Vj of the tile before
        // Vj = V tile, while S is computed
        copy_tile<6>(Vj, Bc, V_head + (long long)j * Bc * v_stride, v_stride, keys.first - j * Bc, keys.end - j * Bc, chunks);
        copies_issued();

        // S = QK^T, eight products at a time: tensor cores cut their sums short of rounding, so longer ones are added up here
        float s[M_TILES][N_TILES][4] = {};
#pragma unroll 1  // unrolled, it would need more registers than there are
        for (int k = 0; k < K_STEPS; ++k) {
            unsigned q[M_TILES][4], q_low[M_TILES][4];
#pragma unroll
            for (int t = 0; t < M_TILES; ++t) {
                load_matrices(q[t], Qi, along(q_place, 2 * k) + 16 * t * CHUNKS);
#pragma unroll
                for (int c = 0; c < 4; ++c) split(__uint_as_float(q[t][c]), q[t][c], q_low[t][c]);
            }
#pragma unroll
            for (int n = 0; n < N_TILES; n += 2) {
                unsigned w[4], w_low[4];  // of two neighbouring column tiles
                load_matrices(w, Kj, along(k_place, 2 * k) + 8 * n * CHUNKS);
#pragma unroll
                for (int c = 0; c < 4; ++c) split(__uint_as_float(w[c]), w[c], w_low[c]);
#pragma unroll
                for (int t = 0; t < M_TILES; ++t)
#pragma unroll
                    for (int of = 0; of < 2; ++of) {
                        float sum[4] = {};
                        mma_tf32(sum, q_low[t], w[2 * of], w[2 * of + 1]);
                        mma_tf32(sum, q[t], w_low[2 * of], w_low[2 * of + 1]);
                        mma_tf32(sum, q[t], w[2 * of], w[2 * of + 1]);
#pragma unroll
                        for (int c = 0; c < 4; ++c) s[t][n + of][c] += sum[c];
                    }
            }
        }
        copies_done<0>();
        __syncthreads();  // write before read: Vj; read before write: Kj
        // Kj = the next K tile, while P and O are computed
        if (j + 1 < j_end) copy_k(j + 1);
        const int c_first = keys.first - j * Bc;
        const bool all_seen = c_first <= 0 && (j + 1) * Bc <= all_end;
        // m_new = max(m, rowmax S), in units of log 2
        float top[M_TILES][2];
        bool outgrown = false;
#pragma unroll
        for (int t = 0; t < M_TILES; ++t)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = first_row + warp_row + 16 * t + 8 * half + lane / 4;
                const int c_end = seen_end(keys, row, causal_offset) - j * Bc;
                float x = MINUS_INFINITY;
#pragma unroll
                for (int n = 0; n < N_TILES; ++n)
#pragma unroll
                    for (int c = 0; c < 2; ++c) {
                        const int col = 8 * n + lane % 4 * 2 + c;
                        float& score = s[t][n][2 * half + c];
                        score = all_seen || (col >= c_first && col < c_end) ? score * scale_log2 : MINUS_INFINITY;
                        x = fmaxf(x, score);
                    }
                x = fmaxf(x, __shfl_xor_sync(ALL, x, 1));
                x = fmaxf(x, __shfl_xor_sync(ALL, x, 2));
                top[t][half] = x;
                outgrown |= x - m[t][half] > LAG;
            }
        if (__any_sync(ALL, outgrown))
#pragma unroll
            for (int t = 0; t < M_TILES; ++t)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const float m_new = fmaxf(m[t][half], top[t][half]), alpha = exp2_fast(m[t][half] - m_new);
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
            unsigned p[M_TILES][4], p_low[M_TILES][4];
#pragma unroll
            for (int t = 0; t < M_TILES; ++t)
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    // P = exp(S - m_new), l = alpha l + rowsum P
                    const float x = exp2_fast(s[t][k][c] - m[t][c / 2]);
                    l[t][c / 2] += x;
                    split(x, p[t][c % 2 * 2 + c / 2], p_low[t][c % 2 * 2 + c / 2]);  // keys 2n and 2n + 1 stand for n and n + 4
                }
            // O = alpha O + P V
#pragma unroll
            for (int n = 0; n < O_TILES; ++n) {
                unsigned w[2], w_low[2];
#pragma unroll
                for (int c = 0; c < 2; ++c)
                    split(((const float*)(V_at + along(v_place, 2 * n) + (8 * k + c) * CHUNKS))[v_word], w[c], w_low[c]);
#pragma unroll
                for (int t = 0; t < M_TILES; ++t) {
                    float sum[4] = {};
                    mma_tf32(sum, p_low[t], w[0], w[1]);
                    mma_tf32(sum, p[t], w_low[0], w_low[1]);
                    mma_tf32(sum, p[t], w[0], w[1]);
#pragma unroll
                    for (int c = 0; c < 4; ++c) o[t][n][c] += sum[c];
                }
            }
        }
    }

    // O = O / l, only after the last tile; a row that saw no key is 0
    copies_done<0>();
    const float to_nats = scale_log2 != 0.0f ? scale / scale_log2 : 0.0f;  // of m
    const Strides of_o = strides_of(strides, 3, H, Nq, d);
    float* O_tile = O + b * of_o.b + h * of_o.h + first_row * of_o.n;
#pragma unroll
    for (int t = 0; t < M_TILES; ++t)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float sum = l[t][half];
            sum += __shfl_xor_sync(ALL, sum, 1);
            sum += __shfl_xor_sync(ALL, sum, 2);
            const float scale_l = sum > 0.0f ? 1.0f / sum : 0.0f;
            const int row = warp_row + 16 * t + 8 * half + lane / 4;
            if (row >= rows) continue;
#pragma unroll
            for (int n = 0; n < O_TILES; ++n) {
                const int col = 8 * n + lane % 4 * 2;
                if (col < d)
                    *(float2*)(O_tile + row * of_o.n + col) = make_float2(o[t][n][2 * half] * scale_l, o[t][n][2 * half + 1] * scale_l);
            }
            // LSE = m + ln l
            if (LSE != nullptr && lane % 4 == 0)
                LSE[((long long)b * H + h) * Nq + first_row + row] = sum > 0.0f ? m[t][half] * to_nats + logf(sum) : MINUS_INFINITY;
        }
}
