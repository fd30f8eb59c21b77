/* Kernels. CUfunction parameters accept a CUkernel too, as the driver does: NVIDIA's runtime 13 launches nothing else.
 */
#include "vgs_kernel.h"
#include "vgs_api.h"
#include "vgs_demangle.h"
#include "vgs_device.h"
#include "vgs_enter.h"
#include "vgs_reason.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DESCRIPTION_NBYTES = 1 << 18 };

struct vgs_kernel *vgs_kernel_make(enum vgw_kind kind, uint32_t owner_id, uint32_t context_id, const char *name) {
  struct vgs_kernel *kernel = vgs_object_create(kind, context_id);
  if (!kernel)
    return NULL;
  kernel->owner_id = owner_id;
  kernel->name = strdup(name);
  if (!kernel->name) {
    vgs_object_destroy(kernel);
    return NULL;
  }
  return kernel;
}

static unsigned row_count(const struct vgs_kernel *kernel) {
  return kernel->object.kind == VGW_KIND_KERNEL ? (unsigned)vgs_device_count() : 1;
}

static void fill_row(struct vgs_kernel *kernel, unsigned row, const struct vgw_kernel_description *description) {
  for (int i = 0; i < VGW_FUNC_ATTRIBUTE_COUNT; i++)
    __atomic_store_n(&kernel->attributes[row][i], description->attributes[i], __ATOMIC_RELAXED);
}

/* Copy a kernel's first description, if it is consistent; it serves every device until the device's own is known. */
static CUresult accept(struct vgs_kernel *kernel, const struct vgw_kernel_description *description) {
  enum { PARAMS_MAX = (DESCRIPTION_NBYTES - sizeof *description) / sizeof(struct vgw_param) };
  if (description->param_count > PARAMS_MAX || description->param_nbytes > 32768)
    return CUDA_ERROR_UNKNOWN;
  const struct vgw_param *params = (const struct vgw_param *)(description + 1);
  for (uint32_t i = 0; i < description->param_count; i++)
    if (params[i].offset > description->param_nbytes || params[i].nbytes > description->param_nbytes - params[i].offset)
      return CUDA_ERROR_UNKNOWN;
  size_t nbytes = description->param_count * sizeof *params;
  kernel->params = malloc(nbytes ? nbytes : 1);
  kernel->attributes = calloc(row_count(kernel), sizeof *kernel->attributes);
  if (!kernel->params || !kernel->attributes) {
    free(kernel->params);
    free(kernel->attributes);
    kernel->params = NULL;
    kernel->attributes = NULL;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memcpy(kernel->params, params, nbytes);
  kernel->param_count = description->param_count;
  kernel->param_nbytes = description->param_nbytes;
  for (unsigned row = 0; row < row_count(kernel); row++)
    fill_row(kernel, row, description);
  return CUDA_SUCCESS;
}

CUresult vgs_kernel_describe(struct vgs_kernel *kernel) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  if (kernel->missing)
    return kernel->missing;
  const struct vgs_context *context = vgs_context_current(); /* the worker describes the kernel in this context */
  unsigned row = vgs_kernel_row(kernel, context ? context->device : 0);
  uint64_t bit = 1ull << row;
  if (__atomic_load_n(&kernel->described, __ATOMIC_ACQUIRE) & bit)
    return CUDA_SUCCESS;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&lock);
  struct vgw_kernel_description *description = calloc(1, DESCRIPTION_NBYTES);
  uint64_t known = __atomic_load_n(&kernel->described, __ATOMIC_ACQUIRE);
  if (known & bit)
    result = CUDA_SUCCESS;
  else if (description) {
    result = vgs_send_vgpuKernelDescribe(kernel->object.kind, kernel->object.id, DESCRIPTION_NBYTES, description);
    if (!result && known)
      fill_row(kernel, row, description);
    else if (!result)
      result = accept(kernel, description);
    if (!result)
      __atomic_store_n(&kernel->described, known | bit, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&lock);
  free(description);
  return result;
}

enum { REFUSAL_NBYTES = 1024 };

/* Write why a kernel cannot run; `effect`: the consequence, or "". */
static void describe_refusal(const struct vgs_kernel *kernel, CUresult result, const char *effect, char *text) {
  char *readable = vgs_demangle(kernel->name);
  snprintf(text, REFUSAL_NBYTES, "kernel %.300s cannot run (%d)%s: %s", readable ? readable : kernel->name, (int)result,
           effect, kernel->reason ? kernel->reason : "its image was refused");
  free(readable);
}

CUresult vgs_kernel_prepare(struct vgs_kernel *kernel) {
  CUresult result = vgs_kernel_describe(kernel);
  if (result && kernel->missing) {
    char text[REFUSAL_NBYTES];
    describe_refusal(kernel, result, "", text);
    vgs_reason_end_context(result, text);
  }
  return result;
}

/* Reported once per process. CUB, in CuPy, ignores the error and leaves its results unwritten; NCCL asks for the
 * attributes of all its kernels. */
static void report_refused_attribute(const struct vgs_kernel *kernel, CUresult result) {
  static bool reported;
  if (!kernel->missing || __atomic_exchange_n(&reported, true, __ATOMIC_RELAXED))
    return;
  char text[REFUSAL_NBYTES];
  describe_refusal(kernel, result, ", and its caller may go on without it", text);
  vgs_reason_report(result, text);
}

static CUresult get_attribute(int *pi, int attrib, struct vgs_kernel *kernel, CUdevice device) {
  if (!pi || attrib < 0 || attrib >= VGW_FUNC_ATTRIBUTE_COUNT)
    return CUDA_ERROR_INVALID_VALUE;
  if (!kernel)
    return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = vgs_kernel_describe(kernel);
  if (result) {
    report_refused_attribute(kernel, result);
    return result;
  }
  int value = __atomic_load_n(vgs_kernel_attribute_at(kernel, device, attrib), __ATOMIC_RELAXED);
  if (value == INT_MIN)
    return CUDA_ERROR_INVALID_VALUE;
  *pi = value;
  return CUDA_SUCCESS;
}

static bool is_settable(int attrib) {
  return attrib == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
         attrib == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT ||
         (attrib >= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH && attrib < VGW_FUNC_ATTRIBUTE_COUNT);
}

CUresult vgs_kernel_check_settable(struct vgs_kernel *kernel, int attrib) {
  return is_settable(attrib) ? vgs_kernel_describe(kernel) : CUDA_ERROR_INVALID_VALUE;
}

bool vgs_kernel_has(const struct vgs_kernel *kernel, CUdevice device, int attrib, int value) {
  uint64_t known = __atomic_load_n(&kernel->described, __ATOMIC_ACQUIRE);
  return known >> vgs_kernel_row(kernel, device) & 1 &&
         __atomic_load_n(vgs_kernel_attribute_at(kernel, device, attrib), __ATOMIC_RELAXED) == value;
}

void vgs_kernel_set(struct vgs_kernel *kernel, CUdevice device, int attrib, int value) {
  __atomic_store_n(vgs_kernel_attribute_at(kernel, device, attrib), value, __ATOMIC_RELAXED);
}

static CUresult param_info(struct vgs_kernel *kernel, size_t index, size_t *offset, size_t *nbytes) {
  if (!kernel)
    return CUDA_ERROR_INVALID_HANDLE;
  if (!offset)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgs_kernel_describe(kernel);
  if (result)
    return result;
  if (index >= kernel->param_count)
    return CUDA_ERROR_INVALID_VALUE;
  *offset = kernel->params[index].offset;
  if (nbytes)
    *nbytes = kernel->params[index].nbytes;
  return CUDA_SUCCESS;
}

/* `handle` NULL is a bad value, not a bad handle. */
static CUresult name_of(const char **name, const void *handle, const struct vgs_kernel *kernel) {
  if (!name || !handle)
    return CUDA_ERROR_INVALID_VALUE;
  if (!kernel)
    return CUDA_ERROR_INVALID_HANDLE;
  *name = kernel->name;
  return CUDA_SUCCESS;
}

static CUresult check_hint(const struct vgs_kernel *kernel, int config, int greatest) {
  if (!kernel)
    return CUDA_ERROR_INVALID_HANDLE;
  return config < 0 || config > greatest ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* --- functions --- */

CUresult vgs_cuFuncGetAttribute(int *pi, int attrib, CUfunction hfunc) {
  return get_attribute(pi, attrib, vgs_kernel_find(hfunc), vgs_context_entered->device);
}

CUresult vgs_cuFuncGetName(const char **name, CUfunction hfunc) { return name_of(name, hfunc, vgs_kernel_find(hfunc)); }

const char *vgs_kernel_traced_name(const void *handle) {
  const struct vgs_kernel *kernel = vgs_kernel_find(handle);
  return kernel ? kernel->name : "?";
}

/* A kernel made by cuModuleGetFunction knows its module's id; the handle is put together from it. */
static void *owner_handle(const struct vgs_kernel *kernel, enum vgw_kind kind) {
  struct vgs_object owner = {.id = kernel->owner_id, .kind = (uint16_t)kind, .epoch = kernel->object.epoch};
  return vgs_object_handle(&owner);
}

CUresult vgs_cuFuncGetModule(CUmodule *hmod, CUfunction hfunc) {
  struct vgs_kernel *kernel = vgs_kernel_find(hfunc);
  if (!hmod)
    return CUDA_ERROR_INVALID_VALUE;
  if (!kernel)
    return CUDA_ERROR_INVALID_HANDLE;
  if (kernel->object.kind == VGW_KIND_KERNEL)
    return vgs_cuLibraryGetModule(hmod, owner_handle(kernel, VGW_KIND_LIBRARY));
  *hmod = owner_handle(kernel, VGW_KIND_MODULE);
  return CUDA_SUCCESS;
}

CUresult vgs_cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset, size_t *paramSize) {
  return param_info(vgs_kernel_find(func), paramIndex, paramOffset, paramSize);
}

CUresult vgs_cuFuncSetCacheConfig(CUfunction hfunc, int config) {
  return check_hint(vgs_kernel_find(hfunc), config, 3);
}

CUresult vgs_cuFuncSetSharedMemConfig(CUfunction hfunc, int config) {
  return check_hint(vgs_kernel_find(hfunc), config, 2);
}

/* Loaded means: the worker has compiled or linked it, which its description shows. */
CUresult vgs_cuFuncIsLoaded(int *state, CUfunction function) {
  struct vgs_kernel *kernel = vgs_kernel_find(function);
  if (!state)
    return CUDA_ERROR_INVALID_VALUE;
  if (!kernel)
    return CUDA_ERROR_INVALID_HANDLE;
  *state = __atomic_load_n(&kernel->described, __ATOMIC_ACQUIRE) != 0;
  return CUDA_SUCCESS;
}

CUresult vgs_cuFuncLoad(CUfunction function) {
  struct vgs_kernel *kernel = vgs_kernel_find(function);
  return kernel ? vgs_kernel_describe(kernel) : CUDA_ERROR_INVALID_HANDLE;
}

/* --- kernels of libraries --- */

static struct vgs_kernel *find_kernel(CUkernel kernel) { return vgs_object_find(VGW_KIND_KERNEL, kernel); }

CUresult vgs_cuKernelGetAttribute(int *pi, int attrib, CUkernel kernel, CUdevice dev) {
  return vgs_device(dev) ? get_attribute(pi, attrib, find_kernel(kernel), dev) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult vgs_cuKernelSetCacheConfig(CUkernel kernel, int config, CUdevice dev) {
  return vgs_device(dev) ? check_hint(find_kernel(kernel), config, 3) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult vgs_cuKernelGetName(const char **name, CUkernel kernel) { return name_of(name, kernel, find_kernel(kernel)); }

CUresult vgs_cuKernelGetLibrary(CUlibrary *pLib, CUkernel kernel) {
  struct vgs_kernel *of = find_kernel(kernel);
  if (!pLib)
    return CUDA_ERROR_INVALID_VALUE;
  if (!of)
    return CUDA_ERROR_INVALID_HANDLE;
  *pLib = owner_handle(of, VGW_KIND_LIBRARY);
  return CUDA_SUCCESS;
}

CUresult vgs_cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset, size_t *paramSize) {
  return param_info(find_kernel(kernel), paramIndex, paramOffset, paramSize);
}
