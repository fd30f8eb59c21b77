#ifndef VGT_FUZZ_HOST_H
#define VGT_FUZZ_HOST_H

#include <stdint.h>

#include "vgx_backend.h"
#include "vgx_serve.h"

/* The worker's part, and what vgpud decides. Once, before the first session: the simulator, and what the process's
 * number says of it (enum vgt_process). */
void vgt_host_init(unsigned process);

const struct vgx_backend *vgt_host_backend(void);

/* What vgpud decides for a session; the input's length chooses it, so that a replay has the same. The next call changes
 * it; `region_fd` is the caller's to close. */
const struct vgx_serve_options *vgt_host_options(uint32_t chosen);

#endif
