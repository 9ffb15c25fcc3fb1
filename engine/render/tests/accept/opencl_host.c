// Runs kernels of one text on the first OpenCL device. Declares what it uses, so that it needs
// the library and a driver, but no headers.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef int32_t cl_int;
typedef void *cl_platform_id, *cl_device_id, *cl_context, *cl_queue, *cl_program, *cl_kernel, *cl_mem;
cl_int clGetPlatformIDs(uint32_t, cl_platform_id*, uint32_t*);
cl_int clGetDeviceIDs(cl_platform_id, uint64_t, uint32_t, cl_device_id*, uint32_t*);
cl_context clCreateContext(const void*, uint32_t, const cl_device_id*, void*, void*, cl_int*);
cl_queue clCreateCommandQueue(cl_context, cl_device_id, uint64_t, cl_int*);
cl_program clCreateProgramWithSource(cl_context, uint32_t, const char**, const size_t*, cl_int*);
cl_int clBuildProgram(cl_program, uint32_t, const cl_device_id*, const char*, void*, void*);
cl_int clGetProgramBuildInfo(cl_program, cl_device_id, uint32_t, size_t, void*, size_t*);
cl_kernel clCreateKernel(cl_program, const char*, cl_int*);
cl_mem clCreateBuffer(cl_context, uint64_t, size_t, void*, cl_int*);
cl_int clSetKernelArg(cl_kernel, uint32_t, size_t, const void*);
cl_int clEnqueueNDRangeKernel(cl_queue, cl_kernel, uint32_t, const size_t*, const size_t*,
                              const size_t*, uint32_t, const void*, void*);
cl_int clEnqueueReadBuffer(cl_queue, cl_mem, uint32_t, size_t, size_t, void*, uint32_t, const void*,
                           void*);
cl_int clReleaseMemObject(cl_mem);
cl_int clReleaseKernel(cl_kernel);

static cl_device_id device;
static cl_context context;
static cl_queue queue;
static cl_program program;

static void check(cl_int code, const char* what) {
  if (code == 0) return;
  fprintf(stderr, "%s: OpenCL error %d\n", what, code);
  exit(1);
}
static void start(const char* text) {
  cl_platform_id platform;
  cl_int code;
  check(clGetPlatformIDs(1, &platform, 0), "platform");
  check(clGetDeviceIDs(platform, 0xffffffff, 1, &device, 0), "device");
  context = clCreateContext(0, 1, &device, 0, 0, &code);
  check(code, "context");
  queue = clCreateCommandQueue(context, device, 0, &code);
  check(code, "queue");
  program = clCreateProgramWithSource(context, 1, &text, 0, &code);
  check(code, "program");
  const char* options = "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt";
  if (clBuildProgram(program, 1, &device, options, 0, 0) == 0) return;
  static char log[8192];
  clGetProgramBuildInfo(program, device, 0x1183, sizeof log - 1, log, 0);
  fprintf(stderr, "%s\n", log);
  exit(1);
}
static void launch(const char* text, const char* name, size_t groups, size_t threads, int count,
                   const size_t* sizes, void** data) {
  if (program == 0) start(text);
  cl_int code;
  cl_kernel kernel = clCreateKernel(program, name, &code);
  check(code, name);
  cl_mem buffers[8];
  for (int i = 0; i < count; i++) {
    buffers[i] = clCreateBuffer(context, 1 << 0 | 1 << 5, 64 * sizes[i], data[i], &code);
    check(code, "buffer");
    check(clSetKernelArg(kernel, i, sizeof(cl_mem), &buffers[i]), "argument");
  }
  size_t all = groups * threads;
  check(clEnqueueNDRangeKernel(queue, kernel, 1, 0, &all, &threads, 0, 0, 0), name);
  check(clEnqueueReadBuffer(queue, buffers[0], 1, 0, 64 * sizes[0], data[0], 0, 0, 0), name);
  for (int i = 0; i < count; i++) clReleaseMemObject(buffers[i]);
  clReleaseKernel(kernel);
}
