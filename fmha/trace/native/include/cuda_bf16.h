// __nv_bfloat16 and __nv_bfloat162: 8 bits of exponent, as a float has, and 7 of mantissa.
#pragma once
#include "../half.h"
typedef fmha::Half<8, 7> __nv_bfloat16;
typedef fmha::Pair<__nv_bfloat16> __nv_bfloat162;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

static FMHA_INLINE __nv_bfloat16 __float2bfloat16(fmha_float x) { return __nv_bfloat16(x); }
static FMHA_INLINE __nv_bfloat16 __float2bfloat16_rn(fmha_float x) { return __nv_bfloat16(x); }
static FMHA_INLINE __nv_bfloat16 __double2bfloat16(double x) { return __nv_bfloat16(x); }
static FMHA_INLINE __nv_bfloat16 __int2bfloat16_rn(int x) { return __nv_bfloat16(x); }
static FMHA_INLINE __nv_bfloat16 __uint2bfloat16_rn(unsigned x) { return __nv_bfloat16(x); }
static FMHA_INLINE fmha_float __bfloat162float(__nv_bfloat16 h) { return h; }
static FMHA_INLINE int __bfloat162int_rz(__nv_bfloat16 h) { return int(h.value()); }
static FMHA_INLINE int __bfloat162int_rn(__nv_bfloat16 h) { return int(::rintf(h.value())); }
static FMHA_INLINE unsigned short __bfloat16_as_ushort(__nv_bfloat16 h) { return h.raw; }
static FMHA_INLINE short __bfloat16_as_short(__nv_bfloat16 h) { return short(h.raw); }
static FMHA_INLINE __nv_bfloat16 __ushort_as_bfloat16(unsigned short raw) { return __nv_bfloat16::of_bits(raw); }
static FMHA_INLINE __nv_bfloat16 __short_as_bfloat16(short raw) { return __nv_bfloat16::of_bits((unsigned short)raw); }

static FMHA_INLINE __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return __nv_bfloat162(x, y); }
static FMHA_INLINE __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return __nv_bfloat162(x, y); }
static FMHA_INLINE __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return __nv_bfloat162(x, x); }
static FMHA_INLINE __nv_bfloat162 __float2bfloat162_rn(fmha_float x) { return __nv_bfloat162(x, x); }
static FMHA_INLINE __nv_bfloat162 __floats2bfloat162_rn(fmha_float x, fmha_float y) { return __nv_bfloat162(x, y); }
static FMHA_INLINE __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __nv_bfloat162(v.x, v.y); }
static FMHA_INLINE float2 __bfloat1622float2(__nv_bfloat162 h) { return float2(h.x, h.y); }
static FMHA_INLINE __nv_bfloat16 __low2bfloat16(__nv_bfloat162 h) { return h.x; }
static FMHA_INLINE __nv_bfloat16 __high2bfloat16(__nv_bfloat162 h) { return h.y; }
static FMHA_INLINE fmha_float __low2float(__nv_bfloat162 h) { return h.x; }
static FMHA_INLINE fmha_float __high2float(__nv_bfloat162 h) { return h.y; }
static FMHA_INLINE __nv_bfloat162 __low2bfloat162(__nv_bfloat162 h) { return __nv_bfloat162(h.x, h.x); }
static FMHA_INLINE __nv_bfloat162 __high2bfloat162(__nv_bfloat162 h) { return __nv_bfloat162(h.y, h.y); }
static FMHA_INLINE __nv_bfloat162 __lowhigh2highlow(__nv_bfloat162 h) { return __nv_bfloat162(h.y, h.x); }
