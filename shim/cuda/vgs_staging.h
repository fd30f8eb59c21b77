/* Long copies of the program's own memory, through staging memory that the device reaches: pieces are copied by several
 * threads while the device moves others. */
#ifndef VGS_STAGING_H
#define VGS_STAGING_H

#include "vgw_cuda.h"
#include <stdbool.h>
#include <stdint.h>

struct vgs_staged {
  bool to_host;
  uint64_t device; /* address */
  char *host;
  uint64_t nbytes;
  uint32_t stream; /* wire id */
  bool doubtful;   /* the client does not know the device's address: wait for the worker's check */
};

/* Returns when the program may use its memory again: in a copy to the host, when all of it has arrived. False in
 * `*taken`: nothing was done, because no staging memory is available, or another stream's copies hold it. */
CUresult vgs_staging_copy(const struct vgs_staged *copy, bool *taken);

/* The same for a copy to the device of at most VGS_SLOT_NBYTES, in one piece. It waits for no earlier copy: nothing
 * was done, too, if the device still uses the memory that is next. */
CUresult vgs_staging_pass(const struct vgs_staged *copy, bool *taken);

/* The same for a copy to the host of at most VGS_LANDING_NBYTES. */
CUresult vgs_staging_land(const struct vgs_staged *copy, bool *taken);

#endif
