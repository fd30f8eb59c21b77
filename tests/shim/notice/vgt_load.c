/* vgt_load WAY [COUNT]: finds cuInit in one of the ways that programs use, calls cuInit COUNT times (default 1), and
 * prints results, errno, and the results of other functions. -DLINKED: the linker finds cuInit. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int init_function(unsigned flags);
typedef int proc_function(const char *symbol, void **pfn, int version, uint64_t flags);
typedef int proc_v2_function(const char *symbol, void **pfn, int version, uint64_t flags, int *status);
typedef int alloc_function(uint64_t *address, size_t nbytes);

#ifdef LINKED
extern init_function cuInit;
extern alloc_function cuMemAlloc_v2;
#endif

static init_function *by_proc(proc_function *proc) {
  void *init = NULL;
  printf("proc %d ", proc("cuInit", &init, 2000, 0));
  return (init_function *)init;
}

static init_function *by_proc_v2(proc_v2_function *proc) {
  void *init = NULL, *nothing = stdout;
  int status = -1, result = proc("cuNothing", &nothing, 12000, 0, &status);
  printf("nothing %d %d %d ", result, status, nothing != NULL);
  result = proc("cuInit", &init, 2000, 0, &status);
  printf("proc_v2 %d %d ", result, status);
  return (init_function *)init;
}

static init_function *find(void *library, const char *way) {
  void *proc = dlsym(library, "cuGetProcAddress"), *told = NULL;
  if (!strcmp(way, "proc"))
    return by_proc((proc_function *)proc);
  void *proc_v2 = dlsym(library, "cuGetProcAddress_v2");
  if (!strcmp(way, "proc_v2"))
    return by_proc_v2((proc_v2_function *)proc_v2);
  if (!strcmp(way, "told_proc") && !((proc_function *)proc)("cuGetProcAddress", &told, 11030, 0))
    return by_proc((proc_function *)told);
  if (!strcmp(way, "told_proc_v2") && !((proc_v2_function *)proc_v2)("cuGetProcAddress", &told, 12000, 0, NULL))
    return by_proc_v2((proc_v2_function *)told);
  return (init_function *)dlsym(library, "cuInit");
}

int main(int argc, char **argv) {
#ifdef LINKED
  init_function *init = cuInit;
  alloc_function *alloc = cuMemAlloc_v2;
  (void)find;
#else
  const char *way = argc > 1 ? argv[1] : "local";
  int mode = RTLD_NOW | (!strcmp(way, "global") ? RTLD_GLOBAL : RTLD_LOCAL);
  mode |= !strcmp(way, "deepbind") ? RTLD_DEEPBIND : 0;
  void *library = dlopen("libcuda.so.1", mode);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return 3;
  }
  init_function *init = find(!strcmp(way, "default") ? dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) : library, way);
  if (!strcmp(way, "default"))
    init = (init_function *)dlsym(RTLD_DEFAULT, "cuInit");
  alloc_function *alloc = (alloc_function *)dlsym(library, "cuMemAlloc_v2");
#endif
  for (int i = 0, count = argc > 2 ? atoi(argv[2]) : 1; i < count; i++) {
    errno = 5;
    int result = init(0);
    printf("cuInit %d errno %d ", result, errno);
  }
  printf("flags %d alloc %d\n", init(1), alloc(NULL, 0));
  return 0;
}
