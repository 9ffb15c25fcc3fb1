// Stand-ins: bf16 by its bits, computed in f32.
#pragma once
#include "cuda_host.h"
struct nv_bfloat16 {
  unsigned short bits;
  nv_bfloat16() = default;
  nv_bfloat16(float x) {
    unsigned int b = cuda_bits<unsigned int>(x);
    bits = x != x ? b >> 16 | 0x40 : (b + 0x7fff + (b >> 16 & 1)) >> 16;
  }
  operator float() const { return cuda_bits<float>((unsigned int)bits << 16); }
  nv_bfloat16 operator-() const { return nv_bfloat16(-(float)*this); }
};
static inline nv_bfloat16 operator+(nv_bfloat16 x, nv_bfloat16 y) { return (float)x + (float)y; }
static inline nv_bfloat16 operator-(nv_bfloat16 x, nv_bfloat16 y) { return (float)x - (float)y; }
static inline nv_bfloat16 operator*(nv_bfloat16 x, nv_bfloat16 y) { return (float)x * (float)y; }
struct nv_bfloat162 { nv_bfloat16 x, y; };
static inline nv_bfloat162 make_bfloat162(nv_bfloat16 x, nv_bfloat16 y) { return {x, y}; }
static inline nv_bfloat16 __ushort_as_bfloat16(unsigned short x) {
  nv_bfloat16 r;
  r.bits = x;
  return r;
}
static inline unsigned short __bfloat16_as_ushort(nv_bfloat16 x) { return x.bits; }
