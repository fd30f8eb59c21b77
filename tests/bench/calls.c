/* The cost of calls, seen from a client: cuInit to the first result, a call with an answer, a queued launch. It loads
   libcuda.so.1 as programs do and prints `name seconds` lines. The kernel is PTX text, so that no compiler is needed.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { WARM_UP = 200, CALLS = 3000, LAUNCHES = 20000, BATCH = 500 };

static const char ptx[] = ".version 7.5\n.target sm_75\n.address_size 64\n"
                          ".visible .entry add_one(.param .u64 data)\n{\n"
                          ".reg .u64 %rd<2>;\n.reg .u32 %r<3>;\n"
                          "ld.param.u64 %rd0, [data];\ncvta.to.global.u64 %rd1, %rd0;\n"
                          "ld.global.u32 %r1, [%rd1];\nadd.u32 %r2, %r1, 1;\nst.global.u32 [%rd1], %r2;\nret;\n}\n";

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *library;

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

int main(void) {
  double start_s = now_s();
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  int device;
  void *context, *module, *kernel;
  uint64_t data;
  uint32_t value = 41;
  CALL(cuInit, (unsigned), 0);
  CALL(cuDeviceGet, (int *, int), &device, 0);
  printf("init %.9f\n", now_s() - start_s);
  CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, device);
  CALL(cuCtxSetCurrent, (void *), context);
  CALL(cuMemAlloc_v2, (uint64_t *, size_t), &data, 4);
  CALL(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t), data, &value, 4);
  CALL(cuModuleLoadData, (void **, const void *), &module, ptx);
  CALL(cuModuleGetFunction, (void **, void *, const char *), &kernel, module, "add_one");
  int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                void **) = find("cuLaunchKernel");
  int (*synchronize)(void) = find("cuCtxSynchronize");
  int (*download)(void *, uint64_t, size_t) = find("cuMemcpyDtoH_v2");
  void *parameters[] = {&data};
  check(launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL), "cuLaunchKernel");
  check(download(&value, data, 4), "cuMemcpyDtoH_v2");
  printf("first_result %.9f\n", now_s() - start_s);
  if (value != 42) {
    fprintf(stderr, "wrong result %u\n", value);
    return 1;
  }
  for (int i = 0; i < WARM_UP; i++)
    check(download(&value, data, 4), "cuMemcpyDtoH_v2");
  start_s = now_s();
  for (int i = 0; i < CALLS; i++)
    check(download(&value, data, 4), "cuMemcpyDtoH_v2");
  printf("round_trip %.9f\n", (now_s() - start_s) / CALLS);
  double launching_s = 0;
  start_s = now_s();
  for (int done = 0; done < LAUNCHES; done += BATCH) {
    double batch_s = now_s();
    for (int i = 0; i < BATCH; i++)
      check(launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL), "cuLaunchKernel");
    launching_s += now_s() - batch_s;
    check(synchronize(), "cuCtxSynchronize");
  }
  printf("launch_call %.9f\n", launching_s / LAUNCHES);
  printf("launch_done %.9f\n", (now_s() - start_s) / LAUNCHES);
  check(download(&value, data, 4), "cuMemcpyDtoH_v2");
  if (value != 42 + LAUNCHES) {
    fprintf(stderr, "wrong result %u after %d launches\n", value, LAUNCHES);
    return 1;
  }
  return 0;
}
