/* Vectors of gcc and clang. */
#define VECTOR static inline __attribute__((always_inline))
#ifndef __has_builtin
#define __has_builtin(X) 0
#endif
#if __has_builtin(__builtin_elementwise_fma)
#define IF_ELEMENTWISE_FMA(...) __VA_ARGS__
#else
#define IF_ELEMENTWISE_FMA(...)
#endif
#if defined(__AVX512F__)
#define IF_AVX512(...) __VA_ARGS__
#else
#define IF_AVX512(...)
#endif
#if defined(__GNUC__) && !defined(__clang__) && defined(__SSE2__)
#define IF_GCC_SSE2(...) __VA_ARGS__
#else
#define IF_GCC_SSE2(...)
#endif
#if defined(__AVX__)
#define IF_GCC_AVX(...) IF_GCC_SSE2(__VA_ARGS__)
#else
#define IF_GCC_AVX(...)
#endif
#define IF_GCC_AVX512(...) IF_AVX512(IF_GCC_SSE2(__VA_ARGS__))
#if defined(__AVX512BW__) && __has_builtin(__builtin_ia32_permvarhi512_mask) \
    && __has_builtin(__builtin_ia32_si512_256si)
#define IF_PERMUTES(...) __VA_ARGS__
#else
#define IF_PERMUTES(...)
#endif
#if defined(__FMA__)
#define IF_FMA(...) __VA_ARGS__
#else
#define IF_FMA(...)
#endif
#if defined(__F16C__) && __has_builtin(__builtin_ia32_vcvtph2ps256)
#define IF_F16C(...) __VA_ARGS__
#else
#define IF_F16C(...)
#endif
#if defined(__AVX512F__) && __has_builtin(__builtin_nontemporal_store)
#define IF_STREAMS(...) __VA_ARGS__
#define STREAM(KIND, TO, X) __builtin_nontemporal_store(X, (KIND*)TO)
#elif defined(__AVX512F__) && __has_builtin(__builtin_ia32_movntps512)
#define IF_STREAMS(...) __VA_ARGS__
#define STREAM(KIND, TO, X) __builtin_ia32_movntps512((float*)TO, (f32x16)X)
#else
#define IF_STREAMS(...)
#endif

