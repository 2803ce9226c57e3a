// Vector types. A copy of one is a single access of 2 to 16 bytes, as on the GPU; a compiler would make several of it.
#pragma once

namespace fmha {
template <size_t nbytes>
inline void copy(void* to, const void* from);
// The word goes through a register that the compiler cannot look into, so it cannot be taken apart. 16 bytes are asked
// to be aligned to 8 only: a processor would stop at others, and it is the runtime that has to complain.
#define FMHA_COPY(nbytes, T, alignment, in_register)                                \
    template <>                                                                     \
    FMHA_INLINE void copy<nbytes>(void* to, const void* from) {                     \
        typedef T Word __attribute__((may_alias, aligned(alignment)));              \
        T word = *(const Word*)from;                                                \
        __asm__("" : in_register(word));                                            \
        *(Word*)to = word;                                                          \
    }
typedef unsigned FourWords __attribute__((vector_size(16)));
FMHA_COPY(2, uint16_t, 2, "+r")
FMHA_COPY(4, uint32_t, 4, "+r")
FMHA_COPY(8, uint64_t, 8, "+r")
#ifdef __x86_64__
FMHA_COPY(16, FourWords, 8, "+x")
#else
FMHA_COPY(16, FourWords, 8, "+w")
#endif
}  // namespace fmha

#ifdef FMHA_TRACE
#define FMHA_COPIES(V)                                                        \
    FMHA_INLINE V(const V& o) { fmha::copy<sizeof(V)>(this, &o); }            \
    FMHA_INLINE V& operator=(const V& o) {                                    \
        fmha::copy<sizeof(V)>(this, &o);                                      \
        return *this;                                                         \
    }
#else
#define FMHA_COPIES(V)    \
    V(const V&) = default; \
    V& operator=(const V&) = default;
#endif
#define FMHA_VECTOR2(V, T)                                               \
    struct alignas(2 * sizeof(T)) V {                                    \
        T x, y;                                                          \
        V() = default;                                                   \
        FMHA_INLINE V(T x_, T y_) : x(x_), y(y_) {}                      \
        FMHA_COPIES(V)                                                   \
    };                                                                   \
    static FMHA_INLINE V make_##V(T x, T y) { return V(x, y); }
#define FMHA_VECTOR3(V, T)                                               \
    struct V {                                                           \
        T x, y, z;                                                       \
    };                                                                   \
    static FMHA_INLINE V make_##V(T x, T y, T z) { return V{x, y, z}; }
#define FMHA_VECTOR4(V, T)                                               \
    struct alignas(4 * sizeof(T)) V {                                    \
        T x, y, z, w;                                                    \
        V() = default;                                                   \
        FMHA_INLINE V(T x_, T y_, T z_, T w_) : x(x_), y(y_), z(z_), w(w_) {} \
        FMHA_COPIES(V)                                                   \
    };                                                                   \
    static FMHA_INLINE V make_##V(T x, T y, T z, T w) { return V(x, y, z, w); }
FMHA_VECTOR2(float2, fmha_float)
FMHA_VECTOR3(float3, fmha_float)
FMHA_VECTOR4(float4, fmha_float)
FMHA_VECTOR2(int2, int)
FMHA_VECTOR3(int3, int)
FMHA_VECTOR4(int4, int)
FMHA_VECTOR2(uint2, unsigned)
FMHA_VECTOR4(uint4, unsigned)
FMHA_VECTOR2(short2, short)
FMHA_VECTOR4(short4, short)
FMHA_VECTOR2(ushort2, unsigned short)
FMHA_VECTOR4(ushort4, unsigned short)
FMHA_VECTOR2(char2, signed char)
FMHA_VECTOR4(char4, signed char)
FMHA_VECTOR2(uchar2, unsigned char)
FMHA_VECTOR4(uchar4, unsigned char)
FMHA_VECTOR2(double2, double)
FMHA_VECTOR2(longlong2, long long)
FMHA_VECTOR2(ulonglong2, unsigned long long)
static FMHA_INLINE uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return uint3{x, y, z}; }
