/* Kernels of libraries, and the functions that stand for them in each context. Locking: the runtime lock. */
#include "vgx_sim_kernel.h"

#include <string.h>

#include "vgx_sim_module.h"
#include "vgx_sim_queue.h"
#include "vgx_sim_runtime.h"

static bool is_kernel(CUkernel k) { return k && k->magic == VGX_SIM_KERNEL; }

static const struct vgx_sim_device *device_of(CUfunction f) {
  return f->module->ctx ? f->module->ctx->device : vgx_sim_device_at(0);
}

/* Whether an attribute can be set to this value on a device. */
static CUresult check(const struct vgx_sim_device *device, CUfunction f, int attribute, int value) {
  int64_t most;
  switch (attribute) {
  case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
    most = vgx_sim_attribute(device, VGX_SIM_SHARED_PER_BLOCK_OPTIN, 49152) - f->info.shared_nbytes;
    if (value < 0 || value > most)
      return CUDA_ERROR_INVALID_VALUE;
    break;
  case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: /* a hint: there is no L1 to share with */
    if (value < -1 || value > 100)
      return CUDA_ERROR_INVALID_VALUE;
    break;
  case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
  case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    break;
  case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
  case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
  case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
    if (value < 0 || f->info.cluster[0]) /* the kernel's own attributes keep their values */
      return CUDA_ERROR_INVALID_VALUE;
    break;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult vgx_sim_function_set(CUfunction f, int attribute, int value) {
  CUresult result = check(device_of(f), f, attribute, value);
  if (result != CUDA_SUCCESS)
    return result;
  vgx_sim_lock();
  f->attributes[attribute] = value;
  vgx_sim_unlock();
  return CUDA_SUCCESS;
}

/* Runtime lock held. */
static CUmodule module_in(CUlibrary library, CUcontext ctx) {
  CUmodule m = library->modules;
  while (m && m->ctx != ctx)
    m = m->library_next;
  return m;
}

CUresult vgx_sim_library_module(CUlibrary library, CUcontext ctx, CUmodule *module) {
  vgx_sim_lock();
  CUmodule m = module_in(library, ctx);
  vgx_sim_unlock();
  if (m) {
    *module = m;
    return CUDA_SUCCESS;
  }
  CUmodule made;
  CUresult result = vgx_sim_module_load(ctx, library, library->image, library->nbytes, &made);
  if (result != CUDA_SUCCESS)
    return result;
  vgx_sim_lock();
  m = module_in(library, ctx);
  if (!m) {
    made->library_next = library->modules;
    library->modules = m = made;
  }
  vgx_sim_unlock();
  *module = m; /* if another thread was faster, `made` stays unused in its context until that ends */
  return CUDA_SUCCESS;
}

/* The function that stands for the kernel in a context. It takes over what was set on the kernel since it was last
 * looked up, so that what cuFuncSetAttribute sets later stays. */
static CUresult function_in(CUkernel kernel, CUcontext ctx, CUfunction *function) {
  CUmodule m;
  if (!is_kernel(kernel))
    return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = vgx_sim_library_module(kernel->library, ctx, &m);
  if (result == CUDA_SUCCESS)
    result = vgx_sim_module_function(m, kernel->name, function);
  if (result != CUDA_SUCCESS)
    return result;
  CUfunction f = *function;
  uint32_t device = device_of(f)->index;
  vgx_sim_lock();
  if (f->kernel_changes != kernel->changes[device]) {
    f->kernel_changes = kernel->changes[device];
    for (int i = 0; i < VGW_FUNC_ATTRIBUTE_COUNT; i++)
      if (kernel->set[device][i] != INT32_MIN)
        f->attributes[i] = kernel->set[device][i];
  }
  vgx_sim_unlock();
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  return pFunc ? function_in(kernel, ctx, pFunc) : CUDA_ERROR_INVALID_VALUE;
}

CUresult vgx_sim_cuKernelSetAttribute(int attrib, int val, CUkernel kernel, CUdevice dev) {
  CUfunction f;
  const struct vgx_sim_device *device = vgx_sim_device_at(dev);
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  CUresult result = function_in(kernel, vgx_sim_current(), &f);
  if (result == CUDA_SUCCESS)
    result = check(device, f, attrib, val);
  if (result != CUDA_SUCCESS)
    return result;
  vgx_sim_lock();
  kernel->set[device->index][attrib] = val;
  kernel->changes[device->index]++;
  vgx_sim_unlock();
  return function_in(kernel, vgx_sim_current(), &f); /* other contexts apply it when they look the function up */
}

CUresult vgx_sim_cuKernelGetName(const char **name, CUkernel hfunc) {
  if (!name)
    return CUDA_ERROR_INVALID_VALUE;
  if (!is_kernel(hfunc))
    return CUDA_ERROR_INVALID_HANDLE;
  *name = hfunc->name;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_function_pin(CUcontext ctx, CUfunction handle, CUfunction *function) {
  CUfunction f = handle;
  if (!f)
    return CUDA_ERROR_INVALID_HANDLE;
  if (f->magic == VGX_SIM_KERNEL) { /* a CUkernel is accepted where a CUfunction is */
    CUresult result = vgx_sim_cuKernelGetFunction(&f, (CUkernel)handle);
    if (result != CUDA_SUCCESS)
      return result;
  }
  vgx_sim_lock();
  bool usable = f->magic == VGX_SIM_FUNCTION && f->module->magic == VGX_SIM_MODULE && f->module->ctx == ctx;
  if (usable)
    f->module->pins++;
  vgx_sim_unlock();
  if (!usable)
    return CUDA_ERROR_INVALID_HANDLE;
  *function = f;
  return CUDA_SUCCESS;
}

void vgx_sim_function_unpin(CUfunction function) {
  vgx_sim_lock();
  if (--function->module->pins == 0)
    vgx_sim_notify_locked();
  vgx_sim_unlock();
}
