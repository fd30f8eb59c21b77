#include "vgs_device.h"
#include "vgs_api.h"
#include "vgs_session.h"
#include "vgs_visible.h"
#include "vgw_enums.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DRIVER_VERSION = 13000 }; /* before the first session */

static pthread_mutex_t visible_lock = PTHREAD_MUTEX_INITIALIZER;
static int visible_count = -1; /* -1: not read yet */
static int visible[VGS_DEVICE_MAX];

int vgs_device_select(const char *list) {
  pthread_mutex_lock(&visible_lock);
  if (visible_count < 0)
    __atomic_store_n(&visible_count, vgs_visible_select(list, vgs_inventory(), visible), __ATOMIC_RELEASE);
  pthread_mutex_unlock(&visible_lock);
  return visible_count;
}

int vgs_device_count(void) {
  int count = __atomic_load_n(&visible_count, __ATOMIC_ACQUIRE);
  return count < 0 ? 0 : count;
}

const struct vgs_device *vgs_device(CUdevice device) {
  if (device < 0 || device >= vgs_device_count())
    return NULL;
  return &vgs_inventory()->devices[visible[device]];
}

CUdevice vgs_device_wire(CUdevice device) { return visible[device]; }

CUdevice vgs_device_of_wire(CUdevice wire) {
  CUdevice device = vgs_device_count() - 1;
  while (device >= 0 && visible[device] != wire)
    device--;
  return device;
}

static _Thread_local int answered_version; /* 0: this thread has not asked */

CUresult vgs_cuDriverGetVersion(int *driverVersion) {
  if (!driverVersion)
    return CUDA_ERROR_INVALID_VALUE;
  int32_t told = vgs_life_is_open() ? vgs_inventory()->driver_version : 0;
  *driverVersion = answered_version = told ? told : DRIVER_VERSION;
  return CUDA_SUCCESS;
}

int vgs_driver_version_answered(void) {
  int version = answered_version;
  if (!version)
    vgs_cuDriverGetVersion(&version);
  return version;
}

CUresult vgs_cuDeviceGetName(char *name, int len, CUdevice dev) {
  const struct vgs_device *device = vgs_device(dev);
  if (!name || len < 1)
    return CUDA_ERROR_INVALID_VALUE;
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  snprintf(name, (size_t)len, "%s", device->name); /* cut to fit, as the driver does */
  return CUDA_SUCCESS;
}

CUresult vgs_cuDeviceGetUuid(CUuuid *uuid, CUdevice dev) {
  const struct vgs_device *device = vgs_device(dev);
  if (!uuid)
    return CUDA_ERROR_INVALID_VALUE;
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  memcpy(uuid->bytes, device->uuid, sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

CUresult vgs_cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev) { return vgs_cuDeviceGetUuid(uuid, dev); }

CUresult vgs_cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
  const struct vgs_device *device = vgs_device(dev);
  if (!bytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  *bytes = device->memory_nbytes;
  return CUDA_SUCCESS;
}

CUresult vgs_cuDeviceTotalMem(unsigned int *bytes, CUdevice dev) {
  size_t nbytes;
  CUresult result = vgs_cuDeviceTotalMem_v2(bytes ? &nbytes : NULL, dev);
  if (!result)
    *bytes = nbytes > UINT32_MAX ? UINT32_MAX : (unsigned)nbytes;
  return result;
}

/* The device's attribute, corrected for the channel: where no memory is shared, managed memory is mirrored
 * (vgs_host_mirror.h), and host and device may not use it at once. */
static int channel_attribute(int attribute, int value) {
  return attribute == CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS && !vgs_session_shares_memory() ? 0 : value;
}

CUresult vgs_cuDeviceGetAttribute(int *pi, int attrib, CUdevice dev) {
  const struct vgs_device *device = vgs_device(dev);
  if (!pi || attrib < 0 || attrib >= VGS_ATTRIBUTE_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  if (device->attributes[attrib] == VGS_ATTRIBUTE_INVALID)
    return CUDA_ERROR_INVALID_VALUE;
  *pi = channel_attribute(attrib, device->attributes[attrib]);
  return CUDA_SUCCESS;
}

CUresult vgs_cuDeviceGetProperties(CUdevprop *prop, CUdevice dev) {
  const struct vgs_device *device = vgs_device(dev);
  if (!prop)
    return CUDA_ERROR_INVALID_VALUE;
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  const int32_t *a = device->attributes;
  *prop = (CUdevprop){.maxThreadsPerBlock = a[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK],
                      .maxThreadsDim = {a[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X], a[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y],
                                        a[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z]},
                      .maxGridSize = {a[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X], a[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y],
                                      a[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z]},
                      .sharedMemPerBlock = a[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK],
                      .totalConstantMemory = a[CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY],
                      .SIMDWidth = a[CU_DEVICE_ATTRIBUTE_WARP_SIZE],
                      .memPitch = a[CU_DEVICE_ATTRIBUTE_MAX_PITCH],
                      .regsPerBlock = a[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK],
                      .clockRate = a[CU_DEVICE_ATTRIBUTE_CLOCK_RATE],
                      .textureAlign = a[CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT]};
  return CUDA_SUCCESS;
}

CUresult vgs_cuDeviceComputeCapability(int *major, int *minor, CUdevice dev) {
  const struct vgs_device *device = vgs_device(dev);
  if (!major || !minor)
    return CUDA_ERROR_INVALID_VALUE;
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  *major = device->attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR];
  *minor = device->attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR];
  return CUDA_SUCCESS;
}

CUresult vgs_cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev) {
  const struct vgs_device *device = vgs_device(dev);
  if (!pciBusId)
    return CUDA_ERROR_INVALID_VALUE;
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  if (len <= (int)strlen(device->pci))
    return CUDA_ERROR_INVALID_VALUE;
  strcpy(pciBusId, device->pci);
  return CUDA_SUCCESS;
}

CUresult vgs_cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId) {
  unsigned domain, bus, slot, function;
  char end;
  if (!dev || !pciBusId)
    return CUDA_ERROR_INVALID_VALUE;
  int fields = sscanf(pciBusId, "%x:%x:%x.%x%c", &domain, &bus, &slot, &function, &end);
  if (fields != 4) {
    function = 0;
    if (sscanf(pciBusId, "%x:%x:%x%c", &domain, &bus, &slot, &end) != 3) {
      domain = 0;
      if (sscanf(pciBusId, "%x:%x.%x%c", &bus, &slot, &function, &end) != 3)
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  for (CUdevice device = 0; device < vgs_device_count(); device++) {
    unsigned own[4];
    if (sscanf(vgs_device(device)->pci, "%x:%x:%x.%x", &own[0], &own[1], &own[2], &own[3]) == 4 && own[0] == domain &&
        own[1] == bus && own[2] == slot && own[3] == function) {
      *dev = device;
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

enum { PEER_ACCESS_SUPPORTED = 2 }; /* CUdevice_P2PAttribute */

static int peer_attribute(CUdevice device, CUdevice peer, int attribute) {
  return vgs_device(device)->peers[vgs_device_wire(peer)][attribute - 1];
}

bool vgs_device_reaches(CUdevice device, CUdevice peer) {
  return device != peer && peer_attribute(device, peer, PEER_ACCESS_SUPPORTED) == 1;
}

CUresult vgs_cuDeviceGetP2PAttribute(int *value, int attrib, CUdevice srcDevice, CUdevice dstDevice) {
  if (!value || attrib < 1 || attrib > VGS_PEER_ATTRIBUTES)
    return CUDA_ERROR_INVALID_VALUE;
  if (!vgs_device(srcDevice) || !vgs_device(dstDevice) || srcDevice == dstDevice)
    return CUDA_ERROR_INVALID_DEVICE;
  *value = peer_attribute(srcDevice, dstDevice, attrib);
  return CUDA_SUCCESS;
}

CUresult vgs_cuDeviceGetTexture1DLinearMaxWidth(size_t *maxWidthInElements, int format, unsigned int numChannels,
                                                CUdevice dev) {
  const struct vgs_device *device = vgs_device(dev);
  if (!maxWidthInElements || (numChannels != 1 && numChannels != 2 && numChannels != 4))
    return CUDA_ERROR_INVALID_VALUE;
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  unsigned element_nbytes;
  switch (format) { /* CUarray_format */
  case 0x01:        /* unsigned 8 */
  case 0x08:        /* signed 8 */
    element_nbytes = 1;
    break;
  case 0x02: /* unsigned 16 */
  case 0x09: /* signed 16 */
  case 0x10: /* half */
    element_nbytes = 2;
    break;
  case 0x03: /* unsigned 32 */
  case 0x0a: /* signed 32 */
  case 0x20: /* float */
    element_nbytes = 4;
    break;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
  int32_t width = device->attributes[CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH];
  if (width <= 0)
    return CUDA_ERROR_NOT_SUPPORTED;
  *maxWidthInElements = (size_t)width / (element_nbytes * numChannels > 4 ? element_nbytes * numChannels / 4 : 1);
  return CUDA_SUCCESS;
}

CUresult vgs_cuDeviceGetExecAffinitySupport(int *pi, int type, CUdevice dev) {
  if (!pi || type != 0) /* CU_EXEC_AFFINITY_TYPE_SM_COUNT */
    return CUDA_ERROR_INVALID_VALUE;
  if (!vgs_device(dev))
    return CUDA_ERROR_INVALID_DEVICE;
  *pi = 0;
  return CUDA_SUCCESS;
}
