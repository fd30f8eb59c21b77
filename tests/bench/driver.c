/* Times of driver calls, printed as `name median repetitions mean` lines, in microseconds: of many windows. Arguments
 * name some of them only. Loads libcuda.so.1 as programs do, so the same binary measures NVIDIA's driver and vgpu. The
 * kernel is PTX text: no compiler is needed.
 *
 * DRIVER_AS names circumstances in which vgpu's worker calls a driver, for a native program to be in: "thread" (not the
 * main one), "arena" (one for all threads), "sleepers" (threads that sleep), "spinner" (a process that polls memory, as
 * a client does). DRIVER_FILTER is a file with a seccomp filter. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { WINDOWS = 60, BATCH = 300, THREADS_MAX = 8, SLEEPERS = 8, COPY_NBYTES = 64 << 20 };

static const char ptx[] = ".version 7.5\n.target sm_75\n.address_size 64\n"
                          ".visible .entry touch(.param .u64 data, .param .u64 other, .param .u32 n)\n{\n"
                          ".reg .u64 %rd<2>;\n.reg .u32 %r<2>;\n"
                          "ld.param.u64 %rd0, [data];\ncvta.to.global.u64 %rd1, %rd0;\n"
                          "ld.global.u32 %r1, [%rd1];\nst.global.u32 [%rd1], %r1;\nret;\n}\n";

typedef void *handle;
static void *library;
static handle context, kernel;
static uint64_t data;

static void *find(const char *name) {
  void *function = dlsym(library, name);
  if (!function) {
    fprintf(stderr, "%s is missing\n", name);
    exit(1);
  }
  return function;
}

static void check(int result, const char *name) {
  if (result) {
    fprintf(stderr, "%s: error %d\n", name, result);
    exit(1);
  }
}

#define CALL(name, types, ...) check(((int(*) types)find(#name))(__VA_ARGS__), #name)

static int (*launch_kernel)(handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle,
                            void **, void **);
static int (*stream_wait)(handle), (*context_wait)(void), (*stream_query)(handle), (*get_limit)(size_t *, int);
static int (*memory_info)(size_t *, size_t *), (*upload)(uint64_t, const void *, size_t, handle);
static int (*download)(void *, uint64_t, size_t, handle), (*graph_launch)(handle, handle);
static int (*allocate)(uint64_t *, size_t), (*release)(uint64_t), (*function_count)(unsigned *, handle);
static int (*record)(handle, handle), (*event_wait)(handle), (*stream_event)(handle, handle, unsigned);

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + 1e-3 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b) {
  double difference = *(const double *)a - *(const double *)b;
  return difference < 0 ? -1 : difference > 0;
}

static char **chosen; /* names; NULL: all */

static int is_chosen(const char *name) {
  char **each = chosen;
  while (each && *each && strcmp(*each, name))
    each++;
  return !each || *each;
}

static void tell(const char *name, double *us, int count, int repetitions) {
  double sum = 0;
  for (int i = 0; i < count; i++)
    sum += us[i];
  qsort(us, (size_t)count, sizeof *us, compare);
  printf("%s %.4f %d %.4f\n", name, us[count / 2], repetitions, sum / count);
  fflush(stdout);
}

static void launch(handle stream) {
  uint64_t other = 2;
  unsigned n = 3;
  void *parameters[] = {&data, &other, &n};
  check(launch_kernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL), "cuLaunchKernel");
}

static handle new_stream(void) {
  handle stream;
  CALL(cuStreamCreate, (handle *, unsigned), &stream, 1);
  return stream;
}

/* In each of `windows` windows: run `work` `count` times, then wait; `with_wait` includes that wait in the time. */
#define MEASURE(name, windows, count, with_wait, work)                                                                 \
  do {                                                                                                                 \
    double us[WINDOWS];                                                                                                \
    if (!is_chosen(name))                                                                                              \
      break;                                                                                                           \
    for (int window = -2; window < (windows); window++) {                                                              \
      double start_us = now_us();                                                                                      \
      for (int i = 0; i < (count); i++) {                                                                              \
        work;                                                                                                          \
      }                                                                                                                \
      double issued_us = now_us();                                                                                     \
      check(context_wait(), "cuCtxSynchronize");                                                                       \
      if (window >= 0)                                                                                                 \
        us[window] = ((with_wait ? now_us() : issued_us) - start_us) / (count);                                        \
    }                                                                                                                  \
    tell(name, us, windows, ((windows) + 2) * (count));                                                                \
  } while (0)

static pthread_barrier_t barrier;

static void *launcher(void *unused) {
  CALL(cuCtxSetCurrent, (handle), context);
  handle stream = new_stream();
  for (int window = -2; window < WINDOWS; window++) {
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < BATCH; i++)
      launch(stream);
    check(stream_wait(stream), "cuStreamSynchronize");
    pthread_barrier_wait(&barrier);
  }
  return unused;
}

static void launch_from(int threads) {
  pthread_t ids[THREADS_MAX];
  double us[WINDOWS];
  char name[40];
  snprintf(name, sizeof name, "launch_threads_%d", threads);
  if (!is_chosen(name))
    return;
  pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1);
  for (int i = 0; i < threads; i++)
    pthread_create(&ids[i], NULL, launcher, NULL);
  for (int window = -2; window < WINDOWS; window++) {
    pthread_barrier_wait(&barrier);
    double start_us = now_us();
    pthread_barrier_wait(&barrier);
    if (window >= 0)
      us[window] = (now_us() - start_us) / (BATCH * threads);
  }
  for (int i = 0; i < threads; i++)
    pthread_join(ids[i], NULL);
  tell(name, us, WINDOWS, (WINDOWS + 2) * BATCH * threads);
}

static int is_as(const char *what) {
  const char *as = getenv("DRIVER_AS");
  return as && strstr(as, what);
}

static void *sleeper(void *unused) {
  pause();
  return unused;
}

static void enter_circumstances(void) {
  const char *path = getenv("DRIVER_FILTER");
  if (is_as("arena"))
    mallopt(M_ARENA_MAX, 1);
  if (is_as("spinner") && !fork()) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;)
      __builtin_ia32_pause();
  }
  for (int i = 0; i < SLEEPERS && is_as("sleepers"); i++)
    check(pthread_create(&(pthread_t){0}, NULL, sleeper, NULL), "pthread_create");
  if (path) {
    static struct sock_filter code[BPF_MAXINSNS];
    FILE *file = fopen(path, "rb");
    size_t count = file ? fread(code, sizeof *code, BPF_MAXINSNS, file) : 0;
    struct sock_fprog filter = {(unsigned short)count, code};
    check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl");
    check((int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter), "seccomp");
  }
}

static void *measure(void *unused) {
  int device;
  handle module, graph, executable, event;
  double start_us = now_us();
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  CALL(cuInit, (unsigned), 0);
  CALL(cuDeviceGet, (int *, int), &device, 0);
  CALL(cuDevicePrimaryCtxRetain, (handle *, int), &context, device);
  CALL(cuCtxSetCurrent, (handle), context);
  CALL(cuMemAlloc_v2, (uint64_t *, size_t), &data, COPY_NBYTES);
  CALL(cuModuleLoadData, (handle *, const void *), &module, ptx);
  CALL(cuModuleGetFunction, (handle *, handle, const char *), &kernel, module, "touch");
  *(void **)&launch_kernel = find("cuLaunchKernel");
  *(void **)&stream_wait = find("cuStreamSynchronize");
  *(void **)&context_wait = find("cuCtxSynchronize");
  *(void **)&stream_query = find("cuStreamQuery");
  *(void **)&get_limit = find("cuCtxGetLimit");
  *(void **)&memory_info = find("cuMemGetInfo_v2");
  *(void **)&allocate = find("cuMemAlloc_v2");
  *(void **)&release = find("cuMemFree_v2");
  *(void **)&upload = find("cuMemcpyHtoDAsync_v2");
  *(void **)&download = find("cuMemcpyDtoHAsync_v2");
  *(void **)&graph_launch = find("cuGraphLaunch");
  *(void **)&record = find("cuEventRecord");
  *(void **)&event_wait = find("cuEventSynchronize");
  *(void **)&stream_event = find("cuStreamWaitEvent");
  handle s = new_stream(), t = new_stream();
  launch(s);
  check(context_wait(), "cuCtxSynchronize");
  if (!chosen)
    tell("init_to_first_kernel", (double[]){now_us() - start_us}, 1, 1);
  CALL(cuEventCreate, (handle *, unsigned), &event, 2);
  size_t limit, free_nbytes, total_nbytes;

  MEASURE("launch_queued", WINDOWS, BATCH, 0, launch(s));
  MEASURE("launch_drained", WINDOWS, BATCH, 1, launch(s));
  MEASURE("launch_stream_sync", WINDOWS, 50, 0, (launch(s), check(stream_wait(s), "sync")));
  MEASURE("launch_context_sync", WINDOWS, 50, 0, (launch(s), check(context_wait(), "sync")));
  MEASURE("launch_legacy_sync", WINDOWS, 50, 0, (launch(NULL), check(stream_wait(NULL), "sync")));
  MEASURE("launch_event_sync", WINDOWS, 50, 0, (launch(s), record(event, s), check(event_wait(event), "sync")));
  MEASURE("clean_stream_sync", WINDOWS, 50, 0, check(stream_wait(s), "sync"));
  MEASURE("record_and_wait_event", WINDOWS, BATCH, 1, (record(event, s), stream_event(t, event, 0)));
  MEASURE("launch_and_wait_event", WINDOWS, BATCH, 1, (launch(s), record(event, s), stream_event(t, event, 0)));
  MEASURE("call_get_limit", WINDOWS, 50, 0, check(get_limit(&limit, 0), "cuCtxGetLimit"));
  *(void **)&function_count = find("cuModuleGetFunctionCount");
  unsigned count;
  MEASURE("call_count", WINDOWS, 50, 0, check(function_count(&count, module), "cuModuleGetFunctionCount"));
  MEASURE("call_memory_info", WINDOWS, 50, 0, check(memory_info(&free_nbytes, &total_nbytes), "cuMemGetInfo"));
  uint64_t block;
  MEASURE("alloc_free_1m", WINDOWS, 50, 0, (check(allocate(&block, 1 << 20), "alloc"), check(release(block), "free")));
  uint64_t kept; /* the driver then need not map and unmap what the next ones are part of */
  CALL(cuMemAlloc_v2, (uint64_t *, size_t), &kept, 1 << 19);
  MEASURE("alloc_free_beside", WINDOWS, 50, 0,
          (check(allocate(&block, 1 << 20), "alloc"), check(release(block), "free")));
  CALL(cuMemFree_v2, (uint64_t), kept);
  MEASURE("event_record_sync", WINDOWS, 50, 0, (record(event, s), check(event_wait(event), "sync")));
  launch_from(1);
  launch_from(2);
  launch_from(4);
  launch_from(8);

  char *host = malloc(COPY_NBYTES), *pinned;
  memset(host, 1, COPY_NBYTES);
  CALL(cuMemHostAlloc, (void **, size_t, unsigned), (void **)&pinned, COPY_NBYTES, 0);
  memset(pinned, 1, COPY_NBYTES);
#define UPLOAD(from, nbytes) check(upload(data, from, nbytes, s), "HtoD"), check(stream_wait(s), "sync")
#define DOWNLOAD(to, nbytes) check(download(to, data, nbytes, s), "DtoH"), check(stream_wait(s), "sync")
  MEASURE("htod_4", WINDOWS, 50, 0, (UPLOAD(host, 4)));
  MEASURE("htod_4k", WINDOWS, 50, 0, (UPLOAD(host, 4096)));
  MEASURE("htod_64k", WINDOWS, 50, 0, (UPLOAD(host, 64 << 10)));
  MEASURE("htod_256k", WINDOWS, 20, 0, (UPLOAD(host, 256 << 10)));
  MEASURE("dtoh_4", WINDOWS, 50, 0, (DOWNLOAD(host, 4)));
  MEASURE("dtoh_4k", WINDOWS, 50, 0, (DOWNLOAD(host, 4096)));
  MEASURE("htod_1m", WINDOWS, 10, 0, (UPLOAD(host, 1 << 20)));
  MEASURE("dtoh_1m", WINDOWS, 10, 0, (DOWNLOAD(host, 1 << 20)));
  MEASURE("htod_64m_pageable", 12, 2, 0, (UPLOAD(host, COPY_NBYTES)));
  MEASURE("dtoh_64m_pageable", 12, 2, 0, (DOWNLOAD(host, COPY_NBYTES)));
  MEASURE("htod_64m_pinned", 12, 2, 0, (UPLOAD(pinned, COPY_NBYTES)));
  MEASURE("dtoh_64m_pinned", 12, 2, 0, (DOWNLOAD(pinned, COPY_NBYTES)));

  CALL(cuStreamBeginCapture_v2, (handle, int), s, 0);
  for (int i = 0; i < 40; i++)
    launch(s);
  CALL(cuStreamEndCapture, (handle, handle *), s, &graph);
  CALL(cuGraphInstantiateWithFlags, (handle *, handle, unsigned long long), &executable, graph, 0);
  MEASURE("graph_of_40_queued", WINDOWS, 20, 0, check(graph_launch(executable, s), "cuGraphLaunch"));
  MEASURE("graph_of_40_drained", WINDOWS, 20, 1, check(graph_launch(executable, s), "cuGraphLaunch"));
  return unused;
}

int main(int argc, char **argv) {
  pthread_t thread;
  chosen = argc > 1 ? argv + 1 : NULL;
  enter_circumstances();
  if (!is_as("thread"))
    return measure(NULL) != NULL;
  check(pthread_create(&thread, NULL, measure, NULL), "pthread_create");
  return pthread_join(thread, NULL);
}
