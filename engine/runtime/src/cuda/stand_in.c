/* A driver and an NVRTC for tests on machines without: any kernel is data0[i] = data1[i] + 1 for
 * i32. It does everything at once, and its clock goes on by what it is asked for alone. */
#include <stdlib.h>
#include <string.h>

/* The variables that tests read and set. */
int driver_version = 12040, events_alive, events_fail, blocks_alive, device_copies, downloads;
int shared_bytes;
float event_scale = 1;

static float clock_millis;
static const float ALLOCATE = 10, COPY = 100, LAUNCH = 5;

int cuInit(unsigned flags) { return flags; }
int cuDriverGetVersion(int *version) { *version = driver_version; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetName(char *name, int size, int device) {
  (void)device;
  strncpy(name, "Stand-in", size);
  return 0;
}
int cuDeviceGetAttribute(int *value, int number, int device) {
  (void)device;
  *value = number == 75 ? 9 : number == 76 ? 0 : number == 97 ? 232448 : 1024;
  return 0;
}
int cuDeviceGetDefaultMemPool(void **pool, int device) { (void)device; *pool = 0; return 1; }
int cuMemPoolSetAttribute(void *pool, int number, void *value) {
  (void)pool; (void)number; (void)value;
  return 1;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = 0; return 0; }
int cuCtxSetCurrent(void *context) { return context != 0; }
int cuStreamCreate(void **stream, unsigned flags) { (void)flags; *stream = 0; return 0; }
int cuStreamSynchronize(void *stream) { return stream != 0; }

/* An event has a time once it is recorded. */
int cuEventCreate(void **event, unsigned flags) {
  if (events_fail || flags) return 2;
  float *made = malloc(sizeof(float));
  *made = -1;
  *event = made;
  events_alive++;
  return 0;
}
int cuEventDestroy_v2(void *event) { free(event); events_alive--; return 0; }
int cuEventRecord(void *event, void *stream) {
  (void)stream;
  *(float *)event = clock_millis;
  return 0;
}
int cuEventSynchronize(void *event) { return *(float *)event < 0 ? 400 : 0; }
int cuEventElapsedTime(float *millis, void *start, void *end) {
  if (*(float *)start < 0 || *(float *)end < 0) return 400;
  *millis = (*(float *)end - *(float *)start) * event_scale;
  return 0;
}

int cuMemAllocAsync(unsigned long long *address, size_t size, void *stream) {
  (void)stream;
  clock_millis += ALLOCATE;
  *address = (unsigned long long)malloc(size);
  blocks_alive++;
  return 0;
}
int cuMemFreeAsync(unsigned long long address, void *stream) {
  (void)stream;
  free((void *)address);
  blocks_alive--;
  return 0;
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t size, void *stream) {
  (void)stream;
  clock_millis += COPY;
  memcpy((void *)to, from, size);
  return 0;
}
int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t size, void *stream) {
  (void)stream;
  clock_millis += COPY;
  device_copies++;
  memcpy((void *)to, (void *)from, size);
  return 0;
}
int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t size, void *stream) {
  (void)stream;
  clock_millis += COPY;
  downloads++;
  memcpy(to, (void *)from, size);
  return 0;
}
int cuModuleLoadData(void **module, const void *code) {
  *module = 0;
  return *(const char *)code == 0;
}
int cuModuleUnload(void *module) { return module != 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
  (void)module;
  *function = 0;
  return *name == 0;
}
/* The attribute is the most dynamic shared memory. */
static unsigned dynamic_bytes_max = 49152;
int cuFuncSetAttribute(void *function, int attribute, int value) {
  (void)function;
  dynamic_bytes_max = value;
  return attribute != 8 || 232448 < value;
}
int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned threads_x,
                   unsigned threads_y, unsigned threads_z, unsigned shared, void *stream,
                   void **arguments, void **extra) {
  (void)function; (void)stream; (void)extra;
  if (dynamic_bytes_max < shared) return 1;
  shared_bytes = shared;
  clock_millis += LAUNCH;
  int *to = *(int **)arguments[0], *from = *(int **)arguments[1];
  unsigned count = x * y * z * threads_x * threads_y * threads_z;
  for (unsigned i = 0; i < count; i++) to[i] = from[i] + 1;
  return 0;
}
int cuGetErrorName(int code, const char **text) {
  *text = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN";
  return 0;
}
int cuGetErrorString(int code, const char **text) {
  *text = code == 2 ? "out of memory" : "unknown error";
  return 0;
}

int nvrtcVersion(int *major, int *minor) { *major = 12; *minor = 4; return 0; }
int nvrtcGetNumSupportedArchs(int *count) { *count = 1; return 0; }
int nvrtcGetSupportedArchs(int *archs) { *archs = 90; return 0; }
int nvrtcCreateProgram(void **program, const char *text, const char *name, int count,
                       const char *const *headers, const char *const *names) {
  (void)text; (void)name; (void)count; (void)headers; (void)names;
  *program = 0;
  return 0;
}
int nvrtcCompileProgram(void *program, int count, const char *const *options) {
  (void)program; (void)count; (void)options;
  return 0;
}
int nvrtcGetProgramLogSize(void *program, size_t *size) { (void)program; *size = 0; return 0; }
int nvrtcGetProgramLog(void *program, char *log) { (void)program; (void)log; return 0; }
int nvrtcGetCUBINSize(void *program, size_t *size) { (void)program; *size = 5; return 0; }
int nvrtcGetCUBIN(void *program, char *code) { (void)program; memcpy(code, "code", 5); return 0; }
int nvrtcGetPTXSize(void *program, size_t *size) { (void)program; *size = 0; return 1; }
int nvrtcGetPTX(void *program, char *code) { (void)program; (void)code; return 1; }
int nvrtcDestroyProgram(void **program) { (void)program; return 0; }
const char *nvrtcGetErrorString(int code) { (void)code; return "unknown error"; }
