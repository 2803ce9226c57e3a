// <math.h> of C alone: libstdc++ would bring all of <cmath>, which takes longer to read than a kernel.
#pragma once
#ifdef _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include_next <math.h>
#else
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include_next <math.h>
#undef _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#endif
#ifndef _LIBCPP_VERSION    // libc++ has but the one
#define FMHA_PLAIN_MATH 1  // what C++ adds is missing: arithmetic.h
#endif
