#ifndef VGT_FUZZ_DRIVER_H
#define VGT_FUZZ_DRIVER_H

#include "vgx_backend.h"

/* The table of a driver that works as `simulator` does, but for the call that shall fail (vgt_fuzz_faults.h). */
const struct vgx_backend *vgt_driver(const struct vgx_backend *simulator);

/* The same as a driver that has few functions. */
const struct vgx_backend *vgt_driver_of_few(void);

/* Whether streams write and wait for words of host memory, as NVIDIA's driver does. */
void vgt_driver_words(bool has);

/* In how many forms a kernel node's parameters come back, one after another. */
enum { VGT_KERNEL_NODE_FORMS = 5 };

/* Which entries of the account of device memory can be made. */
enum vgt_accounts { VGT_ACCOUNTS_WHOLE, VGT_ACCOUNTS_PARTLY, VGT_ACCOUNTS_NOT };
void vgt_driver_accounts(enum vgt_accounts how);

/* Whether a recording's file takes no more. */
void vgt_driver_disk_full(bool is_full);

/* What NVML says that the process has of the device; 0: little, and changing (vgt_fuzz_nvml.c). */
void vgt_nvml_uses(uint64_t nbytes);

#endif
