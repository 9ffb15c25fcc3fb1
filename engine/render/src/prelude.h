/* What the kernels of one file share. Every function is total: no division traps, no conversion
   is undefined. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef uint16_t f16;  /* the bits of an IEEE 754 binary16 */
typedef uint16_t bf16; /* the upper half of the bits of an f32 */

static inline uint32_t f32_bits(float x) { uint32_t b; memcpy(&b, &x, 4); return b; }
static inline uint64_t f64_bits(double x) { uint64_t b; memcpy(&b, &x, 8); return b; }
static inline float f32_from_bits(uint32_t b) { float x; memcpy(&x, &b, 4); return x; }
static inline double f64_from_bits(uint64_t b) { double x; memcpy(&x, &b, 8); return x; }

/* Division: a divisor of 0 gives some value; the smallest value by -1 wraps. */
#define SIGNED(T, N)                                                                               \
  static inline T cdiv_##N(T x, T y) { return y == -1 ? (T)(0 - x) : y ? (T)(x / y) : 0; }         \
  static inline T cmod_##N(T x, T y) { return y == -1 || y == 0 ? 0 : (T)(x % y); }                \
  static inline T floordiv_##N(T x, T y) {                                                         \
    T quotient = cdiv_##N(x, y), rest = cmod_##N(x, y);                                            \
    return rest != 0 && (rest ^ y) < 0 ? (T)(quotient - 1) : quotient;                             \
  }                                                                                                \
  static inline T floormod_##N(T x, T y) {                                                         \
    T rest = cmod_##N(x, y);                                                                       \
    return rest != 0 && (rest ^ y) < 0 ? (T)(rest + y) : rest;                                     \
  }
#define UNSIGNED(T, N)                                                                             \
  static inline T cdiv_##N(T x, T y) { return y ? (T)(x / y) : 0; }                                \
  static inline T cmod_##N(T x, T y) { return y ? (T)(x % y) : 0; }
#define ORDER(T, N)                                                                                \
  static inline T max_##N(T x, T y) { return x < y ? y : x; }                                      \
  static inline T min_##N(T x, T y) { return y < x ? y : x; }
/* From a float: cut toward zero; 0 where the range is left. */
#define FROM_FLOAT(T, N, ABOVE, BELOW)                                                             \
  static inline T N##_from_f64(double x) { return ABOVE && x < BELOW ? (T)x : 0; }

SIGNED(int8_t, i8) SIGNED(int16_t, i16) SIGNED(int, i32) SIGNED(int64_t, i64)
UNSIGNED(uint8_t, u8) UNSIGNED(uint16_t, u16) UNSIGNED(unsigned int, u32) UNSIGNED(uint64_t, u64)
ORDER(int8_t, i8) ORDER(int16_t, i16) ORDER(int, i32) ORDER(int64_t, i64)
ORDER(uint8_t, u8) ORDER(uint16_t, u16) ORDER(unsigned int, u32) ORDER(uint64_t, u64)
FROM_FLOAT(int8_t, i8, x > -129.0, 128.0)
FROM_FLOAT(int16_t, i16, x > -32769.0, 32768.0)
FROM_FLOAT(int, i32, x > -2147483649.0, 2147483648.0)
FROM_FLOAT(int64_t, i64, x >= -0x1p63, 0x1p63)
FROM_FLOAT(uint8_t, u8, x > -1.0, 256.0)
FROM_FLOAT(uint16_t, u16, x > -1.0, 65536.0)
FROM_FLOAT(unsigned int, u32, x > -1.0, 4294967296.0)
FROM_FLOAT(uint64_t, u64, x > -1.0, 0x1p64)

/* NaN if either is. */
static inline float max_f32(float x, float y) { return x > y || x != x ? x : y; }
static inline float min_f32(float x, float y) { return x < y || x != x ? x : y; }
static inline double max_f64(double x, double y) { return x > y || x != x ? x : y; }
static inline double min_f64(double x, double y) { return x < y || x != x ? x : y; }

/* Rounding to odd: a later rounding to fewer bits is the only one that counts. */
static inline float f32_odd(double x) {
  float nearest = (float)x;
  uint32_t bits = f32_bits(nearest);
  if ((double)nearest == x || x != x || (bits & 1u)) return nearest;
  return f32_from_bits(fabs((double)nearest) < fabs(x) ? bits + 1u : bits - 1u);
}
static inline double f64_odd_i64(int64_t x) {
  if (-((int64_t)1 << 53) < x && x < ((int64_t)1 << 53)) return (double)x;
  return (double)((x & ~(int64_t)2047) | (x & 2047 ? 2048 : 0));
}
static inline double f64_odd_u64(uint64_t x) {
  if (x < (uint64_t)1 << 53) return (double)x;
  return (double)((x & ~(uint64_t)2047) | (x & 2047u ? 2048u : 0u));
}

static inline float f16_to_f32(f16 x) {
  uint32_t sign = (uint32_t)(x & 0x8000u) << 16, exponent = x >> 10 & 31u, fraction = x & 1023u;
  if (exponent == 31u) return f32_from_bits(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0u) return f32_from_bits(sign | (exponent + 112u) << 23 | fraction << 13);
  return f32_from_bits(sign | f32_bits((float)fraction * 0x1p-24f));
}
static inline f16 f16_from_f32(float x) {
  uint32_t bits = f32_bits(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return (f16)(sign | 0x7e00u | (magnitude >> 13 & 1023u));
  if (magnitude >= 0x477ff000u) return (f16)(sign | 0x7c00u); /* 65520 and more */
  if (magnitude < 0x38800000u) /* below 2^-14; neighbours of 0.5 are 2^-24 apart, as these are */
    return (f16)(sign | (f32_bits(f32_from_bits(magnitude) + 0.5f) - 0x3f000000u));
  return (f16)(sign | (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
}
static inline f16 f16_from_f64(double x) { return f16_from_f32(f32_odd(x)); }

static inline float bf16_to_f32(bf16 x) { return f32_from_bits((uint32_t)x << 16); }
static inline bf16 bf16_from_f32(float x) {
  uint32_t bits = f32_bits(x);
  if (x != x) return (bf16)(bits >> 16 | 0x40u);
  return (bf16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
static inline bf16 bf16_from_f64(double x) { return bf16_from_f32(f32_odd(x)); }

/* Rounds to float. gcc 12 forgets the rounding of two doubles side by side that become doubles again
   at once (its vectoriser of straight code), unless something it cannot look into stands between. */
static inline float f32_from_f64(double x) {
  float y = (float)x;
#if defined(__GNUC__) && !defined(__clang__) && defined(__SSE2__)
  __asm__("" : "+x"(y));
#endif
  return y;
}

/* The product rounded, or not where the machine does both in one step. */
static inline float mulacc_f32(float x, float y, float z) {
#if defined(__FMA__) || defined(__FP_FAST_FMAF)
  return __builtin_fmaf(x, y, z);
#else
  return x * y + z;
#endif
}
static inline double mulacc_f64(double x, double y, double z) {
#if defined(__FMA__) || defined(__FP_FAST_FMA)
  return __builtin_fma(x, y, z);
#else
  return x * y + z;
#endif
}

/* What vectors need; the types and functions that the kernels use follow. */
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
#if defined(__FMA__)
#define IF_FMA(...) __VA_ARGS__
#else
#define IF_FMA(...)
#endif
