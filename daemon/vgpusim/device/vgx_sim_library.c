/* Libraries: images apart from contexts, loaded into each context that uses them. Locking: the runtime lock for lists.
 */
#include <stdlib.h>
#include <string.h>

#include "vgx_sim_kernel.h"
#include "vgx_sim_runtime.h"

static bool is_library(CUlibrary l) { return l && l->magic == VGX_SIM_LIBRARY; }

CUresult vgx_sim_load_library(CUlibrary *library, const void *image, uint64_t nbytes) {
  CUcontext ctx = vgx_sim_current();
  CUresult result = ctx ? vgx_sim_check(ctx) : CUDA_SUCCESS;
  if (result != CUDA_SUCCESS)
    return result;
  if (!library || !image || nbytes == 0 || nbytes >= SIZE_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  CUlibrary made = calloc(1, sizeof *made);
  uint8_t *copy = malloc(nbytes + 1);
  if (!made || !copy) {
    free(made);
    free(copy);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memcpy(copy, image, nbytes);
  copy[nbytes] = 0;
  *made = (struct CUlib_st){.magic = VGX_SIM_LIBRARY, .image = copy, .nbytes = nbytes};
  CUmodule module; /* at once, so that a bad image fails here */
  result = vgx_sim_library_module(made, ctx, &module);
  if (result != CUDA_SUCCESS) {
    free(copy);
    free(made);
    return result;
  }
  *library = made;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuLibraryUnload(CUlibrary library) {
  vgx_sim_lock();
  if (!is_library(library)) {
    vgx_sim_unlock();
    return CUDA_ERROR_INVALID_HANDLE;
  }
  library->magic = VGX_SIM_DEAD;
  CUmodule modules = library->modules;
  library->modules = NULL;
  for (CUkernel k = library->kernels; k; k = k->next)
    k->magic = VGX_SIM_DEAD;
  for (CUmodule m = modules; m; m = m->library_next)
    for (CUmodule *link = m->ctx ? &m->ctx->modules : NULL; link && *link; link = &(*link)->next)
      if (*link == m) {
        *link = m->next;
        break;
      }
  vgx_sim_unlock();
  for (CUmodule m = modules; m; m = m->library_next)
    vgx_sim_module_unload(m);
  free(library->image); /* the struct stays: kernels point to it */
  library->image = NULL;
  return CUDA_SUCCESS;
}

/* The module that was loaded first; names are looked up in it. */
static CUresult any_module(CUlibrary library, CUmodule *module) {
  if (!is_library(library))
    return CUDA_ERROR_INVALID_HANDLE;
  vgx_sim_lock();
  CUmodule m = library->modules;
  vgx_sim_unlock();
  if (m) {
    *module = m;
    return CUDA_SUCCESS;
  }
  return vgx_sim_library_module(library, vgx_sim_current(), module); /* its contexts are gone */
}

CUresult vgx_sim_cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name) {
  CUmodule m;
  CUfunction f;
  if (!pKernel || !name)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = any_module(library, &m);
  if (result == CUDA_SUCCESS)
    result = vgx_sim_module_function(m, name, &f);
  if (result != CUDA_SUCCESS)
    return result;
  vgx_sim_lock();
  CUkernel k = library->kernels;
  while (k && strcmp(k->name, name) != 0)
    k = k->next;
  if (!k && (k = calloc(1, sizeof *k)) && !(k->name = strdup(name))) {
    free(k);
    k = NULL;
  } else if (k && !k->library) {
    k->magic = VGX_SIM_KERNEL;
    k->library = library;
    for (uint32_t device = 0; device < VGX_SIM_DEVICES_MAX; device++)
      for (int i = 0; i < VGW_FUNC_ATTRIBUTE_COUNT; i++)
        k->set[device][i] = INT32_MIN;
    k->next = library->kernels;
    library->kernels = k;
  }
  vgx_sim_unlock();
  if (!k)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *pKernel = k;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuLibraryGetModule(CUmodule *pMod, CUlibrary library) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  if (!pMod)
    return CUDA_ERROR_INVALID_VALUE;
  return is_library(library) ? vgx_sim_library_module(library, ctx, pMod) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult vgx_sim_cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name) {
  CUmodule m;
  if (!name)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgx_sim_cuLibraryGetModule(&m, library);
  return result == CUDA_SUCCESS ? vgx_sim_module_global(m, name, dptr, bytes) : result;
}

CUresult vgx_sim_cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib) {
  CUmodule m;
  if (!count)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = any_module(lib, &m);
  if (result == CUDA_SUCCESS)
    *count = m->kernel_count;
  return result;
}

CUresult vgx_sim_cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib) {
  CUmodule m;
  char name[VGX_SIM_NAME_NBYTES];
  if (!kernels || numKernels == 0)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = any_module(lib, &m);
  for (unsigned int i = 0; result == CUDA_SUCCESS && i < numKernels && i < m->kernel_count; i++) {
    result = vgx_sim_hooks->kernel_name(m->image, i, name);
    if (result == CUDA_SUCCESS)
      result = vgx_sim_cuLibraryGetKernel(&kernels[i], lib, name);
  }
  return result;
}

/* A unified function is one that host and device call by one pointer: no library has any. An H200's driver answers this
 * for every name, too, where the manual says NOT_FOUND. */
CUresult vgx_sim_cuLibraryGetUnifiedFunction(void **fptr, CUlibrary library, const char *symbol) {
  (void)fptr, (void)symbol;
  return is_library(library) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
}
