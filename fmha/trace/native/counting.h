// A float that counts: every addition, multiplication, division, exp / log / sqrt, max and min, by line of the .cu file.
#pragma once

enum { FMHA_ADD, FMHA_MUL, FMHA_DIV, FMHA_SPECIAL, FMHA_MAX, FMHA_FLOP_KINDS };
extern "C" uint64_t fmha_flops[][FMHA_FLOP_KINDS];  // line 0: of a header

namespace fmha {
constexpr int line_of(int line, const char* file) {  // code of a header counts as line 0
    while (*file) ++file;
    return file[-1] == 'u' ? line : 0;
}
}  // namespace fmha
// A last argument that is the line of the call.
#define FMHA_LINE , int line = fmha::line_of(__builtin_LINE(), __builtin_FILE())
#define FMHA_COUNT(kind, many) ((void)(fmha_flops[line][kind] += (many)))

namespace fmha {
struct Float {
    float v;
    Float() = default;
    constexpr Float(float x) : v(x) {}
    constexpr Float(double x) : v(float(x)) {}
    constexpr Float(int x) : v(float(x)) {}
    constexpr Float(unsigned x) : v(float(x)) {}
    constexpr Float(long x) : v(float(x)) {}
    constexpr Float(unsigned long x) : v(float(x)) {}
    constexpr Float(long long x) : v(float(x)) {}
    constexpr Float(unsigned long long x) : v(float(x)) {}
    explicit operator float() const { return v; }
    explicit operator double() const { return v; }
    explicit operator int() const { return int(v); }
    explicit operator unsigned() const { return unsigned(v); }
    explicit operator long long() const { return (long long)v; }
    explicit operator bool() const { return v != 0; }
};
// An operand that knows the line it was written on: operators have no default arguments, but constructors have.
struct Operand {
    float v;
    int line;
#define FMHA_FROM(T) FMHA_INLINE Operand(T x FMHA_LINE) : v((float)x), line(line) {}
    FMHA_FROM(const Float&) FMHA_FROM(float) FMHA_FROM(double) FMHA_FROM(int) FMHA_FROM(unsigned) FMHA_FROM(long)
    FMHA_FROM(unsigned long) FMHA_FROM(long long) FMHA_FROM(unsigned long long)
};
#define FMHA_BINARY(op, kind)                                          \
    static FMHA_INLINE Float operator op(const Float& a, Operand b) {  \
        ++fmha_flops[b.line][kind];                                    \
        return a.v op b.v;                                             \
    }                                                                  \
    static FMHA_INLINE Float& operator op##=(Float & a, Operand b) {   \
        ++fmha_flops[b.line][kind];                                    \
        a.v = a.v op b.v;                                              \
        return a;                                                      \
    }
FMHA_BINARY(+, FMHA_ADD)
FMHA_BINARY(-, FMHA_ADD)
FMHA_BINARY(*, FMHA_MUL)
FMHA_BINARY(/, FMHA_DIV)
#define FMHA_COMPARE(op) \
    static FMHA_INLINE bool operator op(Float a, Float b) { return a.v op b.v; }
FMHA_COMPARE(<) FMHA_COMPARE(>) FMHA_COMPARE(<=) FMHA_COMPARE(>=) FMHA_COMPARE(==) FMHA_COMPARE(!=)
static FMHA_INLINE Float operator-(Float a) { return -a.v; }
static FMHA_INLINE Float operator+(Float a) { return a; }
#define FMHA_UNARY(name, result)                          \
    static FMHA_INLINE Float name(Float a FMHA_LINE) {    \
        FMHA_COUNT(FMHA_SPECIAL, 1);                      \
        const float x = a.v;                              \
        return Float(result);                             \
    }
// Each under its name in C, which ends in f, and under that in C++.
#define FMHA_SPECIALS(name)              \
    FMHA_UNARY(name##f, ::name##f(x))    \
    FMHA_UNARY(name, ::name##f(x))
#define FMHA_EXACT(name)                                                    \
    static FMHA_INLINE Float name##f(Float a) { return ::name##f(a.v); }    \
    static FMHA_INLINE Float name(Float a) { return ::name##f(a.v); }
#define FMHA_OF_TWO(name, other, kind)                                  \
    static FMHA_INLINE Float name(Float a, Float b FMHA_LINE) {         \
        FMHA_COUNT(kind, 1);                                            \
        return ::other(a.v, b.v);                                       \
    }
#define FMHA_OF_THREE(name)                                             \
    static FMHA_INLINE Float name(Float a, Float b, Float c FMHA_LINE) { \
        FMHA_COUNT(FMHA_MUL, 1);                                        \
        FMHA_COUNT(FMHA_ADD, 1);                                        \
        return ::fmaf(a.v, b.v, c.v);                                   \
    }
FMHA_SPECIALS(exp) FMHA_SPECIALS(exp2) FMHA_SPECIALS(expm1) FMHA_SPECIALS(log) FMHA_SPECIALS(log2)
FMHA_SPECIALS(log10) FMHA_SPECIALS(log1p) FMHA_SPECIALS(sqrt) FMHA_SPECIALS(cbrt) FMHA_SPECIALS(sin)
FMHA_SPECIALS(cos) FMHA_SPECIALS(tan) FMHA_SPECIALS(tanh) FMHA_SPECIALS(erf)
FMHA_UNARY(rsqrtf, 1.0f / ::sqrtf(x))
FMHA_UNARY(rsqrt, 1.0f / ::sqrtf(x))
FMHA_OF_TWO(powf, powf, FMHA_SPECIAL) FMHA_OF_TWO(pow, powf, FMHA_SPECIAL)
FMHA_OF_TWO(fmaxf, fmaxf, FMHA_MAX) FMHA_OF_TWO(fmax, fmaxf, FMHA_MAX)
FMHA_OF_TWO(fminf, fminf, FMHA_MAX) FMHA_OF_TWO(fmin, fminf, FMHA_MAX)
FMHA_OF_THREE(fmaf) FMHA_OF_THREE(fma)
FMHA_EXACT(fabs) FMHA_EXACT(floor) FMHA_EXACT(ceil) FMHA_EXACT(round) FMHA_EXACT(rint) FMHA_EXACT(trunc)
static FMHA_INLINE Float abs(Float a) { return ::fabsf(a.v); }
static FMHA_INLINE Float copysignf(Float a, Float b) { return ::copysignf(a.v, b.v); }
static FMHA_INLINE bool isinf(Float a) { return __builtin_isinf(a.v); }
static FMHA_INLINE bool isnan(Float a) { return __builtin_isnan(a.v); }
static FMHA_INLINE bool isfinite(Float a) { return __builtin_isfinite(a.v); }
static FMHA_INLINE bool signbit(Float a) { return __builtin_signbit(a.v); }
}  // namespace fmha
using fmha::rsqrt;  // C has none for literals, which bring no namespace
using fmha::rsqrtf;
static FMHA_INLINE fmha::Float max(fmha::Float a, fmha::Float b FMHA_LINE) { return fmha::fmaxf(a, b, line); }
static FMHA_INLINE fmha::Float min(fmha::Float a, fmha::Float b FMHA_LINE) { return fmha::fminf(a, b, line); }
