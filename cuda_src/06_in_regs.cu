// Changed:  S and O live in registers: a thread owns a small tile of each, so that a number from SMEM is used many times.
// Who:      a block owns Br queries of one head; 16 neighbouring threads share Br / 16 rows, each a sixteenth of them.
// Where:    Q, K, V tiles and P in SMEM; S, O, m, l and alpha in REG; d is known to the compiler, a multiple of 4.
// Run:      python -m fmha bench --kernel 06 --N 4096 --d 64 --H 16
#include "common.cuh"
#include "strides.cuh"

#ifndef HEAD_DIM
#define HEAD_DIM 64  // d, rounded up to a multiple of 64; what lies beyond d is 0
#endif
constexpr int Br = BR, Bc = BC, D4 = HEAD_DIM / 4;
constexpr int SIDE = 16;               // threads that share rows: half a warp
constexpr int THREADS = 256;
constexpr int ROWS = Br * SIDE / THREADS;  // rows of a thread: y, y + 16, ...
constexpr int COLS = Bc / SIDE;            // columns of S of a thread: x, x + 16, ...
constexpr int QUADS = D4 / SIDE;           // float4s of a row of O of a thread: x, x + 16, ...
constexpr int PITCH = D4 + 1;              // float4s from row to row of Qi and Kj: 8 lanes a row apart meet all 32 banks
constexpr int P_PITCH = Bc / 4 + 1;        // float4s from row to row of Pij

extern "C" __global__ void __launch_bounds__(THREADS)
in_regs(const float* Q,        // [B, H, Nq, d]
        const float* K,        // [B, Hk, Nk, d]
        const float* V,        // [B, Hk, Nk, d]
        float* O,              // [B, H, Nq, d]
        float* LSE,            // [B, H, Nq], or null
        const int* key_range,  // [B, 2], or null
        int H,
        int Hk,
        int Nq,
        int Nk,
        int d,
        float scale,
        int causal_offset,
        const long long* strides) {  // [4, 3], or null: dense
    extern __shared__ float4 smem[];
    float4* Qi = smem;             // [Br * PITCH]  query tile
    float4* Kj = Qi + Br * PITCH;  // [Bc * PITCH]  key tile
    float4* Vj = Kj + Bc * PITCH;  // [Bc * D4]  value tile
    float4* Pij = Vj + Bc * D4;    // [Br * P_PITCH]  weights

    const int Tr = (Nq + Br - 1) / Br;
    const int i = blockIdx.x % Tr;
    const long long bh = blockIdx.x / Tr;
    const int b = int(bh / H), h = int(bh % H), hk = h / (H / Hk);  // query head h reads K/V head hk
    const int tid = threadIdx.x, x = tid % SIDE, y = tid / SIDE;
    const int d4 = d / 4, first_row = i * Br, rows = min(Br, Nq - first_row);
    const Keys keys = real_keys(key_range, int(bh / H), Nk);
    const Strides of_q = strides_of(strides, 0, H, Nq, d), of_o = strides_of(strides, 3, H, Nq, d);
    const Strides of_k = strides_of(strides, 1, Hk, Nk, d), of_v = strides_of(strides, 2, Hk, Nk, d);
    const int q_step = int(of_q.n / 4), k_step = int(of_k.n / 4), v_step = int(of_v.n / 4), o_step = int(of_o.n / 4);
    const float4* Q_tile = (const float4*)(Q + b * of_q.b + h * of_q.h + first_row * of_q.n);
    float4* O_tile = (float4*)(O + b * of_o.b + h * of_o.h + first_row * of_o.n);
    const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

    // Qi = Q tile, O = 0, l = 0, m = -inf
    for (int e = 0; e < Br * D4; e += THREADS) {
        const int row = (e + tid) / D4, col = (e + tid) % D4;
        Qi[row * PITCH + col] = row < rows && col < d4 ? Q_tile[(long long)row * q_step + col] : zero;
    }
    float m[ROWS], l[ROWS];
    float4 o[ROWS][QUADS];
    for (int r = 0; r < ROWS; ++r) {
        m[r] = MINUS_INFINITY;
        l[r] = 0.0f;
        for (int q = 0; q < QUADS; ++q) o[r][q] = zero;
    }

    const int end = seen_end(keys, first_row + rows - 1, causal_offset);  // the last row sees furthest
    for (int j = keys.first / Bc; j * Bc < end && keys.first < end; ++j) {
        // Kj, Vj = K tile, V tile: the real keys from c_first to c_end, 0 elsewhere
        const int c_first = max(keys.first - j * Bc, 0), c_end = min(keys.end - j * Bc, Bc);
        const float4* K_tile = (const float4*)(K + b * of_k.b + hk * of_k.h + j * Bc * of_k.n);
        const float4* V_tile = (const float4*)(V + b * of_v.b + hk * of_v.h + j * Bc * of_v.n);
        for (int e = 0; e < Bc * D4; e += THREADS) {
            const int row = (e + tid) / D4, col = (e + tid) % D4;
            const bool there = row >= c_first && row < c_end && col < d4;
            Kj[row * PITCH + col] = there ? K_tile[(long long)row * k_step + col] : zero;
            Vj[row * D4 + col] = there ? V_tile[(long long)row * v_step + col] : zero;
        }
        __syncthreads();  // write before read: Kj, Vj (and Qi, the first time) were filled by all threads

        // S = QK^T
        float s[ROWS][COLS] = {};
        for (int k = 0; k < D4; ++k) {
            float4 q[ROWS], w[COLS];
            for (int r = 0; r < ROWS; ++r) q[r] = Qi[(y + r * SIDE) * PITCH + k];
            for (int c = 0; c < COLS; ++c) w[c] = Kj[(x + c * SIDE) * PITCH + k];
            for (int r = 0; r < ROWS; ++r)
                for (int c = 0; c < COLS; ++c) {
                    s[r][c] += q[r].x * w[c].x;
                    s[r][c] += q[r].y * w[c].y;
                    s[r][c] += q[r].z * w[c].z;
                    s[r][c] += q[r].w * w[c].w;
                }
        }
        for (int r = 0; r < ROWS; ++r) {
            const int row = y + r * SIDE;
            const int row_end = row < rows ? seen_end(keys, first_row + row, causal_offset) - j * Bc : 0;
            // m_new = max(m, rowmax S)
            float m_new = m[r];
            for (int c = 0; c < COLS; ++c) {
                const int col = x + c * SIDE;
                s[r][c] = col >= c_first && col < row_end ? s[r][c] * scale : MINUS_INFINITY;
                m_new = fmaxf(m_new, s[r][c]);
            }
            for (int step = SIDE / 2; step > 0; step /= 2) m_new = fmaxf(m_new, __shfl_xor_sync(0xffffffffu, m_new, step));
            const float alpha = m[r] == m_new ? 1.0f : expf(m[r] - m_new);
            const float shift = m_new == MINUS_INFINITY ? 0.0f : m_new;  // a row that has seen nothing yet: P = 0
            // P = exp(S - m_new), l = alpha l + rowsum P
            float row_l = 0.0f;
            for (int c = 0; c < COLS; ++c) {
                const float p = expf(s[r][c] - shift);
                ((float*)Pij)[row * 4 * P_PITCH + x + c * SIDE] = p;
                row_l += p;
            }
            for (int step = SIDE / 2; step > 0; step /= 2) row_l += __shfl_xor_sync(0xffffffffu, row_l, step);
            l[r] = alpha * l[r] + row_l;
            m[r] = m_new;
            for (int q = 0; q < QUADS; ++q) {
                o[r][q].x *= alpha;
                o[r][q].y *= alpha;
                o[r][q].z *= alpha;
                o[r][q].w *= alpha;
            }
        }
        __syncwarp();  // write before read: a row of Pij was written by the half warp that reads it

        // O = alpha O + P V
        for (int c = 0; c < Bc / 4; ++c) {
            float4 p[ROWS];
            for (int r = 0; r < ROWS; ++r) p[r] = Pij[(y + r * SIDE) * P_PITCH + c];
            for (int q = 0; q < QUADS; ++q) {
                const float4 v0 = Vj[(4 * c + 0) * D4 + x + q * SIDE], v1 = Vj[(4 * c + 1) * D4 + x + q * SIDE];
                const float4 v2 = Vj[(4 * c + 2) * D4 + x + q * SIDE], v3 = Vj[(4 * c + 3) * D4 + x + q * SIDE];
                for (int r = 0; r < ROWS; ++r) {
                    o[r][q].x += p[r].x * v0.x + p[r].y * v1.x + p[r].z * v2.x + p[r].w * v3.x;
                    o[r][q].y += p[r].x * v0.y + p[r].y * v1.y + p[r].z * v2.y + p[r].w * v3.y;
                    o[r][q].z += p[r].x * v0.z + p[r].y * v1.z + p[r].z * v2.z + p[r].w * v3.z;
                    o[r][q].w += p[r].x * v0.w + p[r].y * v1.w + p[r].z * v2.w + p[r].w * v3.w;
                }
            }
        }
        __syncthreads();  // read before write: the next tile overwrites Kj, Vj, Pij
    }

    // O = O / l, only after the last tile; a row that saw no key is 0
    for (int r = 0; r < ROWS; ++r) {
        const int row = y + r * SIDE;
        if (row >= rows) continue;
        const float scale_l = l[r] > 0.0f ? 1.0f / l[r] : 0.0f;
        for (int q = 0; q < QUADS; ++q) {
            const int col = x + q * SIDE;
            const float4 a = o[r][q];
            if (col < d4)
                O_tile[(long long)row * o_step + col] = make_float4(a.x * scale_l, a.y * scale_l, a.z * scale_l, a.w * scale_l);
        }
        // LSE = m + ln l
        if (LSE != nullptr && x == 0) LSE[bh * Nq + first_row + row] = l[r] > 0.0f ? m[r] + logf(l[r]) : MINUS_INFINITY;
    }
}
