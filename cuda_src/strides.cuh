// How tensors lie in memory. Dense [B, H, N, d] unless strides say otherwise; a row of d numbers is always in one piece.
#pragma once

// Numbers from one batch entry, head and token to the next.
struct Strides {
    long long b, h, n;
};

__device__ inline Strides strides_of(const long long* strides,  // [4, 3]: of Q, K, V, O; or null: all dense
                                     int tensor, int H, int N, int d) {
    if (strides == nullptr) return {(long long)H * N * d, (long long)N * d, d};
    return {strides[3 * tensor], strides[3 * tensor + 1], strides[3 * tensor + 2]};
}
