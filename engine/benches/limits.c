/* What one core of this machine can do. For each line of its input it measures once, and prints the
   seconds that one of them took: `multiply-add` in registers, a byte `read`, a byte `moved` (read and
   written, with plain stores or past the cache, whichever is faster). Memory lies on huge pages
   where the system gives them. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#define COUNT (1L << 26) /* floats of an array: more than caches hold */
#define STEPS (1L << 20) /* multiply-adds of a lane */
#define CHAINS 12        /* vectors of them */

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

#define AT(array, i) (*(vector *)(array + i))

static vector sums[CHAINS];

static double multiply_add(void) {
  vector chains[CHAINS], factor = sums[0] * 0 + 0.999f;
  double start = now();
  for (int k = 0; k < CHAINS; k++) chains[k] = sums[k];
  for (long i = 0; i < STEPS; i++)
    for (int k = 0; k < CHAINS; k++) chains[k] = chains[k] * factor + factor;
  for (int k = 0; k < CHAINS; k++) sums[k] = chains[k];
  return (now() - start) / (1.0 * STEPS * CHAINS * LANES);
}

static double read_byte(const float *x) {
  vector chains[4];
  double start = now();
  for (int k = 0; k < 4; k++) chains[k] = sums[k];
  for (long i = 0; i < COUNT; i += 4 * LANES)
    for (int k = 0; k < 4; k++) chains[k] += AT(x, i + k * LANES);
  for (int k = 0; k < 4; k++) sums[k] = chains[k];
  return (now() - start) / (4.0 * COUNT);
}

static double moved_byte(const float *x, const float *y, float *z) {
  double start = now();
  for (long i = 0; i < COUNT; i += LANES) AT(z, i) = AT(x, i) + AT(y, i);
  double between = now();
  for (long i = 0; i < COUNT; i += LANES) stream(z + i, AT(x, i) + AT(y, i));
  double plain = between - start, past = now() - between;
  return (plain < past ? plain : past) / (12.0 * COUNT);
}

int main(void) {
  float *x = array(), *y = array(), *z = array();
  char line[32];
  while (scanf("%31s", line) == 1) {
    double seconds = !strcmp(line, "multiply-add") ? multiply_add()
                     : !strcmp(line, "read")       ? read_byte(x)
                     : !strcmp(line, "moved")      ? moved_byte(x, y, z)
                                                   : 0;
    if (seconds <= 0) return 2;
    printf("%.9e\n", seconds);
    fflush(stdout);
  }
  volatile float used = sums[0][0] + z[0];
  (void)used;
  return 0;
}
