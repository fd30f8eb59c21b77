/* libvgpu-notice.so: a libcuda.so.1 in front of the machine's, which shows the notice over another vendor's driver.
 *
 * It has the name every program looks for, needs the next libcuda (by libvgpu-next.so, shim/build_notice.py), and
 * defines three functions. Every other name is found in the next library: the loader and dlsym search the libraries
 * that a library needs after it (ld.so's breadth-first order), so no list of names can become stale here, and no other
 * call costs more. Each function calls the next library's function of the same name and returns its result. Without a
 * driver behind this library, cuInit reports that there is no device, and no notice is shown.
 *
 * It defines no function of libc, so no caller is ever mistaken for another (cases L09, G01, G03). With LD_PRELOAD, it
 * maps the machine's driver, if any, into every program. */
#define _GNU_SOURCE
#include "vgs_notice.h"
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef CUresult init_function(unsigned flags);
typedef CUresult proc_function(const char *symbol, void **pfn, int version, uint64_t flags);
typedef CUresult proc_v2_function(const char *symbol, void **pfn, int version, uint64_t flags, int *status);

EXPORT init_function cuInit;
EXPORT proc_function cuGetProcAddress;
EXPORT proc_v2_function cuGetProcAddress_v2;

static void *next_init, *next_proc, *next_proc_v2; /* NULL: not looked up yet, or absent */
static void *told_init;                            /* the cuInit that the next cuGetProcAddress returned */

/* The next library's function of a name, or NULL. Threads that race find the same. */
static void *next(const char *name, void **cache) {
  void *found = __atomic_load_n(cache, __ATOMIC_ACQUIRE);
  if (found)
    return found;
  int saved = errno;
  found = dlsym(RTLD_NEXT, name);
  errno = saved;
  __atomic_store_n(cache, found, __ATOMIC_RELEASE);
  return found;
}

static CUresult init(init_function *function, unsigned flags) {
  if (!function)
    return CUDA_ERROR_NO_DEVICE; /* without a driver no policy hides a GPU, so there is nothing to explain */
  CUresult result = function(flags);
  vgs_notice_after_init(result);
  return result;
}

CUresult cuInit(unsigned flags) { return init((init_function *)next("cuInit", &next_init), flags); }

static CUresult init_as_told(unsigned flags) {
  return init((init_function *)__atomic_load_n(&told_init, __ATOMIC_ACQUIRE), flags);
}

/* What cuGetProcAddress found, with the three functions of this library in place of the driver's. */
static void substitute(const char *symbol, void **pfn, int version) {
  if (!symbol || !pfn || !*pfn)
    return;
  if (!strcmp(symbol, "cuInit") && *pfn != (void *)cuInit) {
    __atomic_store_n(&told_init, *pfn, __ATOMIC_RELEASE);
    *pfn = (void *)init_as_told;
  } else if (!strcmp(symbol, "cuGetProcAddress")) {
    bool is_v2 = version >= 12000; /* since 12.0 the name means the one with a status */
    if (*pfn == next("cuGetProcAddress", &next_proc))
      is_v2 = false;
    else if (*pfn == next("cuGetProcAddress_v2", &next_proc_v2))
      is_v2 = true;
    *pfn = is_v2 ? (void *)cuGetProcAddress_v2 : (void *)cuGetProcAddress;
  }
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, uint64_t flags) {
  proc_function *function = (proc_function *)next("cuGetProcAddress", &next_proc);
  CUresult result = function ? function(symbol, pfn, version, flags) : CUDA_ERROR_NOT_SUPPORTED;
  if (!result)
    substitute(symbol, pfn, version);
  return result;
}

/* Drivers of 11.3 to 11.8 have only the first form; the status is derived from its result. */
static CUresult from_first_form(const char *symbol, void **pfn, int version, uint64_t flags, int *status) {
  CUresult result = cuGetProcAddress(symbol, pfn, version, flags);
  if (result && result != CUDA_ERROR_NOT_FOUND)
    return result;
  if (result)
    *pfn = NULL;
  if (status)
    *status = result ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, uint64_t flags, int *status) {
  proc_v2_function *function = (proc_v2_function *)next("cuGetProcAddress_v2", &next_proc_v2);
  if (!function)
    return from_first_form(symbol, pfn, version, flags, status);
  CUresult result = function(symbol, pfn, version, flags, status);
  if (!result)
    substitute(symbol, pfn, version);
  return result;
}
