/* Fault injection: with VGPU_FAULTS=FUNCTION:N the N-th call of one of the functions below fails, as when memory,
 * descriptors or threads have run out; `driver` stands for all functions of the driver's table (vgt_fuzz_driver.c). It
 * is linked in by -Wl,--wrap (tests/fuzz/build.py), so no shipped library contains it. vgt_faults_count returns
 * how often each function was called. */
#define _GNU_SOURCE
#include "vgt_fuzz_faults.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>

#ifndef VGT_FAULTS
void vgt_faults_init(void) {}
void vgt_faults_arm(bool now) { (void)now; }
void vgt_faults_every(uint32_t period) { (void)period; }
uint64_t vgt_faults_count(int function, const char **name) {
  (void)function, (void)name;
  return UINT64_MAX;
}
#else

enum { MALLOC, CALLOC, REALLOC, MMAP, MEMFD, THREAD, SENDMSG, FALLOCATE, MPROTECT, DRIVER, FUNCTIONS };
static const char *const names[FUNCTIONS] = {"malloc",         "calloc",  "realloc",   "mmap",     "memfd_create",
                                             "pthread_create", "sendmsg", "fallocate", "mprotect", "driver"};
static uint64_t counts[FUNCTIONS]; /* atomic */
static uint64_t failing[FUNCTIONS];
static bool armed; /* atomic */
static _Atomic uint32_t every;

void vgt_faults_init(void) {
  const char *wanted = getenv("VGPU_FAULTS");
  for (int i = 0; wanted && i < FUNCTIONS; i++) {
    size_t length = strlen(names[i]);
    if (!strncmp(wanted, names[i], length) && wanted[length] == ':')
      failing[i] = strtoull(wanted + length + 1, NULL, 10);
  }
}

void vgt_faults_arm(bool now) { __atomic_store_n(&armed, now, __ATOMIC_RELEASE); }

void vgt_faults_every(uint32_t period) { every = period; }

static bool fails(int function) {
  if (!__atomic_load_n(&armed, __ATOMIC_ACQUIRE))
    return false;
  uint64_t count = __atomic_add_fetch(&counts[function], 1, __ATOMIC_RELAXED);
  uint32_t period = every;
  return period ? function != MALLOC && count % period == 0 : count == failing[function];
}

bool vgt_faults_driver_fails(void) { return fails(DRIVER); }

uint64_t vgt_faults_count(int function, const char **name) {
  if (function >= FUNCTIONS)
    return UINT64_MAX;
  *name = names[function];
  return __atomic_load_n(&counts[function], __ATOMIC_RELAXED);
}

#define WRAP(result, name, parameters, arguments, index, failure, code)                                                \
  result __real_##name parameters;                                                                                     \
  result __wrap_##name parameters;                                                                                     \
  result __wrap_##name parameters {                                                                                    \
    if (!fails(index))                                                                                                 \
      return __real_##name arguments;                                                                                  \
    errno = code;                                                                                                      \
    return failure;                                                                                                    \
  }

WRAP(void *, malloc, (size_t nbytes), (nbytes), MALLOC, NULL, ENOMEM)
WRAP(void *, calloc, (size_t count, size_t nbytes), (count, nbytes), CALLOC, NULL, ENOMEM)
WRAP(void *, realloc, (void *old, size_t nbytes), (old, nbytes), REALLOC, NULL, ENOMEM)
WRAP(void *, mmap, (void *at, size_t nbytes, int access, int flags, int fd, off_t offset),
     (at, nbytes, access, flags, fd, offset), MMAP, MAP_FAILED, ENOMEM)
WRAP(int, memfd_create, (const char *name, unsigned flags), (name, flags), MEMFD, -1, EMFILE)
WRAP(int, pthread_create, (pthread_t * thread, const pthread_attr_t *how, void *(*run)(void *), void *with),
     (thread, how, run, with), THREAD, EAGAIN, EAGAIN)
WRAP(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags), SENDMSG, -1, ENOBUFS)
WRAP(int, fallocate, (int fd, int mode, off_t offset, off_t nbytes), (fd, mode, offset, nbytes), FALLOCATE, -1, ENOSPC)
WRAP(int, mprotect, (void *at, size_t nbytes, int access), (at, nbytes, access), MPROTECT, -1, ENOMEM)
#endif
