// What cuda_src/mma.cuh's functions do, for the CPU: fragments lie in lanes and registers as the PTX manual lays them out.
#pragma once

#pragma push_macro("float")
#undef float  // what registers hold is not counted as arithmetic here; a product counts itself

namespace fmha {
static inline __attribute__((no_sanitize("thread"))) float widen(uint16_t bits) {
#if HALF
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, mantissa = bits & 1023;
    uint32_t u;
    if (exponent == 31) u = sign | 0x7f800000u | mantissa << 13;
    else if (exponent) u = sign | (exponent + 112) << 23 | mantissa << 13;
    else {
        float f = (float)mantissa * 5.9604644775390625e-8f;  // 2^-24
        __builtin_memcpy(&u, &f, 4);
        u |= sign;
    }
#else
    const uint32_t u = (uint32_t)bits << 16;
#endif
    float f;
    __builtin_memcpy(&f, &u, 4);
    return f;
}
static inline __attribute__((no_sanitize("thread"))) uint16_t narrow(float f) {
    uint32_t u;
    __builtin_memcpy(&u, &f, 4);
#if HALF
    const uint32_t sign = u >> 16 & 0x8000, rest = u & 0x7fffffff;
    if (rest > 0x7f800000u) return (uint16_t)(sign | 0x7e00);
    if (rest >= 0x477ff000u) return (uint16_t)(sign | 0x7c00);
    if (rest < 0x38800000u) {  // subnormal: add 0.5, whose last place is 2^-24
        float g;
        __builtin_memcpy(&g, &rest, 4);
        g += 0.5f;
        uint32_t v;
        __builtin_memcpy(&v, &g, 4);
        return (uint16_t)(sign | (v - 0x3f000000u));
    }
    const uint32_t v = rest - 0x38000000u;
    return (uint16_t)(sign | (v + 0xfff + (v >> 13 & 1)) >> 13);
#else
    if ((u & 0x7fffffff) > 0x7f800000u) return (uint16_t)(u >> 16 | 64);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
#endif
}
struct Mma {
    float* sum;
    const unsigned* a;
    unsigned b0, b1;
};
__attribute__((no_sanitize("thread"))) static void mma_together(void** lanes) {
    float A[16][16], B[16][8];
    for (int l = 0; l < 32; ++l) {
        const Mma* m = (const Mma*)lanes[l];
        const int g = l / 4, t = 2 * (l % 4);
        for (int i = 0; i < 4; ++i)
            for (int h = 0; h < 2; ++h) A[g + 8 * (i & 1)][t + h + 8 * (i >> 1)] = widen((uint16_t)(m->a[i] >> 16 * h));
        for (int h = 0; h < 2; ++h) {
            B[t + h][g] = widen((uint16_t)(m->b0 >> 16 * h));
            B[t + h + 8][g] = widen((uint16_t)(m->b1 >> 16 * h));
        }
    }
    for (int l = 0; l < 32; ++l) {
        const Mma* m = (const Mma*)lanes[l];
        const int g = l / 4, t = 2 * (l % 4);
        for (int i = 0; i < 4; ++i) {
            float s = m->sum[i];
            for (int k = 0; k < 16; ++k) s += A[g + 8 * (i >> 1)][k] * B[k][t + (i & 1)];
            m->sum[i] = s;
        }
    }
}
// tf32 keeps the upper 19 of 32 bits.
static inline __attribute__((no_sanitize("thread"))) float cut(unsigned u) {
    float f;
    u &= 0xffffe000u;
    __builtin_memcpy(&f, &u, 4);
    return f;
}
__attribute__((no_sanitize("thread"))) static void mma_tf32_together(void** lanes) {
    float A[16][8], B[8][8];
    for (int l = 0; l < 32; ++l) {
        const Mma* m = (const Mma*)lanes[l];
        const int g = l / 4, t = l % 4;
        for (int i = 0; i < 4; ++i) A[g + 8 * (i & 1)][t + 4 * (i >> 1)] = cut(m->a[i]);
        B[t][g] = cut(m->b0);
        B[t + 4][g] = cut(m->b1);
    }
    for (int l = 0; l < 32; ++l) {
        const Mma* m = (const Mma*)lanes[l];
        const int g = l / 4, t = 2 * (l % 4);
        for (int i = 0; i < 4; ++i) {
            float s = m->sum[i];
            for (int k = 0; k < 8; ++k) s += A[g + 8 * (i >> 1)][k] * B[k][t + (i & 1)];
            m->sum[i] = s;
        }
    }
}
struct Matrices {
    unsigned* to;
    alignas(16) uint16_t row[8];  // it is copied in one piece
    bool is_transposed;
};
__attribute__((no_sanitize("thread"))) static void spread_matrices(void** lanes) {
    for (int l = 0; l < 32; ++l) {
        Matrices* m = (Matrices*)lanes[l];
        for (int i = 0; i < 4; ++i) {
            unsigned both = 0;
            for (int h = 0; h < 2; ++h) {
                const int row = m->is_transposed ? 2 * (l % 4) + h : l / 4, col = m->is_transposed ? l / 4 : 2 * (l % 4) + h;
                both |= (unsigned)((Matrices*)lanes[8 * i + row])->row[col] << 16 * h;
            }
            m->to[i] = both;
        }
    }
}
static FMHA_INLINE void matrices(unsigned (&to)[4], const uint4* row, bool is_transposed, unsigned line) {
    const uint4 mine = *row;  // one access of 16 bytes a lane
    Matrices m;
    m.to = to;
    m.is_transposed = is_transposed;
    __builtin_memcpy((void*)m.row, (const void*)&mine, 16);
    fmha_warp_do(&spread_matrices, &m, line);
}
}  // namespace fmha

struct Tile {
    uint4* at;
};
static FMHA_INLINE Tile tile_at(uint4* smem) { return {smem}; }
static FMHA_INLINE Tile piece_of(Tile tile, int piece) { return {tile.at + piece}; }
static FMHA_INLINE unsigned pack(fmha_float low, fmha_float high) {
    return (unsigned)fmha::narrow((float)low) | (unsigned)fmha::narrow((float)high) << 16;
}
static FMHA_INLINE fmha_float exp2_fast(fmha_float x) {
    FMHA_COUNT(FMHA_SPECIAL, 1);
    return ::exp2f((float)x);
}
// A lane's share of the 16 x 8 x 16 products: 64 multiplications and as many additions.
static FMHA_INLINE void mma(fmha_float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    FMHA_COUNT(FMHA_MUL, 64);
    FMHA_COUNT(FMHA_ADD, 64);
    fmha::Mma m = {(float*)sum, a, b0, b1};
    fmha_warp_do(&fmha::mma_together, &m, __LINE__);
}
static FMHA_INLINE void mma_tf32(fmha_float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    FMHA_COUNT(FMHA_MUL, 32);
    FMHA_COUNT(FMHA_ADD, 32);
    fmha::Mma m = {(float*)sum, a, b0, b1};
    fmha_warp_do(&fmha::mma_tf32_together, &m, __LINE__);
}
static FMHA_INLINE void split(fmha_float x, unsigned& high, unsigned& low) {
    FMHA_COUNT(FMHA_ADD, 1);
    high = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
    low = __float_as_uint((float)x - (float)__uint_as_float(high)) + 0x1000u;
}
static FMHA_INLINE void load_matrices(unsigned (&to)[4], Tile tile, int piece) { fmha::matrices(to, tile.at + piece, false, __LINE__); }
static FMHA_INLINE void load_matrices_transposed(unsigned (&to)[4], Tile tile, int piece) { fmha::matrices(to, tile.at + piece, true, __LINE__); }
// The place is written now, with what nobody may read; the numbers arrive when the thread waits for them.
static FMHA_INLINE void copy_async(Tile tile, int piece, const uint4* from, bool inside) {
    uint4 value = make_uint4(0, 0, 0, 0);
    if (inside) value = *from;
    tile.at[piece] = make_uint4(~0u, ~0u, ~0u, ~0u);
    fmha_copy_later((void*)(tile.at + piece), (const void*)&value);
}
static FMHA_INLINE void copies_issued() { fmha_copies_issued(); }
template <int LEFT>
static FMHA_INLINE void copies_done() {
    fmha_copies_done(LEFT);
}
#pragma pop_macro("float")
