// Stand-ins for the features of CUDA that kernels use, so that a C++ compiler can compile them.
#pragma once
#include "launch.h"

// The library's headers take longer to read than kernels do.
extern "C" {
#define FUNCTIONS(T, SUFFIX)                                                                       \
  T exp2##SUFFIX(T); T log2##SUFFIX(T); T sin##SUFFIX(T); T sqrt##SUFFIX(T);                       \
  T fabs##SUFFIX(T); T pow##SUFFIX(T, T); T fma##SUFFIX(T, T, T);
FUNCTIONS(float, f) FUNCTIONS(double, )
}

#define __global__
#define __device__
#define __shared__ static
#define __align__(N) __attribute__((aligned(N)))
#define __launch_bounds__(N)
#define __syncthreads() gradiff_barrier()
struct cuda_place { int x, y, z; };
static inline cuda_place cuda_group() {
  return {gradiff_group(0), gradiff_group(1), gradiff_group(2)};
}
static inline cuda_place cuda_thread() {
  return {gradiff_thread(0), gradiff_thread(1), gradiff_thread(2)};
}
#define blockIdx cuda_group()
#define threadIdx cuda_thread()

template <class To, class From> To cuda_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
static inline float __int_as_float(int x) { return cuda_bits<float>(x); }
static inline float __uint_as_float(unsigned int x) { return cuda_bits<float>(x); }
static inline unsigned int __float_as_uint(float x) { return cuda_bits<unsigned int>(x); }
static inline double __longlong_as_double(long long x) { return cuda_bits<double>(x); }
static inline long long __double_as_longlong(double x) { return cuda_bits<long long>(x); }

#define VECTOR(T, NAME)                                                                            \
  struct NAME##2 { T x, y; };                                                                      \
  struct NAME##4 { T x, y, z, w; };                                                                \
  static inline NAME##2 make_##NAME##2(T x, T y) { return {x, y}; }                                \
  static inline NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }
VECTOR(signed char, char) VECTOR(unsigned char, uchar) VECTOR(short, short)
VECTOR(unsigned short, ushort) VECTOR(int, int) VECTOR(unsigned int, uint) VECTOR(float, float)
VECTOR(long long, longlong) VECTOR(unsigned long long, ulonglong) VECTOR(double, double)
