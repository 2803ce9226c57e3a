// Changed:  K and V are copied past the registers (cp.async): V while S is computed, the next K while O is; exp2; a swizzle.
// Who:      a block owns Br queries of one head; 16 neighbouring threads share rows, each a sixteenth of them.
// Where:    Q, K, V tiles and P in SMEM; S, O, m and l in REG; d is known to the compiler, a multiple of 4.
// Run:      python -m fmha bench --kernel 07 --N 4096 --d 64 --H 16 --Br 128 --Bc 64
#include "common.cuh"
#include "mma.cuh"
#include "strides.cuh"

#ifndef HEAD_DIM
#define HEAD_DIM 64  // d, rounded up to 64, 128 or 256; what lies beyond d is 0
#endif
constexpr int Br = BR, Bc = BC, D = HEAD_DIM, D4 = D / 4;
constexpr int SIDE = 16;                      // threads that share rows: half a warp
constexpr int THREADS = D <= 64 ? 128 : 256;  // so that a thread's tiles of S and O are large, and two blocks fit
constexpr int APART = THREADS / SIDE;         // rows of a thread: y, y + APART, ...
constexpr int ROWS = Br / APART, COLS = Bc / SIDE, QUADS = D4 / SIDE;
constexpr int P_PITCH = Bc / 4 + 1;           // float4s from row to row of Pij
constexpr float LOWEST = -3.402823466e38f;    // for m before a row has seen a key
constexpr unsigned ALL = 0xffffffffu;

__device__ inline void unpack(float* to, float4 from) {
    to[0] = from.x;
    to[1] = from.y;
    to[2] = from.z;
    to[3] = from.w;
}

// Where a float4 of a tile lies. Eight rows of Q and K are read at once (EVERY is 7): they trade places in their rows.
template <int EVERY>
__device__ inline int place(int row, int col) { return row * D4 + (col ^ (row & EVERY)); }

// Starts copying rows into a tile; those from `first` to `end` are there, the others become 0.
template <int EVERY>
__device__ inline void copy_tile(Tile tile, int tile_rows, const float4* rows, int stride, int first, int end, int d4) {
    constexpr int STEP = THREADS / D4;
    const int row = threadIdx.x / D4, col = threadIdx.x % D4;
    const unsigned low = first - row, many = col < d4 && end > first ? end - first : 0;
    rows += (long long)row * stride + col;
#pragma unroll
    for (int r = 0; r < tile_rows; r += STEP, rows += (long long)STEP * stride)
        copy_async(tile, place<EVERY>(row + r, col), (const uint4*)rows, r - low < many);
}

extern "C" __global__ void __launch_bounds__(THREADS, D <= 64 ? 2 : 1)
copies(
    const float* Q,           // [B, H, Nq, d]
    const float* K,           // [B, Hk, Nk, d]
    const float* V,           // [B, Hk, Nk, d]
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
    extern __shared__ float4 smem[];
    float4* Qi = smem;           // [Br * D4]  query tile
    float4* Kj = Qi + Br * D4;   // [Bc * D4]  key tile
    float4* Vj = Kj + Bc * D4;   // [Bc * D4]  value tile
    float4* Pij = Vj + Bc * D4;  // [Br * P_PITCH]  weights
    const Tile Q_to = tile_at((uint4*)Qi), K_to = tile_at((uint4*)Kj), V_to = tile_at((uint4*)Vj);

    const int Tr = (Nq + Br - 1) / Br;
    const int i = Tr - 1 - blockIdx.x % Tr;  // a causal mask gives the last tiles most to do: they go first
    const int b = blockIdx.x / Tr / H, h = blockIdx.x / Tr % H, hk = h / (H / Hk);
    const int tid = threadIdx.x, x = tid % SIDE, y = tid / SIDE;
    const int d4 = d / 4, first_row = i * Br, rows = min(Br, Nq - first_row);
    const Keys keys = real_keys(key_range, b, Nk);
    const Strides of_q = strides_of(strides, 0, H, Nq, d), of_o = strides_of(strides, 3, H, Nq, d);
    const Strides of_k = strides_of(strides, 1, Hk, Nk, d), of_v = strides_of(strides, 2, Hk, Nk, d);
    const float* Q_tile = Q + b * of_q.b + h * of_q.h + first_row * of_q.n;
    float* O_tile = O + b * of_o.b + h * of_o.h + first_row * of_o.n;
    const float* K_head = K + b * of_k.b + hk * of_k.h;
    const float* V_head = V + b * of_v.b + hk * of_v.h;
    const float scale_log2 = scale * 1.44269504f;

    const int end = seen_end(keys, first_row + rows - 1, causal_offset);  // the last row sees furthest
    const int all_end = seen_end(keys, first_row, causal_offset);         // up to here every row sees
    const int j_first = keys.first / Bc;
    const int j_end = keys.first < end ? (end + Bc - 1) / Bc : j_first;
    auto copy_k = [&](int j) {
        const float4* tile = (const float4*)(K_head + j * Bc * of_k.n);
        copy_tile<7>(K_to, Bc, tile, int(of_k.n / 4), keys.first - j * Bc, keys.end - j * Bc, d4);
        copies_issued();
    };

    // Qi = Q tile, O = 0, l = 0, m = -inf
    copy_tile<7>(Q_to, Br, (const float4*)Q_tile, int(of_q.n / 4), 0, rows, d4);
    if (j_first < j_end) copy_k(j_first);
    float m[ROWS], l[ROWS] = {}, o[ROWS][4 * QUADS] = {};
#pragma unroll
    for (int r = 0; r < ROWS; ++r) m[r] = LOWEST;

    for (int j = j_first; j < j_end; ++j) {
        const int c_first = keys.first - j * Bc;
        copies_done<0>();
        __syncthreads();  // write before read: Kj (and Qi, the first time); read before write: Vj of the tile before
        // Vj = V tile, while S is computed
        const float4* V_tile = (const float4*)(V_head + j * Bc * of_v.n);
        copy_tile<0>(V_to, Bc, V_tile, int(of_v.n / 4), c_first, keys.end - j * Bc, d4);
        copies_issued();

        // S = QK^T
        float s[ROWS][COLS] = {};
#pragma unroll 1
        for (int k = 0; k < D4; ++k) {
            float q[ROWS][4], w[COLS][4];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) unpack(q[r], Qi[place<7>(y, k) + r * APART * D4]);
#pragma unroll
            for (int c = 0; c < COLS; ++c) unpack(w[c], Kj[place<7>(x, k) + c * SIDE * D4]);
#pragma unroll
            for (int e = 0; e < 4; ++e)
#pragma unroll
                for (int r = 0; r < ROWS; ++r)
#pragma unroll
                    for (int c = 0; c < COLS; ++c) s[r][c] += q[r][e] * w[c][e];
        }
        copies_done<0>();
        __syncthreads();  // write before read: Vj; read before write: Kj
        // Kj = the next K tile, while P and O are computed
        if (j + 1 < j_end) copy_k(j + 1);
        const bool all_seen = c_first <= 0 && (j + 1) * Bc <= all_end;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int c_end = seen_end(keys, first_row + y + r * APART, causal_offset) - j * Bc;
            // m_new = max(m, rowmax S), in units of log 2
            float m_new = m[r];
#pragma unroll
            for (int c = 0; c < COLS; ++c) {
                const int col = x + c * SIDE;
                s[r][c] = all_seen || (col >= c_first && col < c_end) ? s[r][c] * scale_log2 : MINUS_INFINITY;
                m_new = fmaxf(m_new, s[r][c]);
            }
#pragma unroll
            for (int step = SIDE / 2; step > 0; step /= 2) m_new = fmaxf(m_new, __shfl_xor_sync(ALL, m_new, step));
            const float alpha = exp2_fast(m[r] - m_new);
            m[r] = m_new;
            // P = exp(S - m_new), l = alpha l + rowsum P
            l[r] *= alpha;
#pragma unroll
            for (int c = 0; c < COLS; ++c) {
                const float p = exp2_fast(s[r][c] - m_new);
                ((float*)Pij)[(y + r * APART) * 4 * P_PITCH + x + c * SIDE] = p;
                l[r] += p;
            }
#pragma unroll
            for (int e = 0; e < 4 * QUADS; ++e) o[r][e] *= alpha;
        }
        __syncwarp();  // write before read: a row of Pij was written by the half warp that reads it

        // O = alpha O + P V
#pragma unroll 1
        for (int c = 0; c < Bc / 4; ++c) {
            float p[ROWS][4];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) unpack(p[r], Pij[(y + r * APART) * P_PITCH + c]);
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                float v[4 * QUADS];
#pragma unroll
                for (int q = 0; q < QUADS; ++q) unpack(v + 4 * q, Vj[(4 * c + n) * D4 + x + q * SIDE]);
#pragma unroll
                for (int e = 0; e < 4 * QUADS; ++e)
#pragma unroll
                    for (int r = 0; r < ROWS; ++r) o[r][e] += p[r][n] * v[e];
            }
        }
    }

    // O = O / l, only after the last tile; a row that saw no key is 0
    copies_done<0>();
    const float to_nats = scale_log2 != 0.0f ? scale / scale_log2 : 0.0f;  // of m
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int row = y + r * APART;
        float sum = l[r];
#pragma unroll
        for (int step = SIDE / 2; step > 0; step /= 2) sum += __shfl_xor_sync(ALL, sum, step);
        if (row >= rows) continue;
        const float scale_l = sum > 0.0f ? 1.0f / sum : 0.0f;
#pragma unroll
        for (int q = 0; q < QUADS; ++q) {
            const float* a = o[r] + 4 * q;
            if (x + q * SIDE < d4)
                ((float4*)(O_tile + row * of_o.n))[x + q * SIDE] = make_float4(a[0] * scale_l, a[1] * scale_l, a[2] * scale_l, a[3] * scale_l);
        }
        // LSE = m + ln l
        if (LSE != nullptr && x == 0)
            LSE[((long long)b * H + h) * Nq + first_row + row] = sum > 0.0f ? m[r] * to_nats + logf(sum) : MINUS_INFINITY;
    }
}
