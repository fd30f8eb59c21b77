/* Devices of libnvidia-ml. */
#ifndef VGS_NVML_DEVICE_H
#define VGS_NVML_DEVICE_H

#include <stdint.h>

/* "0000:01:00.0" of a device; between vgs_nvml_enter and vgs_nvml_leave. */
const char *vgs_nvml_pci(uint32_t index);

#endif
