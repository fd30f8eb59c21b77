/* A replacement libcuda. Like NVIDIA's, its cuGetProcAddress returns internal functions, not the exported ones (built
 * with -Bsymbolic). cuInit returns VGT_RESULT and sets errno to 7. Every unknown name is a function that returns 999,
 * so that a CUDA runtime gets as far as cuInit. -DFIRST_FORM_ONLY: a driver of 11.x. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int cuInit(unsigned flags) {
  const char *result = getenv("VGT_RESULT");
  errno = 7;
  return flags ? 1 : result ? atoi(result) : 999;
}

int cuDriverGetVersion(int *version) {
  *version = 13000;
  return 0;
}

int cuMemAlloc_v2(uint64_t *address, size_t nbytes) { return address && nbytes ? 2 : 1; }

static int anything(void) { return 999; }
static int hidden_init(unsigned flags) { return cuInit(flags); }
static int hidden_proc(const char *symbol, void **pfn, int version, uint64_t flags);
#ifndef FIRST_FORM_ONLY
static int hidden_proc_v2(const char *symbol, void **pfn, int version, uint64_t flags, int *status);
#endif

static void *find(const char *symbol, int version) {
  if (!strcmp(symbol, "cuInit"))
    return (void *)hidden_init;
  if (!strcmp(symbol, "cuDriverGetVersion"))
    return (void *)cuDriverGetVersion;
#ifndef FIRST_FORM_ONLY
  if (!strcmp(symbol, "cuGetProcAddress") && version >= 12000)
    return (void *)hidden_proc_v2;
#endif
  if (!strcmp(symbol, "cuGetProcAddress"))
    return (void *)hidden_proc;
  (void)version;
  return *symbol && strcmp(symbol, "cuNothing") ? (void *)anything : NULL;
}

static int hidden_proc(const char *symbol, void **pfn, int version, uint64_t flags) {
  (void)flags;
  *pfn = find(symbol, version);
  return *pfn ? 0 : 500;
}

int cuGetProcAddress(const char *symbol, void **pfn, int version, uint64_t flags) {
  return hidden_proc(symbol, pfn, version, flags);
}

#ifndef FIRST_FORM_ONLY
static int hidden_proc_v2(const char *symbol, void **pfn, int version, uint64_t flags, int *status) {
  (void)flags;
  *pfn = find(symbol, version);
  if (status)
    *status = !*pfn;
  return 0;
}

int cuGetProcAddress_v2(const char *symbol, void **pfn, int version, uint64_t flags, int *status) {
  return hidden_proc_v2(symbol, pfn, version, flags, status);
}
#endif
