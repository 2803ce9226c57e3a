// Changed:  The maximum may lag: O is only rescaled when a row's largest S outgrew m by a factor of 2^8.
// Who:      a block owns Br queries of one head, each of its 4 warps a quarter of them; 4 lanes share two rows in 16.
// Where:    Q, K, V tiles in SMEM, K and V twice; S, P, O, m, l in REG, and Q too where d is 64 at most.
// Run:      python -m fmha bench --kernel 12 --dtype bf16 --N 4096 --d 64 --H 16 --Br 128 --Bc 64
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
constexpr bool KEEP_Q = D <= 64;                                   // Q fits in registers
constexpr float LOWEST = -3.402823466e38f;                         // for m before a row has seen a key
constexpr float LAG = 8.0f;                                        // P is at most 2^8
constexpr unsigned ALL = 0xffffffffu;

// Where a chunk of a tile lies: rows would meet in one bank, so their chunks are exchanged.
__device__ inline int place(int row, int chunk) { return row * CHUNKS + (chunk ^ (row & 7)); }
// From the place of a chunk to that of the chunk so many, an even number, further along the row.
__device__ inline int along(int place, int further) { return (place ^ (further & 7)) + (further & ~7); }

// Starts copying rows into a tile; those from `first` to `end` are there, the others become 0.
__device__ inline void copy_tile(Tile tile, int tile_rows, const uint4* rows, int stride, int first, int end, int chunks) {
    constexpr int STEP = THREADS / CHUNKS;
    const int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
    const unsigned low = first - row, many = chunk < chunks && end > first ? end - first : 0;
    rows += (long long)row * stride + chunk;
#pragma unroll
    for (int r = 0; r < tile_rows; r += STEP, rows += (long long)STEP * stride) {
        const int at = STEP % 8 == 0 ? place(row, chunk) + r * CHUNKS : place(row + r, chunk);
        copy_async(tile, at, rows, r - low < many);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
lag(
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
    const Tile Qi = tile_at(smem);                                  // [Br, D]  query tile
    const Tile K_both = tile_at(smem + Br * CHUNKS);                // [2, Bc, D]  key tiles
    const Tile V_both = tile_at(smem + (Br + 2 * Bc) * CHUNKS);     // [2, Bc, D]  value tiles
    uint4* Oi = smem;                                               // [Br, D]  where Qi was

    const int Tr = (Nq + Br - 1) / Br;
    const int i = Tr - 1 - blockIdx.x % Tr;  // a causal mask gives the last tiles most to do: they go first
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
    const float scale_log2 = fmaxf(fabsf(scale) * 1.44269504f, 1e-30f);  // not 0: a hidden key stays at -inf

    const int end = seen_end(keys, first_row + rows - 1, causal_offset);  // the last row sees furthest
    const int all_end = seen_end(keys, first_row, causal_offset);         // up to here every row sees
    const int j_first = keys.first / Bc;
    const int j_end = keys.first < end ? (end + Bc - 1) / Bc : j_first;
    auto copy_keys = [&](int j) {
        const int odd = (j - j_first) % 2 * Bc * CHUNKS, first = keys.first - j * Bc, last = keys.end - j * Bc;
        copy_tile(piece_of(K_both, odd), Bc, K_head + (long long)j * Bc * k_stride, k_stride, first, last, chunks);
        copy_tile(piece_of(V_both, odd), Bc, V_head + (long long)j * Bc * v_stride, v_stride, first, last, chunks);
    };

    // Qi = Q tile, O = 0, l = 0, m = -inf
    copy_tile(Qi, Br, Q_tile, int(of_q.n / 8), 0, rows, chunks);
    if (j_first < j_end) copy_keys(j_first);
    copies_issued();
    if (scale < 0.0f) {  // signs change sides: then the largest S is the largest S * scale
        copies_done<0>();
        for (int e = tid; e < Br * CHUNKS; e += THREADS) {
            const int at = place(e / CHUNKS, e % CHUNKS);
            const uint4 x = smem[at];
            smem[at] = make_uint4(x.x ^ 0x80008000u, x.y ^ 0x80008000u, x.z ^ 0x80008000u, x.w ^ 0x80008000u);
        }
    }
    const int q_place = place(warp_row + lane % 16, lane / 16);
    const int k_place = place(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    const int v_place = place(lane % 16, lane / 16);
    unsigned q[M_TILES][KEEP_Q ? K_STEPS : 1][4];
    float o[M_TILES][O_TILES][4] = {}, l[M_TILES][2] = {}, m[M_TILES][2];
#pragma unroll
    for (int t = 0; t < M_TILES; ++t) m[t][0] = m[t][1] = LOWEST;

    for (int j = j_first; j < j_end; ++j) {
        // Kj, Vj = K tile, V tile: the next ones are under way while these are used
        copies_done<0>();
        __syncthreads();  // write before read: Kj, Vj (and Qi, the first time); read before write: those of the tile before
        if (j + 1 < j_end) copy_keys(j + 1);
        copies_issued();
        const int odd = (j - j_first) % 2 * Bc * CHUNKS;
        const Tile Kj = piece_of(K_both, odd), Vj = piece_of(V_both, odd);

        // S = QK^T
        float s[M_TILES][N_TILES][4] = {};
#pragma unroll
        for (int k = 0; k < K_STEPS; ++k) {
            if (!KEEP_Q || j == j_first)
#pragma unroll
                for (int t = 0; t < M_TILES; ++t)
                    load_matrices(q[t][KEEP_Q ? k : 0], Qi, along(q_place, 2 * k) + 16 * t * CHUNKS);
#pragma unroll
            for (int n = 0; n < N_TILES; n += 2) {
                unsigned w[4];  // of two neighbouring column tiles
                load_matrices(w, Kj, along(k_place, 2 * k) + 8 * n * CHUNKS);
#pragma unroll
                for (int t = 0; t < M_TILES; ++t) {
                    mma(s[t][n], q[t][KEEP_Q ? k : 0], w[0], w[1]);
                    mma(s[t][n + 1], q[t][KEEP_Q ? k : 0], w[2], w[3]);
                }
            }
        }
        const int c_first = keys.first - j * Bc;
        if (c_first > 0 || (j + 1) * Bc > all_end) {  // some row does not see some key
#pragma unroll
            for (int t = 0; t < M_TILES; ++t)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int row = first_row + warp_row + 16 * t + 8 * half + lane / 4;
                    const int c_end = seen_end(keys, row, causal_offset) - j * Bc;
#pragma unroll
                    for (int n = 0; n < N_TILES; ++n)
#pragma unroll
                        for (int c = 0; c < 2; ++c) {
                            const int col = 8 * n + lane % 4 * 2 + c;
                            if (col < c_first || col >= c_end) s[t][n][2 * half + c] = MINUS_INFINITY;
                        }
                }
        }
        // m_new = max(m, rowmax S), in units of log 2
        float top[M_TILES][2];
        bool outgrown = false;
#pragma unroll
        for (int t = 0; t < M_TILES; ++t)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float x = fmaxf(s[t][0][2 * half], s[t][0][2 * half + 1]);
#pragma unroll
                for (int n = 1; n < N_TILES; ++n) x = fmaxf(x, fmaxf(s[t][n][2 * half], s[t][n][2 * half + 1]));
                x = fmaxf(x, __shfl_xor_sync(ALL, x, 1));
                x = fmaxf(x, __shfl_xor_sync(ALL, x, 2)) * scale_log2;
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
            unsigned p[M_TILES][4];
#pragma unroll
            for (int t = 0; t < M_TILES; ++t) {
                // P = exp(S - m_new), l = alpha l + rowsum P
#pragma unroll
                for (int n = 2 * k; n < 2 * k + 2; ++n)
#pragma unroll
                    for (int c = 0; c < 4; ++c) {
                        s[t][n][c] = exp2_fast(s[t][n][c] * scale_log2 - m[t][c / 2]);
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
    }

    // O = O / l, only after the last tile; a row that saw no key is 0
    copies_done<0>();
    __syncthreads();  // read before write: Qi becomes the output tile
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
                LSE[((long long)b * H + h) * Nq + first_row + row] =
                    sum > 0.0f ? m[t][half] * (fabsf(scale) / scale_log2) + logf(sum) : MINUS_INFINITY;
        }
    const Strides of_o = strides_of(strides, 3, H, Nq, d);
    uint4* O_tile = O + (b * of_o.b + h * of_o.h + first_row * of_o.n) / 8;
    __syncwarp();  // write before read: a warp stores the rows that its own lanes wrote
    for (int e = lane; e < 16 * M_TILES * CHUNKS; e += 32) {
        const int row = warp_row + e / CHUNKS, chunk = e % CHUNKS;
        if (row < rows && chunk < chunks) O_tile[row * (of_o.n / 8) + chunk] = Oi[place(row, chunk)];
    }
}
