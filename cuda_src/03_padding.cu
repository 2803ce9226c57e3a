// Changed:  a row of Qi and of Kj takes an odd number of floats, so that the lanes of a warp meet 32 different banks.
// Who:      a block owns a tile of Br queries of one head; a thread owns one element of Sij; a thread a row its statistics.
// Where:    all tiles, Sij, the accumulator Oi and the statistics in SMEM; Q is read once, K and V once for each block.
// Run:      python -m fmha bench --kernel 03 --N 4096 --d 64 --H 16 --Br 32 --Bc 32
#include "common.cuh"
#include "strides.cuh"

extern "C" __global__ void __launch_bounds__(BR * BC)
padding(const float* Q,        // [B, H, Nq, d]
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
    const int pitch = d | 1;      // floats from row to row of Qi and Kj: lanes a row apart are a bank apart
    extern __shared__ float smem[];
    float* Qi = smem;             // [Br * pitch]  query tile
    float* Kj = Qi + Br * pitch;  // [Bc * pitch]  key tile
    float* Vj = Kj + Bc * pitch;  // [Bc * d]  value tile
    float* Sij = Vj + Bc * d;     // [Br * Bc] score tile, then weights P
    float* Oi = Sij + Br * Bc;    // [Br * d]  output accumulator
    float* li = Oi + Br * d;      // [Br]      running row sum
    float* mi = li + Br;          // [Br]      running row max
    float* alpha = mi + Br;       // [Br]      exp(mi - mi_new): rescales what came before
    float* beta = alpha + Br;     // [Br]      exp(row_m - mi_new): rescales this tile

    const int Tr = (Nq + Br - 1) / Br;
    const int i = blockIdx.x % Tr;
    const long long bh = blockIdx.x / Tr;
    const int b = int(bh / H), h = int(bh % H), hk = h / (H / Hk);  // query head h reads K/V head hk
    const int tid = threadIdx.x, s_row = tid / Bc, s_col = tid % Bc;
    const int first_row = i * Br, rows = min(Br, Nq - first_row);
    const Keys keys = real_keys(key_range, int(bh / H), Nk);
    const Strides of_q = strides_of(strides, 0, H, Nq, d), of_o = strides_of(strides, 3, H, Nq, d);
    const Strides of_k = strides_of(strides, 1, Hk, Nk, d), of_v = strides_of(strides, 2, Hk, Nk, d);
    const float* Q_tile = Q + b * of_q.b + h * of_q.h + first_row * of_q.n;
    float* O_tile = O + b * of_o.b + h * of_o.h + first_row * of_o.n;

    // Qi = Q tile, Oi = 0, li = 0, mi = -inf
    for (int e = tid; e < rows * d; e += threads) Qi[e / d * pitch + e % d] = Q_tile[e / d * of_q.n + e % d];
    for (int e = tid; e < Br * d; e += threads) Oi[e] = 0.0f;
    if (tid < Br) {
        li[tid] = 0.0f;
        mi[tid] = MINUS_INFINITY;
    }
    __syncthreads();  // write before read: Qi, li, mi are read by threads that did not write them

    const int end = seen_end(keys, first_row + rows - 1, causal_offset);  // the last row sees furthest
    for (int j = keys.first / Bc; j * Bc < end && keys.first < end; ++j) {
        // Kj, Vj = K tile, V tile: the real keys from c_first to c_end
        const int c_first = max(keys.first - j * Bc, 0), c_end = min(keys.end - j * Bc, Bc);
        const float* K_tile = K + b * of_k.b + hk * of_k.h + j * Bc * of_k.n;
        const float* V_tile = V + b * of_v.b + hk * of_v.h + j * Bc * of_v.n;
        for (int e = c_first * d + tid; e < c_end * d; e += threads) {
            Kj[e / d * pitch + e % d] = K_tile[e / d * of_k.n + e % d];
            Vj[e] = V_tile[e / d * of_v.n + e % d];
        }
        __syncthreads();  // write before read: Kj, Vj were filled by all threads

        // S = QK^T
        const int row_end = seen_end(keys, first_row + s_row, causal_offset) - j * Bc;
        const bool seen = s_row < rows && s_col >= c_first && s_col < row_end;
        float score = 0.0f;
        if (seen)
            for (int k = 0; k < d; ++k) score += Qi[s_row * pitch + k] * Kj[s_col * pitch + k];
        Sij[s_row * Bc + s_col] = seen ? score * scale : MINUS_INFINITY;
        __syncthreads();  // write before read: a row of Sij was filled by Bc threads

        if (s_col == 0) {
            // m_new = max(m, rowmax S)
            float row_m = MINUS_INFINITY;
            for (int c = 0; c < Bc; ++c) row_m = fmaxf(row_m, Sij[s_row * Bc + c]);
            const float mi_new = fmaxf(mi[s_row], row_m);
            const float shift = row_m == MINUS_INFINITY ? 0.0f : row_m;  // a row that sees nothing here: P = 0
            // P = exp(S - m), l = rowsum P
            float row_l = 0.0f;
            for (int c = 0; c < Bc; ++c) {
                const float p = expf(Sij[s_row * Bc + c] - shift);
                Sij[s_row * Bc + c] = p;
                row_l += p;
            }
            // l_new = exp(m - m_new) l + exp(row_m - m_new) row_l
            alpha[s_row] = mi[s_row] == mi_new ? 1.0f : expf(mi[s_row] - mi_new);
            beta[s_row] = row_m == MINUS_INFINITY ? 0.0f : expf(row_m - mi_new);
            li[s_row] = alpha[s_row] * li[s_row] + beta[s_row] * row_l;
            mi[s_row] = mi_new;
        }
        __syncthreads();  // write before read: P, alpha, beta were written by one thread a row

        // O = alpha O + beta P V
        for (int e = tid; e < rows * d; e += threads) {
            const int row = e / d, col = e % d;
            float pv = 0.0f;
            for (int c = c_first; c < c_end; ++c) pv += Sij[row * Bc + c] * Vj[c * d + col];
            Oi[e] = alpha[row] * Oi[e] + beta[row] * pv;
        }
        __syncthreads();  // read before write: the next tile overwrites Kj, Vj, Sij, alpha, beta
    }

    // O = O / l, only after the last tile; a row that saw no key is 0
    for (int e = tid; e < rows * d; e += threads) {
        const float l = li[e / d];
        O_tile[e / d * of_o.n + e % d] = l > 0.0f ? Oi[e] / l : 0.0f;
    }
    // LSE = m + ln l
    if (LSE != nullptr && tid < rows)
        LSE[bh * Nq + first_row + tid] = li[tid] > 0.0f ? mi[tid] + logf(li[tid]) : MINUS_INFINITY;
}
