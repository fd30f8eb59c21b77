/* Devices' properties, versions, and looking up driver functions. */
#include "vgs_rt_api.h"
#include "vgs_rt_context.h"
#include "vgs_rt_init.h"
#include "vgs_rt_tables.h"
#include <string.h>

int vgs_cudaDriverGetVersion(const struct vgs_rt_driver *cu, int *driverVersion) {
  if (!driverVersion)
    return CUDA_ERROR_INVALID_VALUE;
  if (vgs_rt_load())
    return cu->cuDriverGetVersion(driverVersion);
  *driverVersion = 0; /* documented: no driver is version 0, not an error */
  return CUDA_SUCCESS;
}

int vgs_cudaRuntimeGetVersion(const struct vgs_rt_driver *cu, int *runtimeVersion) {
  (void)cu;
  if (!runtimeVersion)
    return CUDA_ERROR_INVALID_VALUE;
  *runtimeVersion = VGS_RT_VERSION;
  return CUDA_SUCCESS;
}

int vgs_cudaGetDeviceCount(const struct vgs_rt_driver *cu, int *count) {
  (void)cu;
  if (!count)
    return CUDA_ERROR_INVALID_VALUE;
  int result = vgs_rt_enter_driver();
  if (!result)
    *count = vgs_rt_device_count();
  return result;
}

/* Fills exactly the struct's size; what no attribute gives stays zero. */
static int fill_properties(const struct vgs_rt_driver *cu, const struct vgs_rt_property_layout *layout, void *prop,
                           int device) {
  enum { NAME_NBYTES = 256, NBYTES_MAX = 2048 };
  unsigned char filled[NBYTES_MAX] = {0};
  CUuuid uuid;
  size_t total;
  if (!prop)
    return CUDA_ERROR_INVALID_VALUE;
  int result = cu->cuDeviceGetName((char *)filled, NAME_NBYTES, device);
  if (!result)
    result = cu->cuDeviceGetUuid(&uuid, device);
  if (!result)
    result = cu->cuDeviceTotalMem_v2(&total, device);
  if (result)
    return result;
  memcpy(filled + layout->uuid, &uuid, sizeof uuid);
  memcpy(filled + layout->total_memory, &total, sizeof total);
  for (size_t i = 0; i < layout->count; i++) {
    const struct vgs_rt_property *property = &layout->properties[i];
    int value = 0;
    result = cu->cuDeviceGetAttribute(&value, property->attribute, device);
    if (result == CUDA_ERROR_INVALID_VALUE)
      continue; /* a driver older than the attribute */
    if (result)
      return result;
    size_t wide = (size_t)value;
    memcpy(filled + property->offset, property->nbytes == 8 ? (void *)&wide : (void *)&value, property->nbytes);
  }
  memcpy(prop, filled, layout->nbytes);
  return CUDA_SUCCESS;
}

/* In 12 the plain name still has the layout of 11; headers of 12 call `_v2`. */
int vgs_cudaGetDeviceProperties(const struct vgs_rt_driver *cu, void *prop, int device) {
#if VGS_RT_MAJOR == 12
  return fill_properties(cu, &vgs_rt_properties_old, prop, device);
}

int vgs_cudaGetDeviceProperties_v2(const struct vgs_rt_driver *cu, void *prop, int device) {
#endif
  return fill_properties(cu, &vgs_rt_properties_current, prop, device);
}

/* An unknown name is not an error: it is reported by the status, even if the caller passes no status. 11 has no status,
 * and returns the error. */
static int entry_point(const struct vgs_rt_driver *cu, const char *symbol, void **function, int version, uint64_t flags,
                       int *status) {
  enum { DEFAULT = 0, PER_THREAD = 2 };
  if (!symbol || !function)
    return CUDA_ERROR_INVALID_VALUE;
  if (flags == DEFAULT && cu == &vgs_rt_driver_per_thread)
    flags = PER_THREAD;
  return cu->cuGetProcAddress_v2(symbol, function, version, flags, status);
}

#if VGS_RT_MAJOR == 11
int vgs_cudaGetDriverEntryPoint(const struct vgs_rt_driver *cu, const char *symbol, void **function, uint64_t flags) {
  enum { FOUND = 0 };
  int status = FOUND;
  int result = entry_point(cu, symbol, function, VGS_RT_VERSION, flags, &status);
  return !result && status != FOUND ? CUDA_ERROR_NOT_FOUND : result;
}
#else
int vgs_cudaGetDriverEntryPoint(const struct vgs_rt_driver *cu, const char *symbol, void **function, uint64_t flags,
                                int *driverStatus) {
  return entry_point(cu, symbol, function, VGS_RT_VERSION, flags, driverStatus);
}

int vgs_cudaGetDriverEntryPointByVersion(const struct vgs_rt_driver *cu, const char *symbol, void **function,
                                         unsigned int cudaVersion, uint64_t flags, int *driverStatus) {
  return entry_point(cu, symbol, function, (int)cudaVersion, flags, driverStatus);
}
#endif
