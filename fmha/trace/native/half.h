// 16-bit floats: kept as their bits, decoded to compute, and rounded to nearest even by integer code, so that every
// compiler gives the same bits. Pairs of them are copied as one 4-byte access.
#pragma once
#pragma push_macro("float")
#undef float

namespace fmha {
// A double rounded to 1 sign bit, E bits of exponent and M of mantissa; what is too large becomes infinity.
template <int E, int M>
static inline uint16_t encoded(double value) {
    const uint64_t raw = bits<uint64_t>(value), magnitude = raw << 1 >> 1, infinity = 0x7ffull << 52;
    const uint16_t sign = uint16_t(raw >> 63 << 15);
    if (magnitude > infinity) return 0x7fff;  // the NaN that a GPU makes
    const int bias = (1 << (E - 1)) - 1, exponent = int(magnitude >> 52) - 1023;
    if (exponent > bias) return uint16_t(sign | ((1 << E) - 1) << M);
    const bool is_normal = exponent >= 1 - bias;
    const int lost = 52 - M + (is_normal ? 0 : 1 - bias - exponent);  // bits of the mantissa that find no room
    if (lost > 53) return sign;
    const uint64_t mantissa = magnitude << 12 >> 12 | 1ull << 52, rest = mantissa << (64 - lost), middle = 1ull << 63;
    uint64_t kept = mantissa >> lost;
    kept += rest > middle || (rest == middle && (kept & 1));
    // A carry runs on into the exponent, and from the largest number to infinity.
    return uint16_t(sign | ((is_normal ? uint64_t(exponent + bias - 1) << M : 0) + kept));
}
template <int E, int M>
static inline float decoded(uint16_t raw) {
    const uint32_t sign = uint32_t(raw >> 15) << 31, magnitude = raw & 0x7fffu;
    const uint32_t exponent = magnitude >> M, mantissa = magnitude << (23 - M) & 0x7fffffu;
    const int bias = (1 << (E - 1)) - 1;
    if (exponent == (1u << E) - 1) return bits<float>(sign | 0x7f800000u | mantissa);
    if (exponent || E == 8) return bits<float>(sign | ((exponent + (127 - bias)) << 23) | mantissa);
    const float unit = bits<float>(uint32_t(127 - (bias + M - 1)) << 23);  // of subnormal numbers
    return bits<float>(sign | bits<uint32_t>(float(magnitude) * unit));
}
// a b + c so that rounding it once more, to far fewer bits, gives what rounding once would: a sum that is not exact gets
// an odd last bit (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
static inline double fused(double a, double b, double c) {
    const double product = a * b, sum = product + c, part = sum - product;  // the product of two short ones is exact
    const double lost = (product - (sum - part)) + (c - part);
    const uint64_t raw = bits<uint64_t>(sum);
    if (!(lost > 0 || lost < 0) || raw & 1) return sum;
    return bits<double>((lost > 0) == (sum > 0) ? raw + 1 : raw - 1);
}

#define FMHA_OPERATOR(T, op, function)                                                              \
    friend FMHA_INLINE T operator op(T a, T b) { return function(a, b); }                           \
    friend FMHA_INLINE T& operator op##=(T & a, T b) { return a = function(a, b); }
#define FMHA_ARITHMETIC(name, op, kind)                                    \
    friend FMHA_INLINE Half name(Half a, Half b) {               \
        FMHA_COUNT(kind, 1);                                               \
        return of((double)a.value() op (double)b.value());                 \
    }                                                                      \
    FMHA_OPERATOR(Half, op, name)
#define FMHA_PREDICATE(name, op)                                                             \
    friend FMHA_INLINE bool name(Half a, Half b) { return a.value() op b.value(); }          \
    friend FMHA_INLINE bool operator op(Half a, Half b) { return a.value() op b.value(); }
#define FMHA_FUNCTION(name, result)                        \
    friend FMHA_INLINE Half name(Half a) {            \
        FMHA_COUNT(FMHA_SPECIAL, 1);                       \
        const double x = a.value();                        \
        return of(result);                                 \
    }

template <int E, int M>
struct Half {
    uint16_t raw;
    Half() = default;
    FMHA_INLINE Half(float x) : raw(encoded<E, M>(x)) {}
    FMHA_INLINE Half(double x) : raw(encoded<E, M>(x)) {}
    FMHA_INLINE Half(int x) : raw(encoded<E, M>(x)) {}
    FMHA_INLINE Half(unsigned x) : raw(encoded<E, M>(x)) {}
    FMHA_INLINE Half(long long x) : raw(encoded<E, M>(double(x))) {}
    FMHA_INLINE Half(unsigned long long x) : raw(encoded<E, M>(double(x))) {}
#ifdef FMHA_COUNT_FLOPS
    FMHA_INLINE Half(Float x) : raw(encoded<E, M>(x.v)) {}
    FMHA_INLINE explicit operator double() const { return value(); }
    FMHA_INLINE explicit operator int() const { return int(value()); }
    FMHA_INLINE explicit operator bool() const { return value() != 0; }
#endif
    FMHA_INLINE operator fmha_float() const { return value(); }
    FMHA_INLINE float value() const { return decoded<E, M>(raw); }
    static FMHA_INLINE Half of_bits(uint16_t raw) {
        Half made;
        made.raw = raw;
        return made;
    }
    static FMHA_INLINE Half of(double x) { return of_bits(encoded<E, M>(x)); }

    FMHA_ARITHMETIC(__hadd, +, FMHA_ADD)
    FMHA_ARITHMETIC(__hsub, -, FMHA_ADD)
    FMHA_ARITHMETIC(__hmul, *, FMHA_MUL)
    FMHA_ARITHMETIC(__hdiv, /, FMHA_DIV)
    friend FMHA_INLINE Half __hfma(Half a, Half b, Half c) {
        FMHA_COUNT(FMHA_MUL, 1);
        FMHA_COUNT(FMHA_ADD, 1);
        return of(fused(a.value(), b.value(), c.value()));
    }
    friend FMHA_INLINE Half __hneg(Half a) { return of_bits(a.raw ^ 0x8000); }
    friend FMHA_INLINE Half __habs(Half a) { return of_bits(a.raw & 0x7fff); }
    friend FMHA_INLINE Half operator-(Half a) { return of_bits(a.raw ^ 0x8000); }
    friend FMHA_INLINE Half operator+(Half a) { return a; }

    FMHA_PREDICATE(__heq, ==)
    FMHA_PREDICATE(__hne, !=)
    FMHA_PREDICATE(__hlt, <)
    FMHA_PREDICATE(__hle, <=)
    FMHA_PREDICATE(__hgt, >)
    FMHA_PREDICATE(__hge, >=)
    friend FMHA_INLINE bool __hisnan(Half a) { return (a.raw & 0x7fff) > ((1 << E) - 1) << M; }
    friend FMHA_INLINE int __hisinf(Half a) { return (a.raw & 0x7fff) != ((1 << E) - 1) << M ? 0 : a.raw >> 15 ? -1 : 1; }
    // A number wins over a NaN, and +0 over -0.
    friend FMHA_INLINE Half __hmax(Half a, Half b) {
        FMHA_COUNT(FMHA_MAX, 1);
        if (__hisnan(a) || __hisnan(b)) return !__hisnan(a) ? a : !__hisnan(b) ? b : of_bits(0x7fff);
        return a.value() == b.value() ? of_bits(a.raw & b.raw) : a.value() > b.value() ? a : b;
    }
    friend FMHA_INLINE Half __hmin(Half a, Half b) {
        FMHA_COUNT(FMHA_MAX, 1);
        if (__hisnan(a) || __hisnan(b)) return !__hisnan(a) ? a : !__hisnan(b) ? b : of_bits(0x7fff);
        return a.value() == b.value() ? of_bits(a.raw | b.raw) : a.value() < b.value() ? a : b;
    }

    FMHA_FUNCTION(hexp, ::exp(x))
    FMHA_FUNCTION(hexp2, ::exp2(x))
    FMHA_FUNCTION(hlog, ::log(x))
    FMHA_FUNCTION(hlog2, ::log2(x))
    FMHA_FUNCTION(hsqrt, ::sqrt(x))
    FMHA_FUNCTION(hrsqrt, 1 / ::sqrt(x))
    FMHA_FUNCTION(hrcp, 1 / x)
};

#define FMHA_BOTH(name, one)                                                                    \
    friend FMHA_INLINE Pair name(Pair a, Pair b) {                                    \
        return Pair(one(a.x, b.x), one(a.y, b.y));                \
    }
template <class H>
struct alignas(4) Pair {
    H x, y;
    Pair() = default;
    FMHA_INLINE Pair(H x_, H y_) : x(x_), y(y_) {}
    FMHA_COPIES(Pair)
    FMHA_BOTH(__hadd2, __hadd)
    FMHA_BOTH(__hsub2, __hsub)
    FMHA_BOTH(__hmul2, __hmul)
    FMHA_BOTH(__h2div, __hdiv)
    FMHA_BOTH(__hmax2, __hmax)
    FMHA_BOTH(__hmin2, __hmin)
    FMHA_OPERATOR(Pair, +, __hadd2)
    FMHA_OPERATOR(Pair, -, __hsub2)
    FMHA_OPERATOR(Pair, *, __hmul2)
    FMHA_OPERATOR(Pair, /, __h2div)
    friend FMHA_INLINE Pair __hfma2(Pair a, Pair b, Pair c) {
        return Pair(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));
    }
    friend FMHA_INLINE Pair __hneg2(Pair a) { return Pair(-a.x, -a.y); }
    friend FMHA_INLINE Pair __habs2(Pair a) { return Pair(__habs(a.x), __habs(a.y)); }
    friend FMHA_INLINE Pair operator-(Pair a) { return Pair(-a.x, -a.y); }
    friend FMHA_INLINE Pair h2exp(Pair a) { return Pair(hexp(a.x), hexp(a.y)); }
    friend FMHA_INLINE Pair h2exp2(Pair a) { return Pair(hexp2(a.x), hexp2(a.y)); }
    friend FMHA_INLINE Pair h2rcp(Pair a) { return Pair(hrcp(a.x), hrcp(a.y)); }
    // 1 or 0 in each half, and whether both hold.
#define FMHA_PREDICATE2(name, op)                                                                                    \
    friend FMHA_INLINE Pair __h##name##2(Pair a, Pair b) { return Pair(H(int(a.x op b.x)), H(int(a.y op b.y))); }      \
    friend FMHA_INLINE bool __hb##name##2(Pair a, Pair b) { return a.x op b.x && a.y op b.y; }                         \
    friend FMHA_INLINE bool operator op(Pair a, Pair b) { return a.x op b.x && a.y op b.y; }
    FMHA_PREDICATE2(eq, ==)
    FMHA_PREDICATE2(ne, !=)
    FMHA_PREDICATE2(lt, <)
    FMHA_PREDICATE2(le, <=)
    FMHA_PREDICATE2(gt, >)
    FMHA_PREDICATE2(ge, >=)
};
}  // namespace fmha
#pragma pop_macro("float")
