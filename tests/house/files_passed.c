/* Prints the functions of libcuda that two calls run, one line `call offset` for each function (files_passed.py). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define UNTRACED __attribute__((no_instrument_function))

enum { RUN_MAX = 65536, WARM_UP = 3 };
static _Thread_local int traced;
static void *run[RUN_MAX];
static unsigned run_count;

UNTRACED void __cyg_profile_func_enter(void *function, void *site);
UNTRACED void __cyg_profile_func_exit(void *function, void *site);

void __cyg_profile_func_enter(void *function, void *site) {
  (void)site;
  if (traced && run_count < RUN_MAX)
    run[run_count++] = function;
}

void __cyg_profile_func_exit(void *function, void *site) { (void)function, (void)site; }

static const char image[] = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }\n";

static void *library;

static void *find(const char *name) {
  void *found = dlsym(library, name);
  if (!found) {
    fprintf(stderr, "no %s\n", name);
    exit(1);
  }
  return found;
}

static void check(int result, const char *what) {
  if (result) {
    fprintf(stderr, "%s: %d\n", what, result);
    exit(1);
  }
}

static void report(const char *call) {
  Dl_info where;
  for (unsigned i = 0; i < run_count; i++)
    if (dladdr(run[i], &where))
      printf("%s %#lx\n", call, (unsigned long)((char *)run[i] - (char *)where.dli_fbase));
  run_count = 0;
}

int main(void) {
  int device;
  void *context, *module, *kernel;
  uint64_t memory;
  char *bytes = calloc(1, 1024);
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library || !bytes) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  check(((int (*)(unsigned))find("cuInit"))(0), "cuInit");
  check(((int (*)(int *, int))find("cuDeviceGet"))(&device, 0), "cuDeviceGet");
  check(((int (*)(void **, unsigned, int))find("cuCtxCreate_v2"))(&context, 0, device), "cuCtxCreate");
  check(((int (*)(uint64_t *, size_t))find("cuMemAlloc_v2"))(&memory, 1024), "cuMemAlloc");
  check(((int (*)(void **, const void *))find("cuModuleLoadData"))(&module, image), "cuModuleLoadData");
  check(((int (*)(void **, void *, const char *))find("cuModuleGetFunction"))(&kernel, module, "k"), "function");
  int (*copy)(uint64_t, const void *, size_t) = find("cuMemcpyHtoD_v2");
  int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                void **) = find("cuLaunchKernel");
  int (*synchronize)(void) = find("cuCtxSynchronize");
  for (int i = 0; i < WARM_UP; i++) { /* exclude what only a first call does */
    check(launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), "cuLaunchKernel");
    check(copy(memory, bytes, 1024), "cuMemcpyHtoD");
    check(synchronize(), "cuCtxSynchronize");
  }
  traced = 1;
  int copied = copy(memory, bytes, 1024);
  traced = 0;
  check(copied, "cuMemcpyHtoD");
  report("cuMemcpyHtoD");
  traced = 1;
  int launched = launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
  traced = 0;
  check(launched, "cuLaunchKernel");
  report("cuLaunchKernel");
  return 0;
}
