// Changed:  nothing yet. S = QK^T, P = softmax(S), O = PV are three kernels, and S and P go through HBM.
// Who:      a block of 16 x 16 threads makes a 64 x 64 tile of S (or of O), 4 x 4 numbers a thread; a block a row of P.
// Where:    tiles of 32 columns in SMEM, sums in REG, S and P whole in HBM, their rows padded to `pitch` floats.
// Run:      python -m fmha bench --kernel 01 --N 4096 --d 64 --H 16
#include "common.cuh"

constexpr int TILE = 64;         // rows and columns of the tile that a block makes
constexpr int CHUNK = 32;        // columns of Q, K or P that lie in SMEM at once
constexpr int SIDE = 16;         // threads along a side of the tile
constexpr int EACH = TILE / SIDE;
constexpr int ROW_THREADS = 256; // threads of a softmax block

// Copies a TILE x CHUNK piece of a row-major matrix; what lies outside it becomes 0.
__device__ void load_chunk(float (*tile)[CHUNK + 1],  // one float of padding a row: no bank conflicts
                           const float* matrix,       // its element [first_row, 0]
                           int rows, int columns, int first_column, long long pitch) {
    for (int e = threadIdx.x; e < TILE * CHUNK; e += SIDE * SIDE) {
        int r = e / CHUNK, c = e % CHUNK;
        bool inside = r < rows && first_column + c < columns;
        tile[r][c] = inside ? matrix[r * pitch + first_column + c] : 0.0f;
    }
}

// S = QK^T * scale, -inf where a row may not look.
extern "C" __global__ void __launch_bounds__(SIDE * SIDE)
naive_scores(const float* Q,        // [B, H, Nq, d]
             const float* K,        // [B, Hk, Nk, d]
             float* S,              // [B, H, Nq, pitch]
             const int* key_range,  // [B, 2], or null
             int H,
             int Hk,
             int Nq,
             int Nk,
             int d,
             int pitch,             // Nk, rounded up to whole sectors of 8 floats
             float scale,
             int causal_offset) {
    __shared__ float Qi[TILE][CHUNK + 1];
    __shared__ float Kj[TILE][CHUNK + 1];
    const int Tr = (Nq + TILE - 1) / TILE, Tc = (pitch + TILE - 1) / TILE;
    const int j = blockIdx.x % Tc, i = blockIdx.x / Tc % Tr;
    const long long bh = blockIdx.x / Tc / Tr;
    const long long bhk = bh / H * Hk + bh % H / (H / Hk);
    const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
    const float* Q_tile = Q + (bh * Nq + (long long)i * TILE) * d;
    const float* K_tile = K + (bhk * Nk + (long long)j * TILE) * d;

    float sum[EACH][EACH] = {};
    for (int k0 = 0; k0 < d; k0 += CHUNK) {
        load_chunk(Qi, Q_tile, Nq - i * TILE, d, k0, d);
        load_chunk(Kj, K_tile, Nk - j * TILE, d, k0, d);
        __syncthreads();  // write before read: Qi, Kj were filled by all threads
        for (int k = 0; k < CHUNK; ++k)
            for (int r = 0; r < EACH; ++r)
                for (int c = 0; c < EACH; ++c) sum[r][c] += Qi[y + r * SIDE][k] * Kj[x + c * SIDE][k];
        __syncthreads();  // read before write: the next chunk overwrites Qi, Kj
    }
    const Keys keys = real_keys(key_range, int(bh / H), Nk);
    for (int r = 0; r < EACH; ++r) {
        int row = i * TILE + y + r * SIDE;
        if (row >= Nq) continue;
        int end = seen_end(keys, row, causal_offset);
        for (int c = 0; c < EACH; ++c) {
            int col = j * TILE + x + c * SIDE;
            if (col >= pitch) continue;
            bool seen = col >= keys.first && col < end;
            S[(bh * Nq + row) * pitch + col] = seen ? sum[r][c] * scale : MINUS_INFINITY;
        }
    }
}

// The largest (or the sum) of one number a thread, known to all threads of the block.
template <bool LARGEST>
__device__ float across_block(float value) {
    __shared__ float warps[ROW_THREADS / 32];
    for (int step = 16; step > 0; step /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, value, step);
        value = LARGEST ? fmaxf(value, other) : value + other;
    }
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();  // write before read: warps holds one number of each warp
    value = warps[0];
    for (int w = 1; w < ROW_THREADS / 32; ++w) value = LARGEST ? fmaxf(value, warps[w]) : value + warps[w];
    return value;
}

// P = softmax(S), row by row. The first `held` numbers of a row stay in SMEM; only a longer row is read again.
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
naive_softmax(const float* S,  // [B, H, Nq, pitch]
              float* P,        // [B, H, Nq, pitch]
              float* LSE,      // [B, H, Nq], or null
              int pitch,
              int held) {
    extern __shared__ float row_smem[];  // [held]
    const long long row = blockIdx.x;
    const float* S_row = S + row * pitch;
    float* P_row = P + row * pitch;

    // m = rowmax S
    float m = MINUS_INFINITY;
    for (int j = threadIdx.x; j < pitch; j += ROW_THREADS) {
        float s = S_row[j];
        if (j < held) row_smem[j] = s;  // a thread reads back only what it wrote itself: no barrier
        m = fmaxf(m, s);
    }
    m = across_block<true>(m);
    const float shift = m == MINUS_INFINITY ? 0.0f : m;  // a row that sees no key: exp(-inf - 0) = 0

    // l = rowsum exp(S - m)
    float l = 0.0f;
    for (int j = threadIdx.x; j < pitch; j += ROW_THREADS) {
        float e = expf((j < held ? row_smem[j] : S_row[j]) - shift);
        if (j < held) row_smem[j] = e;
        l += e;
    }
    l = across_block<false>(l);

    // P = exp(S - m) / l
    const float divisor = l > 0.0f ? l : 1.0f;
    for (int j = threadIdx.x; j < pitch; j += ROW_THREADS)
        P_row[j] = (j < held ? row_smem[j] : expf(S_row[j] - shift)) / divisor;
    if (LSE != nullptr && threadIdx.x == 0) LSE[row] = l > 0.0f ? m + logf(l) : MINUS_INFINITY;
}

// O = PV
extern "C" __global__ void __launch_bounds__(SIDE * SIDE)
naive_output(const float* P,  // [B, H, Nq, pitch]
             const float* V,  // [B, Hk, Nk, d]
             float* O,        // [B, H, Nq, d]
             int H,
             int Hk,
             int Nq,
             int Nk,
             int d,
             int pitch) {
    __shared__ float Pij[TILE][CHUNK + 1];
    __shared__ float Vj[CHUNK][TILE];
    const int Tr = (Nq + TILE - 1) / TILE, Td = (d + TILE - 1) / TILE;
    const int t = blockIdx.x % Td, i = blockIdx.x / Td % Tr;
    const long long bh = blockIdx.x / Td / Tr;
    const long long bhk = bh / H * Hk + bh % H / (H / Hk);
    const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
    const float* P_tile = P + (bh * Nq + (long long)i * TILE) * pitch;
    const float* V_head = V + bhk * Nk * d + t * TILE;

    float sum[EACH][EACH] = {};
    for (int j0 = 0; j0 < pitch; j0 += CHUNK) {
        float part[EACH][EACH] = {};  // of this chunk: thousands of equal weights, added one by one, would lose digits
        load_chunk(Pij, P_tile, Nq - i * TILE, pitch, j0, pitch);
        for (int e = threadIdx.x; e < CHUNK * TILE; e += SIDE * SIDE) {
            int r = e / TILE, c = e % TILE;
            bool inside = j0 + r < Nk && t * TILE + c < d;
            Vj[r][c] = inside ? V_head[(long long)(j0 + r) * d + c] : 0.0f;
        }
        __syncthreads();  // write before read: Pij, Vj were filled by all threads
        for (int k = 0; k < CHUNK; ++k)
            for (int r = 0; r < EACH; ++r)
                for (int c = 0; c < EACH; ++c) part[r][c] += Pij[y + r * SIDE][k] * Vj[k][x + c * SIDE];
        for (int r = 0; r < EACH; ++r)
            for (int c = 0; c < EACH; ++c) sum[r][c] += part[r][c];
        __syncthreads();  // read before write: the next chunk overwrites Pij, Vj
    }
    for (int r = 0; r < EACH; ++r)
        for (int c = 0; c < EACH; ++c) {
            int row = i * TILE + y + r * SIDE, col = t * TILE + x + c * SIDE;
            if (row < Nq && col < d) O[(bh * Nq + row) * d + col] = sum[r][c];
        }
}
