// Stand-ins: f16 of the compiler.
#pragma once
#include "cuda_host.h"
using half = _Float16;
struct half2 { half x, y; };
static inline half2 make_half2(half x, half y) { return {x, y}; }
static inline half __ushort_as_half(unsigned short x) { return cuda_bits<half>(x); }
static inline unsigned short __half_as_ushort(half x) { return cuda_bits<unsigned short>(x); }
