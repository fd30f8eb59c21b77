/* Sealed memory files, which the host maps, too. */
#ifndef VGS_MEMFD_H
#define VGS_MEMFD_H

#include <stdint.h>

/* A file of `nbytes` that can neither shrink nor grow, as the worker demands; the caller closes it. -1: the kernel
 * refuses it, or RLIMIT_FSIZE does not allow a file of that size. Keeps errno on success. */
int vgs_memfd_create(const char *name, uint64_t nbytes);

#endif
