/* Devices as the program sees them: the inventory's, selected and ordered by CUDA_VISIBLE_DEVICES. */
#ifndef VGS_DEVICE_H
#define VGS_DEVICE_H

#include "vgs_inventory.h"
#include "vgw_cuda.h"

/* The version that cuDriverGetVersion last returned to this thread: before cuInit the host's version is unknown. */
int vgs_driver_version_answered(void);

/* Select the visible devices once, by CUDA_VISIBLE_DEVICES or NULL; the session is open. Returns their number. */
int vgs_device_select(const char *list);

/* The device's description, or NULL for an ordinal that is not visible. */
const struct vgs_device *vgs_device(CUdevice device);

/* The device's ordinal on the wire; `device` must be visible. */
CUdevice vgs_device_wire(CUdevice device);
int vgs_device_count(void);

/* The visible device of an ordinal on the wire; -1: none. */
CUdevice vgs_device_of_wire(CUdevice wire);

/* Whether a device can address the memory of another; both must be visible. */
bool vgs_device_reaches(CUdevice device, CUdevice peer);

#endif
