#define _GNU_SOURCE
#include "vgs_memfd.h"
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Growing a file beyond RLIMIT_FSIZE raises SIGXFSZ, which ends the program; batch systems set that limit. */
static bool is_allowed(uint64_t nbytes) {
  struct rlimit limit;
  return !getrlimit(RLIMIT_FSIZE, &limit) && (limit.rlim_cur == RLIM_INFINITY || nbytes <= limit.rlim_cur);
}

int vgs_memfd_create(const char *name, uint64_t nbytes) {
  if (nbytes > INT64_MAX || !is_allowed(nbytes))
    return -1;
  int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd >= 0 && (ftruncate(fd, (off_t)nbytes) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))) {
    close(fd);
    fd = -1;
  }
  return fd;
}
