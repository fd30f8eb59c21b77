/* cuFuncGetParamInfo for drivers before 12.4. The call names a function, so this file records which image each module
 * and library came from, and by which name each kernel was looked up. What a destroyed context contained stays recorded
 * until the driver reuses its addresses. */
#include "vgx_cuda_params.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "vgx_backend.h"

struct kernel {
  struct kernel *next;
  const void *handle;
  char name[];
};

/* A module or a library. */
struct container {
  struct container *next;
  const void *handle;
  const void *library; /* the library of a module from cuLibraryGetModule, which ends with the library */
  uint64_t image;      /* of such a module: its library's image */
  struct kernel *kernels;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the list and its entries */
static struct container *containers;
static const struct vgx_params_reader *reader;
static struct vgx_backend real;

static struct container *find_locked(const void *handle) {
  struct container *found = containers;
  while (found && found->handle != handle)
    found = found->next;
  return found;
}

static void forget_locked(const void *handle) {
  for (struct container **link = &containers; *link;) {
    struct container *each = *link;
    if (each->handle != handle && each->library != handle) {
      link = &each->next;
      continue;
    }
    *link = each->next;
    if (!each->library)
      reader->close(each->image);
    while (each->kernels) {
      struct kernel *kernel = each->kernels;
      each->kernels = kernel->next;
      free(kernel);
    }
    free(each);
  }
}

/* Record a module or library. False: out of memory. */
static bool note_locked(const void *handle, const void *library, uint64_t image) {
  struct container *made = malloc(sizeof *made);
  forget_locked(handle);
  if (!made)
    return false;
  *made = (struct container){.next = containers, .handle = handle, .library = library, .image = image};
  containers = made;
  return true;
}

/* The name of a kernel, and the module or library that it came from. */
static const char *name_locked(const void *handle, struct container **of) {
  for (*of = containers; *of; *of = (*of)->next)
    for (struct kernel *kernel = (*of)->kernels; kernel; kernel = kernel->next)
      if (kernel->handle == handle)
        return kernel->name;
  return NULL;
}

static void forget_kernel_locked(const void *handle) {
  for (struct container *of = containers; of; of = of->next)
    for (struct kernel **link = &of->kernels; *link;) {
      struct kernel *kernel = *link;
      if (kernel->handle != handle) {
        link = &kernel->next;
        continue;
      }
      *link = kernel->next;
      free(kernel);
    }
}

/* Record a kernel of a module or library. Without memory for that, param_info does not find the kernel. */
static void note_kernel_locked(struct container *of, const void *handle, const char *name) {
  size_t nbytes = strlen(name) + 1;
  struct kernel *made = of ? malloc(sizeof *made + nbytes) : NULL;
  if (made) {
    memcpy(made->name, name, nbytes);
    forget_kernel_locked(handle);
    made->handle = handle;
    made->next = of->kernels;
    of->kernels = made;
  }
}

static void note_kernel(const void *container, const void *handle, const char *name) {
  pthread_mutex_lock(&lock);
  note_kernel_locked(find_locked(container), handle, name);
  pthread_mutex_unlock(&lock);
}

static CUresult note_image(const void *handle, uint64_t image) {
  pthread_mutex_lock(&lock);
  bool noted = note_locked(handle, NULL, image);
  pthread_mutex_unlock(&lock);
  return noted ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult load_module(CUmodule *module, const void *data, uint64_t nbytes) {
  uint64_t image = 0;
  CUresult result = real.load_module(module, data, nbytes);
  if (result == CUDA_SUCCESS && (result = reader->open(data, nbytes, &image)) == CUDA_SUCCESS)
    result = note_image(*module, image);
  return result;
}

static CUresult load_library(CUlibrary *library, const void *data, uint64_t nbytes) {
  uint64_t image = 0;
  CUresult result = real.load_library(library, data, nbytes);
  if (result == CUDA_SUCCESS && (result = reader->open(data, nbytes, &image)) == CUDA_SUCCESS)
    result = note_image(*library, image);
  return result;
}

static CUresult unload(const void *handle, CUresult result) {
  pthread_mutex_lock(&lock);
  if (result == CUDA_SUCCESS)
    forget_locked(handle);
  pthread_mutex_unlock(&lock);
  return result;
}

static CUresult unload_module(CUmodule module) { return unload(module, real.cuModuleUnload(module)); }

static CUresult unload_library(CUlibrary library) { return unload(library, real.cuLibraryUnload(library)); }

static CUresult get_module(CUmodule *module, CUlibrary library) {
  CUresult result = real.cuLibraryGetModule(module, library);
  pthread_mutex_lock(&lock);
  struct container *of = result == CUDA_SUCCESS ? find_locked(library) : NULL;
  if (of && !find_locked(*module) && !note_locked(*module, library, of->image))
    result = CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_unlock(&lock);
  return result;
}

static CUresult get_function(CUfunction *function, CUmodule module, const char *name) {
  CUresult result = real.cuModuleGetFunction(function, module, name);
  if (result == CUDA_SUCCESS)
    note_kernel(module, *function, name);
  return result;
}

static CUresult get_kernel(CUkernel *kernel, CUlibrary library, const char *name) {
  CUresult result = real.cuLibraryGetKernel(kernel, library, name);
  if (result == CUDA_SUCCESS)
    note_kernel(library, *kernel, name);
  return result;
}

static CUresult get_function_of(CUfunction *function, CUkernel kernel) {
  struct container *of;
  CUresult result = real.cuKernelGetFunction(function, kernel);
  pthread_mutex_lock(&lock);
  const char *name = result == CUDA_SUCCESS && (void *)*function != (void *)kernel ? name_locked(kernel, &of) : NULL;
  if (name)
    note_kernel_locked(of, *function, name);
  pthread_mutex_unlock(&lock);
  return result;
}

static CUresult param_info(CUfunction function, size_t index, size_t *offset, size_t *nbytes) {
  uint64_t at = 0, size = 0;
  struct container *of;
  pthread_mutex_lock(&lock);
  const char *name = name_locked(function, &of);
  CUresult result = name ? (CUresult)reader->param(of->image, name, index, &at, &size) : CUDA_ERROR_NOT_FOUND;
  pthread_mutex_unlock(&lock);
  *offset = at;
  *nbytes = size;
  return result;
}

void vgx_cuda_params_set_reader(const struct vgx_params_reader *who) { reader = who; }

void vgx_cuda_params_resolve(struct vgx_backend *backend) {
  if (backend->cuFuncGetParamInfo || !reader)
    return;
  real = *backend;
  backend->cuFuncGetParamInfo = param_info;
  backend->load_module = load_module;
  backend->cuModuleUnload = unload_module;
  backend->cuModuleGetFunction = get_function;
  if (!real.cuLibraryGetKernel || !real.cuLibraryUnload || !real.cuLibraryGetModule || !real.cuKernelGetFunction)
    return;
  backend->load_library = load_library;
  backend->cuLibraryUnload = unload_library;
  backend->cuLibraryGetKernel = get_kernel;
  backend->cuLibraryGetModule = get_module;
  backend->cuKernelGetFunction = get_function_of;
}
