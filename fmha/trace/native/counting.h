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
FMHA_UNARY(expf, ::expf(x))
FMHA_UNARY(exp2f, ::exp2f(x))
FMHA_UNARY(expm1f, ::expm1f(x))
FMHA_UNARY(logf, ::logf(x))
FMHA_UNARY(log2f, ::log2f(x))
FMHA_UNARY(log1pf, ::log1pf(x))
FMHA_UNARY(sqrtf, ::sqrtf(x))
FMHA_UNARY(rsqrtf, 1.0f / ::sqrtf(x))
FMHA_UNARY(sinf, ::sinf(x))
FMHA_UNARY(cosf, ::cosf(x))
FMHA_UNARY(tanhf, ::tanhf(x))
FMHA_UNARY(erff, ::erff(x))
static FMHA_INLINE Float powf(Float a, Float b FMHA_LINE) {
    FMHA_COUNT(FMHA_SPECIAL, 1);
    return ::powf(a.v, b.v);
}
static FMHA_INLINE Float fmaxf(Float a, Float b FMHA_LINE) {
    FMHA_COUNT(FMHA_MAX, 1);
    return ::fmaxf(a.v, b.v);
}
static FMHA_INLINE Float fminf(Float a, Float b FMHA_LINE) {
    FMHA_COUNT(FMHA_MAX, 1);
    return ::fminf(a.v, b.v);
}
static FMHA_INLINE Float fmaf(Float a, Float b, Float c FMHA_LINE) {
    FMHA_COUNT(FMHA_MUL, 1);
    FMHA_COUNT(FMHA_ADD, 1);
    return ::fmaf(a.v, b.v, c.v);
}
static FMHA_INLINE Float fabsf(Float a) { return ::fabsf(a.v); }
static FMHA_INLINE Float floorf(Float a) { return ::floorf(a.v); }
static FMHA_INLINE Float ceilf(Float a) { return ::ceilf(a.v); }
static FMHA_INLINE Float rintf(Float a) { return ::rintf(a.v); }
static FMHA_INLINE Float roundf(Float a) { return ::roundf(a.v); }
static FMHA_INLINE Float truncf(Float a) { return ::truncf(a.v); }
static FMHA_INLINE Float copysignf(Float a, Float b) { return ::copysignf(a.v, b.v); }
static FMHA_INLINE bool isinf(Float a) { return __builtin_isinf(a.v); }
static FMHA_INLINE bool isnan(Float a) { return __builtin_isnan(a.v); }
static FMHA_INLINE bool isfinite(Float a) { return __builtin_isfinite(a.v); }
}  // namespace fmha
using fmha::ceilf; using fmha::copysignf; using fmha::cosf; using fmha::erff; using fmha::exp2f; using fmha::expf;
using fmha::expm1f; using fmha::fabsf; using fmha::floorf; using fmha::fmaf; using fmha::fmaxf; using fmha::fminf;
using fmha::isfinite; using fmha::isinf; using fmha::isnan; using fmha::log1pf; using fmha::log2f; using fmha::logf;
using fmha::powf; using fmha::rintf; using fmha::roundf; using fmha::rsqrtf; using fmha::sinf; using fmha::sqrtf;
using fmha::tanhf; using fmha::truncf;
static FMHA_INLINE fmha::Float max(fmha::Float a, fmha::Float b FMHA_LINE) { return fmha::fmaxf(a, b, line); }
static FMHA_INLINE fmha::Float min(fmha::Float a, fmha::Float b FMHA_LINE) { return fmha::fminf(a, b, line); }
