// Launches kernels at the request of another program. The only argument is a shared object;
// function n in it is `call_kn`, which takes the addresses of the arrays.
//
// A request, in words of 64 bits: the number of the function, three counts of groups, three of
// threads, whether there are barriers, the count of arrays; for each array its size in bytes and
// whether it is sent back; then their bytes. The answer: a word, which is 0 on success, then the
// bytes of the arrays that are sent back.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { ARRAYS_MOST = 256, STACK_BYTES = 1 << 20, ALIGNMENT = 128, PAGE = 4096 };
enum answer { DONE = 0, THREADS_PART = 1, NO_MEMORY = 2, NO_FUNCTION = 3 };

typedef void kernel(void**);

static int64_t group[3], thread[3];
int gradiff_group(int dimension) { return (int)group[dimension]; }
int gradiff_thread(int dimension) { return (int)thread[dimension]; }

// If there are barriers, threads are contexts, each of which runs to its next barrier.
static ucontext_t scheduler, *contexts;
static char* stacks;
static int64_t stack_count, current;
static enum { RUNNING, WAITING, ENDED } *states;
static kernel* entry;
static void** entry_arrays;

void gradiff_barrier(void) {
  states[current] = WAITING;
  swapcontext(&contexts[current], &scheduler);
}

static void start(void) {
  entry(entry_arrays);
  states[current] = ENDED;
}

static void place(int64_t number, const int64_t counts[3], int64_t at[3]) {
  for (int dimension = 0; dimension < 3; dimension++) {
    at[dimension] = number % counts[dimension];
    number /= counts[dimension];
  }
}

static int allocate(int64_t count) {
  if (count <= stack_count) return 1;
  if (stacks) munmap(stacks, (size_t)stack_count * STACK_BYTES);
  stacks = mmap(NULL, (size_t)count * STACK_BYTES, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  stack_count = stacks == MAP_FAILED ? 0 : count;
  if (!stack_count) stacks = NULL;
  contexts = realloc(contexts, (size_t)count * sizeof *contexts);
  states = realloc(states, (size_t)count * sizeof *states);
  return stacks && contexts && states;
}

// Runs the threads of a group from barrier to barrier.
static int meet(int64_t count, const int64_t threads[3]) {
  for (int64_t n = 0; n < count; n++) {
    getcontext(&contexts[n]);
    contexts[n].uc_stack.ss_sp = stacks + n * STACK_BYTES;
    contexts[n].uc_stack.ss_size = STACK_BYTES;
    contexts[n].uc_link = &scheduler;
    makecontext(&contexts[n], start, 0);
    states[n] = RUNNING;
  }
  for (;;) {
    int64_t ended = 0;
    for (current = 0; current < count; current++) {
      place(current, threads, thread);
      swapcontext(&scheduler, &contexts[current]);
      ended += states[current] == ENDED;
    }
    if (ended == count) return 1;
    if (ended) return 0;
  }
}

static enum answer launch(kernel* called, void** arrays, const int64_t groups[3],
                          const int64_t threads[3], int meets) {
  int64_t group_count = groups[0] * groups[1] * groups[2];
  int64_t thread_count = threads[0] * threads[1] * threads[2];
  entry = called;
  entry_arrays = arrays;
  if (meets && !allocate(thread_count)) return NO_MEMORY;
  for (int64_t n = 0; n < group_count; n++) {
    place(n, groups, group);
    if (meets && !meet(thread_count, threads)) return THREADS_PART;
    for (int64_t t = 0; !meets && t < thread_count; t++) {
      place(t, threads, thread);
      called(arrays);
    }
  }
  return DONE;
}

static void read_all(void* to, size_t bytes) {
  if (bytes && fread(to, 1, bytes, stdin) != bytes) _Exit(0);
}

static int64_t word(void) {
  int64_t value;
  read_all(&value, sizeof value);
  return value;
}

static void write_all(const void* from, size_t bytes) {
  if (bytes && fwrite(from, 1, bytes, stdout) != bytes) _Exit(0);
}

// An array that ends at the end of mapped memory, up to its alignment.
struct array { char *mapping, *begin; size_t mapped, bytes; int64_t is_sent; };

static int map(struct array* array) {
  size_t bytes = (array->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  size_t pages = (bytes + PAGE - 1) / PAGE * PAGE;
  array->mapped = pages + 2 * PAGE;
  array->mapping = mmap(NULL, array->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (array->mapping == MAP_FAILED) return 0;
  array->begin = array->mapping + PAGE + pages - bytes;
  return !pages || !mprotect(array->mapping + PAGE, pages, PROT_READ | PROT_WRITE);
}

int main(int count, char** arguments) {
  if (count != 2) return 2;
  void* object = dlopen(arguments[1], RTLD_NOW);
  if (!object) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  static struct array arrays[ARRAYS_MOST];
  static void* addresses[ARRAYS_MOST];
  for (;;) {
    int64_t number = word(), groups[3], threads[3];
    for (int n = 0; n < 3; n++) groups[n] = word();
    for (int n = 0; n < 3; n++) threads[n] = word();
    int64_t meets = word(), array_count = word();
    if (array_count > ARRAYS_MOST) return 2;
    enum answer answer = DONE;
    for (int64_t n = 0; n < array_count; n++) {
      arrays[n].bytes = (size_t)word();
      arrays[n].is_sent = word();
      if (!map(&arrays[n])) return 2;
    }
    for (int64_t n = 0; n < array_count; n++) {
      addresses[n] = arrays[n].begin;
      read_all(arrays[n].begin, arrays[n].bytes);
    }
    char name[32];
    snprintf(name, sizeof name, "call_k%lld", (long long)number);
    kernel* called = (kernel*)(intptr_t)dlsym(object, name);
    answer = called ? launch(called, addresses, groups, threads, (int)meets) : NO_FUNCTION;
    int64_t said = answer;
    write_all(&said, sizeof said);
    for (int64_t n = 0; n < array_count; n++) {
      if (answer == DONE && arrays[n].is_sent) write_all(arrays[n].begin, arrays[n].bytes);
      munmap(arrays[n].mapping, arrays[n].mapped);
    }
    fflush(stdout);
  }
}
