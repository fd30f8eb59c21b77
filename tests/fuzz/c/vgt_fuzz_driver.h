#ifndef VGT_FUZZ_DRIVER_H
#define VGT_FUZZ_DRIVER_H

#include "vgx_backend.h"

/* The table of a driver that works as `simulator` does, but for the call that shall fail (vgt_fuzz_faults.h). */
const struct vgx_backend *vgt_driver(const struct vgx_backend *simulator);

/* The same as a driver that has few functions. */
const struct vgx_backend *vgt_driver_of_few(void);

/* Whether streams write and wait for words of host memory, as NVIDIA's driver does. */
void vgt_driver_words(bool has);

#endif
