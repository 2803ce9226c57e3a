// What all kernels share: which keys a row may look at, and a number that loses every comparison.
#pragma once

#ifndef BR
#define BR 32  // rows of a Q tile
#endif
#ifndef BC
#define BC 32  // rows of a K/V tile
#endif

#define MINUS_INFINITY __int_as_float(0xff800000)

// The real keys of a batch entry, first <= j < end: whatever lies outside is padding.
struct Keys {
    int first, end;
};

__device__ inline Keys real_keys(const int* key_range,  // [B, 2], or null: all keys are real
                                 int b, int Nk) {
    if (key_range == nullptr) return {0, Nk};
    return {key_range[2 * b], key_range[2 * b + 1]};
}

// One past the last key that row i sees. Without a causal mask causal_offset is Nk.
__device__ inline int seen_end(Keys keys, int i, int causal_offset) {
    long long end = (long long)i + causal_offset + 1;
    return end < keys.first ? keys.first : end > keys.end ? keys.end : (int)end;
}
