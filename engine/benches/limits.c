/* What one core of this machine can do, in seconds for each, best of so many runs: multiply-adds in
   registers, bytes read, bytes read and written (with plain stores or past the cache, whichever is
   faster). Memory lies on huge pages where the system gives them. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#define COUNT (1L << 24) /* floats of an array */
#define STEPS (1L << 22) /* multiply-adds of a lane */
#define CHAINS 12        /* vectors of them */
#define RUNS 15

#if defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif
#define LANES (BYTES / 4)
typedef float vector __attribute__((vector_size(BYTES)));

static void stream(float *to, vector value) {
#if defined(__AVX512F__)
  _mm512_stream_ps(to, (__m512)value);
#elif defined(__AVX__)
  _mm256_stream_ps(to, (__m256)value);
#elif defined(__x86_64__)
  _mm_stream_ps(to, (__m128)value);
#else
  *(vector *)to = value;
#endif
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + 1e-9 * time.tv_nsec;
}

static float *array(void) {
  const size_t page = 2 << 20;
  uintptr_t start = (uintptr_t)mmap(0, 4 * COUNT + page, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  float *aligned = (float *)((start + page - 1) & ~(page - 1));
#ifdef MADV_HUGEPAGE
  madvise(aligned, 4 * COUNT, MADV_HUGEPAGE);
#endif
  for (long i = 0; i < COUNT; i++) aligned[i] = i % 7;
  return aligned;
}

#define BEST(best, ...)                  \
  for (int run = 0; run < RUNS; run++) { \
    double start = now();                \
    __VA_ARGS__;                         \
    double taken = now() - start;        \
    if (taken < best) best = taken;      \
  }
#define AT(array, i) (*(vector *)(array + i))

int main(void) {
  float *x = array(), *y = array(), *z = array();
  vector sums[CHAINS], zero = {0}, factor = zero + 0.999f;
  double fma = 1e9, reading = 1e9, moving = 1e9;
  for (int k = 0; k < CHAINS; k++) sums[k] = zero + (float)k;
  BEST(fma, for (long i = 0; i < STEPS; i++) for (int k = 0; k < CHAINS; k++)
                sums[k] = sums[k] * factor + factor);
  BEST(reading, for (long i = 0; i < COUNT; i += 4 * LANES) for (int k = 0; k < 4; k++)
                    sums[k] += AT(x, i + k * LANES));
  BEST(moving, for (long i = 0; i < COUNT; i += LANES) AT(z, i) = AT(x, i) + AT(y, i));
  BEST(moving, for (long i = 0; i < COUNT; i += LANES) stream(z + i, AT(x, i) + AT(y, i)));
  float used = 0;
  for (int k = 0; k < CHAINS; k++) used += sums[k][0] + z[k];
  fprintf(stderr, "%g\n", used);
  printf("%.9e %.9e %.9e\n", fma / (1.0 * STEPS * CHAINS * LANES), reading / (4.0 * COUNT),
         moving / (12.0 * COUNT));
  return 0;
}
