/* Times driver calls of whichever libcuda.so.1 the loader finds. Built with the package, run by `vgpu bench`
 * (vgpud/bench). The kernel is PTX text, so that no compiler is needed.
 *
 * `calls` prints the names of its windows (timed loops) as a JSON list; then, for each name on standard input, the
 * milliseconds of one iteration. At the end of input it exits with 1 unless every launch has been executed.
 * `calls --first` prints the seconds from before dlopen until cuInit returns, and until the first kernel's result. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS_MAX = 8, BULK_NBYTES = 64 << 20, SMALL_NBYTES = 4096, CHUNK_NBYTES = 1 << 20 };

static const char ptx[] = ".version 7.5\n.target sm_75\n.address_size 64\n"
                          ".visible .entry add_one(.param .u64 data)\n{\n"
                          ".reg .u64 %rd<2>;\n.reg .u32 %r<3>;\n"
                          "ld.param.u64 %rd0, [data];\ncvta.to.global.u64 %rd1, %rd0;\n"
                          "ld.global.u32 %r1, [%rd1];\nadd.u32 %r2, %r1, 1;\nst.global.u32 [%rd1], %r2;\nret;\n}\n";

#define FUNCTIONS(X)                                                                                                   \
  X(cuInit, (unsigned))                                                                                                \
  X(cuDeviceGet, (int *, int))                                                                                         \
  X(cuDevicePrimaryCtxRetain, (void **, int))                                                                          \
  X(cuCtxSetCurrent, (void *))                                                                                         \
  X(cuCtxSynchronize, (void))                                                                                          \
  X(cuMemAlloc_v2, (uint64_t *, size_t))                                                                               \
  X(cuMemFree_v2, (uint64_t))                                                                                          \
  X(cuMemAllocHost_v2, (void **, size_t))                                                                              \
  X(cuMemGetInfo_v2, (size_t *, size_t *))                                                                             \
  X(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t))                                                                 \
  X(cuMemcpyDtoH_v2, (void *, uint64_t, size_t))                                                                       \
  X(cuModuleLoadData, (void **, const void *))                                                                         \
  X(cuModuleGetFunction, (void **, void *, const char *))                                                              \
  X(cuEventCreate, (void **, unsigned))                                                                                \
  X(cuEventRecord, (void *, void *))                                                                                   \
  X(cuLaunchKernel,                                                                                                    \
    (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))

#define DECLARE(name, types) static int(*name) types;
FUNCTIONS(DECLARE)

static void *context, *kernel, *event;
static uint64_t data, bulk;
static uint32_t launched; /* atomic */
static char *pageable, *pinned;

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *what, int result) {
  fprintf(stderr, "%s: error %d\n", what, result);
  exit(1);
}

#define CALL(name, ...)                                                                                                \
  do {                                                                                                                 \
    int result = name(__VA_ARGS__);                                                                                    \
    if (result)                                                                                                        \
      fail(#name, result);                                                                                             \
  } while (0)

static void launch(unsigned count) {
  void *parameters[] = {&data};
  for (unsigned i = 0; i < count; i++)
    CALL(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
  __atomic_fetch_add(&launched, count, __ATOMIC_RELAXED);
}

/* Each window returns the seconds of `count` iterations. */
static double queued(unsigned count) {
  double start_s = now_s();
  launch(count);
  double spent_s = now_s() - start_s;
  CALL(cuCtxSynchronize);
  return spent_s;
}

static double until_done(unsigned count) {
  double start_s = now_s();
  launch(count);
  CALL(cuCtxSynchronize);
  return now_s() - start_s;
}

static double synchronised(unsigned count) {
  double start_s = now_s();
  for (unsigned i = 0; i < count; i++) {
    launch(1);
    CALL(cuCtxSynchronize);
  }
  return now_s() - start_s;
}

static pthread_barrier_t together;
static unsigned each;

/* Stores its own start time: the main thread, which waits at the barrier, may wake after the work is done. */
static void *launcher(void *start_s) {
  CALL(cuCtxSetCurrent, context);
  launch(1);
  CALL(cuCtxSynchronize);
  pthread_barrier_wait(&together);
  *(double *)start_s = now_s();
  launch(each);
  pthread_barrier_wait(&together);
  return NULL;
}

static double threads(unsigned count) {
  pthread_t thread[THREADS_MAX];
  double started_s[THREADS_MAX];
  each = count / THREADS_MAX;
  pthread_barrier_init(&together, NULL, THREADS_MAX + 1);
  for (int i = 0; i < THREADS_MAX; i++)
    if (pthread_create(&thread[i], NULL, launcher, &started_s[i]))
      fail("pthread_create", 0);
  pthread_barrier_wait(&together);
  pthread_barrier_wait(&together);
  CALL(cuCtxSynchronize);
  double end_s = now_s(), spent_s = 0;
  for (int i = 0; i < THREADS_MAX; i++) {
    pthread_join(thread[i], NULL);
    spent_s = end_s - started_s[i] > spent_s ? end_s - started_s[i] : spent_s;
  }
  pthread_barrier_destroy(&together);
  return spent_s;
}

static double answered(unsigned count) {
  size_t available, total;
  double start_s = now_s();
  for (unsigned i = 0; i < count; i++)
    CALL(cuMemGetInfo_v2, &available, &total);
  return now_s() - start_s;
}

static double word_to_host(unsigned count) {
  uint32_t word;
  double start_s = now_s();
  for (unsigned i = 0; i < count; i++)
    CALL(cuMemcpyDtoH_v2, &word, data, sizeof word);
  return now_s() - start_s;
}

static double recorded(unsigned count) {
  double start_s = now_s();
  for (unsigned i = 0; i < count; i++)
    CALL(cuEventRecord, event, NULL);
  CALL(cuCtxSynchronize);
  return now_s() - start_s;
}

static double allocated(unsigned count) {
  uint64_t chunk;
  double start_s = now_s();
  for (unsigned i = 0; i < count; i++) {
    CALL(cuMemAlloc_v2, &chunk, CHUNK_NBYTES);
    CALL(cuMemFree_v2, chunk);
  }
  return now_s() - start_s;
}

static double copied(unsigned count, char *host, size_t nbytes, int to_device) {
  double start_s = now_s();
  for (unsigned i = 0; i < count; i++)
    if (to_device)
      CALL(cuMemcpyHtoD_v2, bulk, host, nbytes);
    else
      CALL(cuMemcpyDtoH_v2, host, bulk, nbytes);
  CALL(cuCtxSynchronize);
  return now_s() - start_s;
}

static double small_to_device(unsigned count) { return copied(count, pageable, SMALL_NBYTES, 1); }
static double pageable_to_device(unsigned count) { return copied(count, pageable, BULK_NBYTES, 1); }
static double pageable_to_host(unsigned count) { return copied(count, pageable, BULK_NBYTES, 0); }
static double pinned_to_device(unsigned count) { return copied(count, pinned, BULK_NBYTES, 1); }
static double pinned_to_host(unsigned count) { return copied(count, pinned, BULK_NBYTES, 0); }

static const struct window {
  const char *name;
  double (*run)(unsigned count);
  unsigned count;
} windows[] = {
    {"launch, queued", queued, 500},
    {"launch until done, 500 to a synchronisation", until_done, 500},
    {"launch + synchronise", synchronised, 100},
    {"launch from 8 threads", threads, 2000},
    {"a call with an answer (cuMemGetInfo)", answered, 200},
    {"4 B to the host", word_to_host, 200},
    {"event record", recorded, 500},
    {"alloc + free 1 MB", allocated, 50},
    {"H2D 4 KB pageable", small_to_device, 200},
    {"H2D 64 MB pageable", pageable_to_device, 2},
    {"D2H 64 MB pageable", pageable_to_host, 2},
    {"H2D 64 MB pinned", pinned_to_device, 2},
    {"D2H 64 MB pinned", pinned_to_host, 2},
};
enum { WINDOWS = sizeof windows / sizeof *windows };

static int is_offered(const struct window *window) {
  return pinned || (window->run != pinned_to_device && window->run != pinned_to_host);
}

static void check_launches(void) {
  uint32_t value;
  CALL(cuMemcpyDtoH_v2, &value, data, sizeof value);
  if (value != launched) {
    fprintf(stderr, "%u launches, but the device counted %u\n", launched, value);
    exit(1);
  }
}

static void first_kernel(int is_told) {
  uint32_t zero = 0;
  int device;
  void *module;
  double start_s = now_s();
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
#define FIND(name, types)                                                                                              \
  if (!(*(void **)&name = dlsym(library, #name)))                                                                      \
    fail(#name " is missing", 0);
  FUNCTIONS(FIND)
  CALL(cuInit, 0);
  double init_s = now_s() - start_s;
  CALL(cuDeviceGet, &device, 0);
  CALL(cuDevicePrimaryCtxRetain, &context, device);
  CALL(cuCtxSetCurrent, context);
  CALL(cuMemAlloc_v2, &data, 4);
  CALL(cuMemcpyHtoD_v2, data, &zero, 4);
  CALL(cuModuleLoadData, &module, ptx);
  CALL(cuModuleGetFunction, &kernel, module, "add_one");
  launch(1);
  check_launches();
  if (is_told)
    printf("%.9f %.9f\n", init_s, now_s() - start_s);
}

int main(int argc, char **argv) {
  int is_first = argc > 1 && !strcmp(argv[1], "--first");
  first_kernel(is_first);
  if (is_first)
    return 0;
  CALL(cuEventCreate, &event, 0);
  CALL(cuMemAlloc_v2, &bulk, BULK_NBYTES);
  if (!(pageable = malloc(BULK_NBYTES)))
    fail("malloc", 0);
  memset(pageable, 1, BULK_NBYTES);
  if (cuMemAllocHost_v2((void **)&pinned, BULK_NBYTES))
    pinned = NULL;
  const char *separator = "[";
  for (int i = 0; i < WINDOWS; i++)
    if (is_offered(&windows[i])) {
      windows[i].run(windows[i].count > THREADS_MAX ? THREADS_MAX : 1); /* warm */
      printf("%s\"%s\"", separator, windows[i].name);
      separator = ", ";
    }
  printf("]\n");
  fflush(stdout);
  char line[128];
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = 0;
    const struct window *window = windows;
    while (window < windows + WINDOWS && (strcmp(window->name, line) || !is_offered(window)))
      window++;
    if (window == windows + WINDOWS)
      fail(line, 0);
    printf("%.9f\n", window->run(window->count) / window->count * 1e3);
    fflush(stdout);
  }
  check_launches();
  return 0;
}
