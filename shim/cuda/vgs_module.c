/* Modules: images loaded into one context. */
#include "vgs_api.h"
#include "vgs_enter.h"
#include "vgs_image.h"
#include "vgs_kernel.h"
#include "vgs_range.h"
#include "vgs_reason.h"
#include "vgs_session.h"
#include <stdlib.h>
#include <string.h>

static struct vgs_module *find(CUmodule module) { return vgs_object_find(VGW_KIND_MODULE, module); }

/* JIT options other than the log buffers are only hints. */
CUresult vgs_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions, int *options,
                                void **optionValues) {
  if (numOptions && (!options || !optionValues))
    return CUDA_ERROR_INVALID_VALUE;
  vgs_jit_log_start();
  CUresult result = vgs_cuModuleLoadData(module, image);
  vgs_jit_log_finish(result, numOptions, options, optionValues);
  return result;
}

CUresult vgs_cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin) {
  return vgs_cuModuleLoadData(module, fatCubin);
}

CUresult vgs_cuModuleLoad(CUmodule *module, const char *fname) {
  void *data;
  if (!module || !fname)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgs_image_read(fname, &data);
  if (result)
    return result;
  result = vgs_cuModuleLoadData(module, data);
  free(data);
  return result;
}

CUresult vgs_cuModuleGetLoadingMode(int *mode) {
  enum { EAGER = 1, LAZY = 2 };
  const char *wanted = getenv("CUDA_MODULE_LOADING");
  if (!mode)
    return CUDA_ERROR_INVALID_VALUE;
  *mode = wanted && !strcmp(wanted, "EAGER") ? EAGER : LAZY;
  return CUDA_SUCCESS;
}

CUresult vgs_cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions, CUmodule mod) {
  struct vgs_module *module = find(mod);
  char name[4096];
  if (!functions)
    return CUDA_ERROR_INVALID_VALUE;
  if (!module)
    return CUDA_ERROR_INVALID_HANDLE;
  unsigned count;
  CUresult result = vgs_send_cuModuleGetFunctionCount(&count, module->object.id);
  for (unsigned i = 0; !result && i < count && i < numFunctions; i++) {
    memset(name, 0, sizeof name);
    result = vgs_send_vgpuKernelName(VGW_KIND_MODULE, module->object.id, i, sizeof name - 1, name);
    if (!result)
      result = vgs_cuModuleGetFunction(&functions[i], mod, name);
  }
  return result;
}
