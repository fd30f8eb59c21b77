/* Libraries: images for all contexts. NVIDIA's runtime loads every image of a program this way, most of which are never
 * used, so with lazy loading an image that the program promises to keep is sent when it is first asked for. */
#include "vgs_library.h"
#include "vgs_api.h"
#include "vgs_enter.h"
#include "vgs_image.h"
#include "vgs_kernel.h"
#include "vgs_log.h"
#include "vgs_range.h"
#include "vgs_reason.h"
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER; /* one upload at a time */

static CUresult load(struct vgs_library *library) {
  pthread_mutex_lock(&load_lock);
  if (library->pending) {
    library->loaded = vgs_image_with(library->pending, vgs_send_cuLibraryLoadData, library->object.id);
    __atomic_store_n(&library->pending, NULL, __ATOMIC_RELEASE);
  }
  CUresult result = library->loaded;
  pthread_mutex_unlock(&load_lock);
  return result;
}

CUresult vgs_library_ready(struct vgs_library *library) {
  return __atomic_load_n(&library->pending, __ATOMIC_ACQUIRE) ? load(library) : library->loaded;
}

CUresult vgs_library_find(CUlibrary handle, struct vgs_library **library) {
  *library = vgs_object_find(VGW_KIND_LIBRARY, handle);
  return *library ? vgs_library_ready(*library) : CUDA_ERROR_INVALID_HANDLE;
}

/* Why the load failed, malloc'ed: the first request stores it, later ones copy it. Takes ownership of `reason`. */
static char *reason_of(struct vgs_library *library, char *reason) {
  pthread_mutex_lock(&load_lock);
  if (reason && !library->reason)
    library->reason = strdup(reason);
  else if (!reason && library->reason)
    reason = strdup(library->reason);
  pthread_mutex_unlock(&load_lock);
  return reason;
}

/* A runtime looks a kernel up when the program launches it, but also when it asks for attributes, and NCCL asks for
 * those of all its kernels. So an image that cannot run on a simulated device is reported at the launch; calls for
 * attributes return the error. */
CUresult vgs_cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name) {
  if (!pKernel)
    return CUDA_ERROR_INVALID_VALUE;
  struct vgs_library *of = vgs_object_find(VGW_KIND_LIBRARY, library);
  if (!of)
    return CUDA_ERROR_INVALID_HANDLE;
  if (!name) {
    CUresult result = vgs_library_ready(of);
    return result ? result : CUDA_ERROR_INVALID_VALUE;
  }
  struct vgs_kernel *kernel = vgs_kernel_make(VGW_KIND_KERNEL, of->object.id, 0, name);
  if (!kernel)
    return CUDA_ERROR_OUT_OF_MEMORY;
  vgs_reason_defer();
  CUresult result = vgs_library_ready(of);
  if (!result)
    result = vgs_send_cuLibraryGetKernel(kernel->object.id, of->object.id, name);
  char *reason = vgs_reason_deferred();
  if (vgs_reason_is_refusal(result)) {
    kernel->missing = result;
    kernel->reason = of->loaded ? reason_of(of, reason) : reason;
    result = CUDA_SUCCESS;
  } else {
    if (reason)
      vgs_log(VGS_LOG_REASON, "%s", reason);
    free(reason);
  }
  if (result)
    vgs_object_destroy(kernel);
  else
    *pKernel = vgs_object_handle(kernel);
  return result;
}

/* Whether the program promises that the image stays where it is. */
static bool is_preserved(unsigned count, const int *options, void **values) {
  enum { BINARY_IS_PRESERVED = 1 };
  for (unsigned i = 0; i < count; i++)
    if (options[i] == BINARY_IS_PRESERVED)
      return values && (uintptr_t)values[i] & 1;
  return false;
}

CUresult vgs_cuLibraryLoadData(CUlibrary *library, const void *code, int *jitOptions, void **jitOptionsValues,
                               unsigned int numJitOptions, int *libraryOptions, void **libraryOptionValues,
                               unsigned int numLibraryOptions) {
  if (!library || !code || (numJitOptions && (!jitOptions || !jitOptionsValues)) ||
      (numLibraryOptions && !libraryOptions))
    return CUDA_ERROR_INVALID_VALUE;
  vgs_jit_log_start();
  struct vgs_image *image = malloc(sizeof *image);
  CUresult result = image ? vgs_image_measure(code, image) : CUDA_ERROR_OUT_OF_MEMORY;
  free(image);
  if (result) {
    vgs_jit_log_finish(result, numJitOptions, jitOptions, jitOptionsValues);
    return result;
  }
  struct vgs_library *fresh = vgs_object_create(VGW_KIND_LIBRARY, 0);
  if (!fresh)
    return CUDA_ERROR_OUT_OF_MEMORY;
  int mode = 0;
  vgs_cuModuleGetLoadingMode(&mode);
  fresh->pending = code;
  if (mode != 2 || !is_preserved(numLibraryOptions, libraryOptions, libraryOptionValues))
    result = load(fresh);
  vgs_jit_log_finish(result, numJitOptions, jitOptions, jitOptionsValues);
  if (result)
    vgs_object_destroy(fresh);
  else
    *library = vgs_object_handle(fresh);
  return result;
}

CUresult vgs_cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, int *jitOptions, void **jitOptionsValues,
                                   unsigned int numJitOptions, int *libraryOptions, void **libraryOptionValues,
                                   unsigned int numLibraryOptions) {
  void *data;
  (void)libraryOptions, (void)libraryOptionValues, (void)numLibraryOptions;
  if (!library || !fileName)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgs_image_read(fileName, &data);
  if (result)
    return result;
  /* Without the library's options: the binary is not preserved, as it is freed here. */
  result = vgs_cuLibraryLoadData(library, data, jitOptions, jitOptionsValues, numJitOptions, NULL, NULL, 0);
  free(data);
  return result;
}

bool vgs_library_end(struct vgs_library *library) {
  pthread_mutex_lock(&load_lock);
  bool loaded = !library->pending && !library->loaded;
  library->pending = NULL;
  pthread_mutex_unlock(&load_lock);
  if (!loaded)
    vgs_object_destroy(library);
  return loaded;
}

CUresult vgs_cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib) {
  struct vgs_library *library;
  char name[4096];
  unsigned count;
  if (!kernels)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgs_library_find(lib, &library);
  if (!result)
    result = vgs_send_cuLibraryGetKernelCount(&count, library->object.id);
  for (unsigned i = 0; !result && i < count && i < numKernels; i++) {
    memset(name, 0, sizeof name);
    result = vgs_send_vgpuKernelName(VGW_KIND_LIBRARY, library->object.id, i, sizeof name - 1, name);
    if (!result)
      result = vgs_cuLibraryGetKernel(&kernels[i], lib, name);
  }
  return result;
}
