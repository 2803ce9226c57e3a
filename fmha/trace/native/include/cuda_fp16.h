// __half and __half2: 5 bits of exponent, 10 of mantissa.
#pragma once
#include "../half.h"
typedef fmha::Half<5, 10> __half;
typedef fmha::Pair<__half> __half2;
typedef __half half;
typedef __half2 half2;

static FMHA_INLINE __half __float2half(fmha_float x) { return __half(x); }
static FMHA_INLINE __half __float2half_rn(fmha_float x) { return __half(x); }
static FMHA_INLINE __half __double2half(double x) { return __half(x); }
static FMHA_INLINE __half __int2half_rn(int x) { return __half(x); }
static FMHA_INLINE __half __uint2half_rn(unsigned x) { return __half(x); }
static FMHA_INLINE fmha_float __half2float(__half h) { return h; }
static FMHA_INLINE int __half2int_rz(__half h) { return int(h.value()); }
static FMHA_INLINE int __half2int_rn(__half h) { return int(::rintf(h.value())); }
static FMHA_INLINE unsigned short __half_as_ushort(__half h) { return h.raw; }
static FMHA_INLINE short __half_as_short(__half h) { return short(h.raw); }
static FMHA_INLINE __half __ushort_as_half(unsigned short raw) { return __half::of_bits(raw); }
static FMHA_INLINE __half __short_as_half(short raw) { return __half::of_bits((unsigned short)raw); }

static FMHA_INLINE __half2 make_half2(__half x, __half y) { return __half2(x, y); }
static FMHA_INLINE __half2 __halves2half2(__half x, __half y) { return __half2(x, y); }
static FMHA_INLINE __half2 __half2half2(__half x) { return __half2(x, x); }
static FMHA_INLINE __half2 __float2half2_rn(fmha_float x) { return __half2(x, x); }
static FMHA_INLINE __half2 __floats2half2_rn(fmha_float x, fmha_float y) { return __half2(x, y); }
static FMHA_INLINE __half2 __float22half2_rn(float2 v) { return __half2(v.x, v.y); }
static FMHA_INLINE float2 __half22float2(__half2 h) { return float2(h.x, h.y); }
static FMHA_INLINE __half __low2half(__half2 h) { return h.x; }
static FMHA_INLINE __half __high2half(__half2 h) { return h.y; }
static FMHA_INLINE fmha_float __low2float(__half2 h) { return h.x; }
static FMHA_INLINE fmha_float __high2float(__half2 h) { return h.y; }
static FMHA_INLINE __half2 __low2half2(__half2 h) { return __half2(h.x, h.x); }
static FMHA_INLINE __half2 __high2half2(__half2 h) { return __half2(h.y, h.y); }
static FMHA_INLINE __half2 __lowhigh2highlow(__half2 h) { return __half2(h.y, h.x); }
static FMHA_INLINE __half2 __lows2half2(__half2 a, __half2 b) { return __half2(a.x, b.x); }
static FMHA_INLINE __half2 __highs2half2(__half2 a, __half2 b) { return __half2(a.y, b.y); }
