// Barriers and warps. Each is known by its line: optimisers duplicate calls, so an address would not do.
#pragma once

#define FMHA_CALL_LINE unsigned line = __builtin_LINE()
static FMHA_INLINE void __syncthreads(FMHA_CALL_LINE) { fmha_barrier(line); }
static FMHA_INLINE int __syncthreads_or(int p, FMHA_CALL_LINE) { return fmha_barrier_vote(p != 0, 0, line); }
static FMHA_INLINE int __syncthreads_and(int p, FMHA_CALL_LINE) { return fmha_barrier_vote(p != 0, 1, line); }
static FMHA_INLINE int __syncthreads_count(int p, FMHA_CALL_LINE) { return fmha_barrier_vote(p != 0, 2, line); }
static FMHA_INLINE void __threadfence() {}
static FMHA_INLINE void __threadfence_block() {}

namespace fmha {
static FMHA_INLINE int lane() {
    const uint3 t = threadIdx, d = blockDim;
    return int((t.x + d.x * (t.y + d.y * t.z)) % 32);
}
template <class T>
static FMHA_INLINE T shuffle(unsigned mask, const T& value, int source, unsigned line) {
    static_assert(sizeof(T) <= 8, "a shuffle moves 8 bytes at most");
    uint64_t raw = 0;
    __builtin_memcpy(&raw, (const void*)&value, sizeof value);
    raw = fmha_exchange(mask, raw, source, line);
    T result;
    __builtin_memcpy((void*)&result, &raw, sizeof result);
    return result;
}
}  // namespace fmha
// A warp's parts of `width` lanes, a power of two, shuffle on their own. A lane that asks beyond its part gets its own value.
template <class T>
static FMHA_INLINE T __shfl_sync(unsigned mask, T value, int source, int width = 32, FMHA_CALL_LINE) {
    const int lane = fmha::lane();
    return fmha::shuffle(mask, value, (lane & -width) + (source & (width - 1)), line);
}
template <class T>
static FMHA_INLINE T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, FMHA_CALL_LINE) {
    const int lane = fmha::lane();
    return fmha::shuffle(mask, value, by > unsigned(lane & (width - 1)) ? lane : lane - int(by), line);
}
template <class T>
static FMHA_INLINE T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, FMHA_CALL_LINE) {
    const int lane = fmha::lane();
    return fmha::shuffle(mask, value, by >= unsigned(width - (lane & (width - 1))) ? lane : lane + int(by), line);
}
template <class T>
static FMHA_INLINE T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, FMHA_CALL_LINE) {
    const int lane = fmha::lane(), source = (lane ^ bits) & 31;
    return fmha::shuffle(mask, value, source > (lane | (width - 1)) ? lane : source, line);  // an earlier part is allowed
}
static FMHA_INLINE unsigned __ballot_sync(unsigned mask, int p, FMHA_CALL_LINE) { return fmha_ballot(mask, p != 0, line); }
static FMHA_INLINE int __any_sync(unsigned mask, int p, FMHA_CALL_LINE) { return fmha_ballot(mask, p != 0, line) != 0; }
static FMHA_INLINE int __all_sync(unsigned mask, int p, FMHA_CALL_LINE) { return fmha_ballot(mask, p == 0, line) == 0; }
static FMHA_INLINE void __syncwarp(unsigned mask = 0xffffffffu, FMHA_CALL_LINE) { (void)fmha_ballot(mask, 0, line); }
#define __activemask() 0xffffffffu
