// A float that counts: every addition, multiplication, division, exp / log / sqrt, max and min, by line of the kernel.
#pragma once

enum { FMHA_ADD, FMHA_MUL, FMHA_DIV, FMHA_SPECIAL, FMHA_MAX, FMHA_FLOP_KINDS };
extern "C" uint64_t fmha_flops[][FMHA_FLOP_KINDS];  // by line; line 0: of a header

// One instruction that counts on line 0. The builder, which knows what is inlined where, puts the line in (assembly.py).
// The operand keeps it between the barriers that it is written between.
#define FMHA_TEXT_(x) #x
#define FMHA_TEXT(x) FMHA_TEXT_(x)
#define FMHA_FLOPS FMHA_TEXT(__USER_LABEL_PREFIX__) "fmha_flops"
#if defined(__x86_64__)
#define FMHA_ADD_TO_COUNT "addq $%c2, " FMHA_FLOPS "+%c1(%%rip)"
#define FMHA_CHANGES "cc"
#elif defined(__APPLE__)
#define FMHA_ADD_TO_COUNT                                                                     \
    "adrp x16, " FMHA_FLOPS "@PAGE+%c1\n\tldr x17, [x16, " FMHA_FLOPS "@PAGEOFF+%c1]\n\t"    \
    "add x17, x17, #%c2\n\tstr x17, [x16, " FMHA_FLOPS "@PAGEOFF+%c1]"
#define FMHA_CHANGES "x16", "x17"
#else
#define FMHA_ADD_TO_COUNT                                                                     \
    "adrp x16, " FMHA_FLOPS "+%c1\n\tldr x17, [x16, :lo12:" FMHA_FLOPS "+%c1]\n\t"           \
    "add x17, x17, #%c2\n\tstr x17, [x16, :lo12:" FMHA_FLOPS "+%c1]"
#define FMHA_CHANGES "x16", "x17"
#endif
#define FMHA_COUNT(kind, many) \
    __asm__ volatile(FMHA_ADD_TO_COUNT : "+m"(fmha_flops[0][0]) : "i"(8 * (kind)), "i"(many) : FMHA_CHANGES)

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
#define FMHA_BINARY(op, kind)                                          \
    static FMHA_INLINE Float operator op(Float a, Float b) {           \
        FMHA_COUNT(kind, 1);                                           \
        return a.v op b.v;                                             \
    }                                                                  \
    static FMHA_INLINE Float& operator op##=(Float & a, Float b) {     \
        FMHA_COUNT(kind, 1);                                           \
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
    static FMHA_INLINE Float name(Float a) {    \
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
    static FMHA_INLINE Float name(Float a, Float b) {         \
        FMHA_COUNT(kind, 1);                                            \
        return ::other(a.v, b.v);                                       \
    }
#define FMHA_OF_THREE(name)                                             \
    static FMHA_INLINE Float name(Float a, Float b, Float c) { \
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
static FMHA_INLINE fmha::Float max(fmha::Float a, fmha::Float b) { return fmha::fmaxf(a, b); }
static FMHA_INLINE fmha::Float min(fmha::Float a, fmha::Float b) { return fmha::fminf(a, b); }
