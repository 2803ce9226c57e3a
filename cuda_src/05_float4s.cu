// Changed:  global and shared memory are read four floats at a time (float4); d is a multiple of 4.
// Who:      a block owns a tile of Br queries of one head; a thread one element of Sij, and four neighbours in a row of Oi.
// Where:    all tiles, Sij, the accumulator Oi and the statistics in SMEM; Q is read once, K and V once for each block.
// Run:      python -m fmha bench --kernel 05 --N 4096 --d 64 --H 16 --Br 32 --Bc 32
#include "common.cuh"
#include "strides.cuh"

extern "C" __global__ void __launch_bounds__(BR * BC)
float4s(const float* Q,        // [B, H, Nq, d]
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
    constexpr int Br = BR, Bc = BC, threads = Br * Bc;
    const int d4 = d / 4;         // float4s in a row of Vj and Oi
    const int pitch = d4 | 1;     // float4s from row to row of Qi and Kj: 8 lanes a row apart meet all 32 banks
    extern __shared__ float4 smem[];
    float4* Qi = smem;            // [Br * pitch]  query tile
    float4* Kj = Qi + Br * pitch; // [Bc * pitch]  key tile
    float4* Vj = Kj + Bc * pitch; // [Bc * d4]  value tile
    float4* Oi = Vj + Bc * d4;    // [Br * d4]  output accumulator
    float* Sij = (float*)(Oi + Br * d4);  // [Br * Bc]  score tile, then weights P
    float* li = Sij + Br * Bc;    // [Br]      running row sum
    float* mi = li + Br;          // [Br]      running row max
    float* alpha = mi + Br;       // [Br]      exp(mi - mi_new): rescales what came before
    float* beta = alpha + Br;     // [Br]      exp(row_m - mi_new): rescales this tile

    const int Tr = (Nq + Br - 1) / Br;
    const int i = blockIdx.x % Tr;
    const long long bh = blockIdx.x / Tr;
    const int b = int(bh / H), h = int(bh % H), hk = h / (H / Hk);  // query head h reads K/V head hk
    const int tid = threadIdx.x, lane = tid % 32, s_row = tid / Bc, s_col = tid % Bc;
    const int first_row = i * Br, rows = min(Br, Nq - first_row);
    const Keys keys = real_keys(key_range, int(bh / H), Nk);
    const Strides of_q = strides_of(strides, 0, H, Nq, d), of_o = strides_of(strides, 3, H, Nq, d);
    const Strides of_k = strides_of(strides, 1, Hk, Nk, d), of_v = strides_of(strides, 2, Hk, Nk, d);
    const long long q_step = of_q.n / 4, k_step = of_k.n / 4, v_step = of_v.n / 4, o_step = of_o.n / 4;
    const float4* Q_tile = (const float4*)(Q + b * of_q.b + h * of_q.h + first_row * of_q.n);
    float4* O_tile = (float4*)(O + b * of_o.b + h * of_o.h + first_row * of_o.n);

    // Qi = Q tile, Oi = 0, li = 0, mi = -inf
    for (int e = tid; e < rows * d4; e += threads) Qi[e / d4 * pitch + e % d4] = Q_tile[e / d4 * q_step + e % d4];
    for (int e = tid; e < Br * d4; e += threads) Oi[e] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (tid < Br) {
        li[tid] = 0.0f;
        mi[tid] = MINUS_INFINITY;
    }
    __syncthreads();  // write before read: Qi, li, mi are read by threads that did not write them

    const int end = seen_end(keys, first_row + rows - 1, causal_offset);  // the last row sees furthest
    for (int j = keys.first / Bc; j * Bc < end && keys.first < end; ++j) {
        // Kj, Vj = K tile, V tile: the real keys from c_first to c_end
        const int c_first = max(keys.first - j * Bc, 0), c_end = min(keys.end - j * Bc, Bc);
        const float4* K_tile = (const float4*)(K + b * of_k.b + hk * of_k.h + j * Bc * of_k.n);
        const float4* V_tile = (const float4*)(V + b * of_v.b + hk * of_v.h + j * Bc * of_v.n);
        for (int e = c_first * d4 + tid; e < c_end * d4; e += threads) {
            Kj[e / d4 * pitch + e % d4] = K_tile[e / d4 * k_step + e % d4];
            Vj[e] = V_tile[e / d4 * v_step + e % d4];
        }
        __syncthreads();  // write before read: Kj, Vj were filled by all threads

        // S = QK^T
        const int row_end = seen_end(keys, first_row + s_row, causal_offset) - j * Bc;
        const bool seen = s_row < rows && s_col >= c_first && s_col < row_end;
        float score = 0.0f;
        if (seen)
            for (int k = 0; k < d4; ++k) {
                const float4 q = Qi[s_row * pitch + k], w = Kj[s_col * pitch + k];
                score += q.x * w.x + q.y * w.y + q.z * w.z + q.w * w.w;
            }
        Sij[s_row * Bc + s_col] = seen ? score * scale : MINUS_INFINITY;
        __syncthreads();  // write before read: a row of Sij was filled by Bc threads

        for (int row = tid / 32; row < Br; row += threads / 32) {
            // m_new = max(m, rowmax S)
            float row_m = MINUS_INFINITY;
            for (int c = lane; c < Bc; c += 32) row_m = fmaxf(row_m, Sij[row * Bc + c]);
            for (int step = 16; step > 0; step /= 2) row_m = fmaxf(row_m, __shfl_xor_sync(0xffffffffu, row_m, step));
            const float mi_new = fmaxf(mi[row], row_m);
            const float shift = row_m == MINUS_INFINITY ? 0.0f : row_m;  // a row that sees nothing here: P = 0
            // P = exp(S - m), l = rowsum P
            float row_l = 0.0f;
            for (int c = lane; c < Bc; c += 32) {
                const float p = expf(Sij[row * Bc + c] - shift);
                Sij[row * Bc + c] = p;
                row_l += p;
            }
            for (int step = 16; step > 0; step /= 2) row_l += __shfl_xor_sync(0xffffffffu, row_l, step);
            // l_new = exp(m - m_new) l + exp(row_m - m_new) row_l
            if (lane == 0) {
                alpha[row] = mi[row] == mi_new ? 1.0f : expf(mi[row] - mi_new);
                beta[row] = row_m == MINUS_INFINITY ? 0.0f : expf(row_m - mi_new);
                li[row] = alpha[row] * li[row] + beta[row] * row_l;
                mi[row] = mi_new;
            }
        }
        __syncthreads();  // write before read: P, alpha, beta were written by one warp a row

        // O = alpha O + beta P V
        for (int e = tid; e < rows * d4; e += threads) {
            const int row = e / d4, col = e % d4;
            float4 pv = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            for (int c = c_first; c < c_end; ++c) {
                const float p = Sij[row * Bc + c];
                const float4 w = Vj[c * d4 + col];
                pv.x += p * w.x;
                pv.y += p * w.y;
                pv.z += p * w.z;
                pv.w += p * w.w;
            }
            const float4 o = Oi[e];
            Oi[e] = make_float4(alpha[row] * o.x + beta[row] * pv.x, alpha[row] * o.y + beta[row] * pv.y,
                                alpha[row] * o.z + beta[row] * pv.z, alpha[row] * o.w + beta[row] * pv.w);
        }
        __syncthreads();  // read before write: the next tile overwrites Kj, Vj, Sij, alpha, beta
    }

    // O = O / l, only after the last tile; a row that saw no key is 0
    for (int e = tid; e < rows * d4; e += threads) {
        const float l = li[e / d4], scale_l = l > 0.0f ? 1.0f / l : 0.0f;
        const float4 o = Oi[e];
        O_tile[e / d4 * o_step + e % d4] = make_float4(o.x * scale_l, o.y * scale_l, o.z * scale_l, o.w * scale_l);
    }
    // LSE = m + ln l
    if (LSE != nullptr && tid < rows)
        LSE[bh * Nq + first_row + tid] = li[tid] > 0.0f ? mi[tid] + logf(li[tid]) : MINUS_INFINITY;
}
