// Stand-ins for the functions of OpenCL's library that kernels use; the compiler supports the
// language itself.
int gradiff_group(int dimension);
int gradiff_thread(int dimension);
void gradiff_barrier(void);
#define get_group_id(dimension) ((size_t)gradiff_group(dimension))
#define get_local_id(dimension) ((size_t)gradiff_thread(dimension))
#define barrier(flags) gradiff_barrier()
#define OVERLOAD static inline __attribute__((overloadable))

#define UNARY(NAME)                                                                                \
  OVERLOAD float NAME(float x) { return __builtin_##NAME##f(x); }                                  \
  OVERLOAD double NAME(double x) { return __builtin_##NAME(x); }
UNARY(exp2) UNARY(log2) UNARY(sin) UNARY(sqrt) UNARY(fabs)
OVERLOAD float pow(float x, float y) { return __builtin_powf(x, y); }
OVERLOAD double pow(double x, double y) { return __builtin_pow(x, y); }
OVERLOAD float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
OVERLOAD double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }

// Vectors lane by lane.
#define LANES_2(F) F(s0) F(s1)
#define LANES_4(F) LANES_2(F) F(s2) F(s3)
#define LANES_8(F) LANES_4(F) F(s4) F(s5) F(s6) F(s7)
#define LANES_16(F) LANES_8(F) F(s8) F(s9) F(sa) F(sb) F(sc) F(sd) F(se) F(sf)
#define SQRT(LANE) r.LANE = sqrt(x.LANE);
#define FMA(LANE) r.LANE = fma(x.LANE, y.LANE, z.LANE);
#define VECTOR(T, N)                                                                               \
  OVERLOAD T##N sqrt(T##N x) { T##N r; LANES_##N(SQRT) return r; }                                 \
  OVERLOAD T##N fma(T##N x, T##N y, T##N z) { T##N r; LANES_##N(FMA) return r; }
VECTOR(float, 2) VECTOR(float, 4) VECTOR(float, 8) VECTOR(float, 16)
VECTOR(double, 2) VECTOR(double, 4) VECTOR(double, 8) VECTOR(double, 16)

// A lane is the second value where the mask's highest bit is set; a mask is as wide as a value.
#define SELECT(T, M, N)                                                                            \
  OVERLOAD T##N select(T##N x, T##N y, M##N mask) {                                                \
    M##N lanes = mask < (M##N)0;                                                                   \
    return __builtin_astype((__builtin_astype(y, M##N) & lanes) |                                  \
                            (__builtin_astype(x, M##N) & ~lanes), T##N);                           \
  }
#define SELECTS(T, M) SELECT(T, M, 2) SELECT(T, M, 4) SELECT(T, M, 8) SELECT(T, M, 16)
SELECTS(char, char) SELECTS(uchar, char) SELECTS(short, short) SELECTS(ushort, short)
SELECTS(int, int) SELECTS(uint, int) SELECTS(float, int)
SELECTS(long, long) SELECTS(ulong, long) SELECTS(double, long)

#define convert_char2(x) __builtin_convertvector(x, char2)
#define convert_char4(x) __builtin_convertvector(x, char4)
#define convert_char8(x) __builtin_convertvector(x, char8)
#define convert_char16(x) __builtin_convertvector(x, char16)
#define convert_uchar2(x) __builtin_convertvector(x, uchar2)
#define convert_uchar4(x) __builtin_convertvector(x, uchar4)
#define convert_uchar8(x) __builtin_convertvector(x, uchar8)
#define convert_uchar16(x) __builtin_convertvector(x, uchar16)
#define convert_short2(x) __builtin_convertvector(x, short2)
#define convert_short4(x) __builtin_convertvector(x, short4)
#define convert_short8(x) __builtin_convertvector(x, short8)
#define convert_short16(x) __builtin_convertvector(x, short16)
#define convert_ushort2(x) __builtin_convertvector(x, ushort2)
#define convert_ushort4(x) __builtin_convertvector(x, ushort4)
#define convert_ushort8(x) __builtin_convertvector(x, ushort8)
#define convert_ushort16(x) __builtin_convertvector(x, ushort16)
#define convert_int2(x) __builtin_convertvector(x, int2)
#define convert_int4(x) __builtin_convertvector(x, int4)
#define convert_int8(x) __builtin_convertvector(x, int8)
#define convert_int16(x) __builtin_convertvector(x, int16)
#define convert_uint2(x) __builtin_convertvector(x, uint2)
#define convert_uint4(x) __builtin_convertvector(x, uint4)
#define convert_uint8(x) __builtin_convertvector(x, uint8)
#define convert_uint16(x) __builtin_convertvector(x, uint16)
#define convert_long2(x) __builtin_convertvector(x, long2)
#define convert_long4(x) __builtin_convertvector(x, long4)
#define convert_long8(x) __builtin_convertvector(x, long8)
#define convert_long16(x) __builtin_convertvector(x, long16)
#define convert_ulong2(x) __builtin_convertvector(x, ulong2)
#define convert_ulong4(x) __builtin_convertvector(x, ulong4)
#define convert_ulong8(x) __builtin_convertvector(x, ulong8)
#define convert_ulong16(x) __builtin_convertvector(x, ulong16)
#define convert_float2(x) __builtin_convertvector(x, float2)
#define convert_float4(x) __builtin_convertvector(x, float4)
#define convert_float8(x) __builtin_convertvector(x, float8)
#define convert_float16(x) __builtin_convertvector(x, float16)
#define convert_double2(x) __builtin_convertvector(x, double2)
#define convert_double4(x) __builtin_convertvector(x, double4)
#define convert_double8(x) __builtin_convertvector(x, double8)
#define convert_double16(x) __builtin_convertvector(x, double16)
