/* Registered images and symbols. Images are loaded at the first use of one of their symbols: most programs use a few of
 * the thousands that a library brings. A newer registration of an address hides an older one until it is undone. */
#include "vgs_rt_registry.h"
#include "vgs_log.h"
#include "vgs_rt_api.h"
#include <pthread.h>
#include <stdlib.h>

enum symbol_kind { FUNCTION, VARIABLE, MANAGED, GIVEN_KERNEL };

struct image {
  void *wrapper; /* the program's, valid until it is unregistered */
  struct image *next;
  pthread_mutex_t loading;
  CUlibrary library; /* NULL: not loaded */
  bool has_managed, managed_set;
};

struct symbol {
  const void *address;
  struct symbol *next; /* in its bucket, newest first */
  struct image *image;
  const char *name; /* the program's */
  enum symbol_kind kind;
  CUkernel kernel;     /* NULL: not looked up yet */
  void **managed_host; /* where the program keeps a managed variable's address */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of lists and buckets; the innermost lock */
static struct image *images;
static struct symbol **buckets;
static size_t bucket_count, symbol_count; /* bucket_count: 0 or a power of two */
static bool must_prepare;                 /* an image with managed variables may have to be loaded at once */
static bool finished;

void vgs_rt_registry_lock(void) { pthread_mutex_lock(&lock); }
void vgs_rt_registry_unlock(void) { pthread_mutex_unlock(&lock); }

static size_t bucket_of(const void *address) {
  uint64_t hash = (uint64_t)(uintptr_t)address * 0x9e3779b97f4a7c15u;
  return (size_t)(hash >> 32) & (bucket_count - 1);
}

static bool grow(void) {
  size_t old_count = bucket_count;
  struct symbol **old = buckets;
  size_t count = old_count ? old_count * 2 : 256;
  struct symbol **fresh = calloc(count, sizeof *fresh);
  if (!fresh)
    return false;
  buckets = fresh;
  bucket_count = count;
  for (size_t i = 0; i < old_count; i++) {
    /* Insert the oldest first: of symbols with one address the newest must be at the front. */
    struct symbol *reversed = NULL, *next;
    for (struct symbol *s = old[i]; s; s = next) {
      next = s->next;
      s->next = reversed;
      reversed = s;
    }
    for (struct symbol *s = reversed; s; s = next) {
      next = s->next;
      size_t bucket = bucket_of(s->address);
      s->next = buckets[bucket];
      buckets[bucket] = s;
    }
  }
  free(old);
  return true;
}

static struct symbol *lookup(const void *address) {
  if (!bucket_count)
    return NULL;
  struct symbol *s = buckets[bucket_of(address)];
  while (s && s->address != address)
    s = s->next;
  return s;
}

static bool add_locked(struct symbol symbol) {
  if (symbol_count >= bucket_count && !grow())
    return false;
  struct symbol *added = malloc(sizeof *added);
  if (!added)
    return false;
  size_t bucket = bucket_of(symbol.address);
  *added = symbol;
  added->next = buckets[bucket];
  buckets[bucket] = added;
  symbol_count++;
  return true;
}

static void add(struct symbol symbol) {
  pthread_mutex_lock(&lock);
  if (!symbol.image || !symbol.name || !add_locked(symbol))
    vgs_log(VGS_LOG_ERROR, "%s could not be registered", symbol.name ? symbol.name : "a symbol without name");
  pthread_mutex_unlock(&lock);
}

static void remove_symbols_locked(const struct image *image) {
  for (size_t i = 0; i < bucket_count; i++)
    for (struct symbol **link = &buckets[i]; *link;) {
      struct symbol *s = *link;
      if (s->image != image) {
        link = &s->next;
        continue;
      }
      *link = s->next;
      symbol_count--;
      free(s);
    }
}

/* --- what the compiler's stubs call --- */

void **vgs___cudaRegisterFatBinary(void *wrapper) {
  struct image *image = calloc(1, sizeof *image);
  if (!image) {
    vgs_log(VGS_LOG_ERROR, "no memory to register device code");
    return NULL;
  }
  image->wrapper = wrapper;
  pthread_mutex_init(&image->loading, NULL);
  pthread_mutex_lock(&lock);
  image->next = images;
  images = image;
  must_prepare = true;
  pthread_mutex_unlock(&lock);
  return (void **)image;
}

void vgs___cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }

void vgs___cudaUnregisterFatBinary(void **handle) {
  struct image *image = (struct image *)handle, **link;
  pthread_mutex_lock(&lock);
  for (link = &images; *link && *link != image; link = &(*link)->next)
    ;
  bool known = *link && image;
  if (known) {
    *link = image->next;
    remove_symbols_locked(image);
  }
  bool unload = known && image->library && !finished;
  pthread_mutex_unlock(&lock);
  if (!known)
    return;
  if (unload)
    vgs_rt_driver_legacy.cuLibraryUnload(image->library);
  pthread_mutex_destroy(&image->loading);
  free(image);
}

void vgs___cudaRegisterFunction(void **handle, const char *hostFunction, char *deviceFunction, const char *deviceName,
                                int threadLimit, void *tid, void *bid, void *blockDim, void *gridDim, int *warpSize) {
  (void)deviceFunction, (void)threadLimit, (void)tid, (void)bid, (void)blockDim, (void)gridDim, (void)warpSize;
  add((struct symbol){.address = hostFunction, .image = (struct image *)handle, .name = deviceName, .kind = FUNCTION});
}

void vgs___cudaRegisterVar(void **handle, char *hostVar, char *deviceAddress, const char *deviceName, int external,
                           size_t size, int constant, int global) {
  (void)deviceAddress, (void)external, (void)size, (void)constant, (void)global;
  add((struct symbol){.address = hostVar, .image = (struct image *)handle, .name = deviceName, .kind = VARIABLE});
}

void vgs___cudaRegisterManagedVar(void **handle, void **hostVarPtr, char *deviceAddress, const char *deviceName,
                                  int external, size_t size, int constant, int global) {
  (void)deviceAddress, (void)external, (void)size, (void)constant, (void)global;
  struct image *image = (struct image *)handle;
  if (image)
    image->has_managed = true;
  add((struct symbol){
      .address = hostVarPtr, .image = image, .name = deviceName, .kind = MANAGED, .managed_host = hostVarPtr});
}

/* --- loading --- */

static int load(struct image *image, CUlibrary *library) {
  /* The image is part of the program and stays where it is until it is unregistered. */
  enum { BINARY_IS_PRESERVED = 1 };
  int option = BINARY_IS_PRESERVED, result = CUDA_SUCCESS;
  void *value = (void *)(uintptr_t)1;
  pthread_mutex_lock(&image->loading);
  if (!image->library)
    result = vgs_rt_driver_legacy.cuLibraryLoadData(&image->library, image->wrapper, NULL, NULL, 0, &option, &value, 1);
  *library = image->library;
  pthread_mutex_unlock(&image->loading);
  return result;
}

static int set_managed(struct image *image) {
  CUlibrary library;
  int result = load(image, &library);
  if (result)
    return result;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < bucket_count && !result; i++)
    for (struct symbol *s = buckets[i]; s && !result; s = s->next)
      if (s->image == image && s->kind == MANAGED) {
        CUdeviceptr address;
        size_t nbytes;
        result = vgs_rt_driver_legacy.cuLibraryGetManaged(&address, &nbytes, library, s->name);
        if (!result)
          *s->managed_host = (void *)(uintptr_t)address;
      }
  image->managed_set = !result;
  pthread_mutex_unlock(&lock);
  return result;
}

int vgs_rt_registry_prepare(void) {
  enum { EAGER = 1 };
  if (!__atomic_load_n(&must_prepare, __ATOMIC_ACQUIRE))
    return CUDA_SUCCESS;
  int mode = 0;
  bool eager = vgs_rt_driver_legacy.cuModuleGetLoadingMode(&mode) == CUDA_SUCCESS && mode == EAGER;
  __atomic_store_n(&must_prepare, false, __ATOMIC_RELEASE);
  for (;;) {
    /* Loading may take long, so it is done without the lock, one image after the other. */
    struct image *next;
    pthread_mutex_lock(&lock);
    for (next = images; next; next = next->next)
      if ((next->has_managed && !next->managed_set) || (eager && !next->library))
        break;
    pthread_mutex_unlock(&lock);
    if (!next)
      return CUDA_SUCCESS;
    CUlibrary library;
    int result = next->has_managed ? set_managed(next) : load(next, &library);
    if (result)
      return result;
  }
}

int vgs_rt_registry_load(void **handle) {
  struct image *image = (struct image *)handle;
  CUlibrary library;
  return image->has_managed && !image->managed_set ? set_managed(image) : load(image, &library);
}

/* --- looking up --- */

bool vgs_rt_is_registered(const void *function) {
  pthread_mutex_lock(&lock);
  struct symbol *s = lookup(function);
  bool found = s && (s->kind == FUNCTION || s->kind == GIVEN_KERNEL);
  pthread_mutex_unlock(&lock);
  return found;
}

int vgs_rt_kernel(const void *function, CUkernel *kernel) {
  pthread_mutex_lock(&lock);
  struct symbol *s = function ? lookup(function) : NULL;
  bool usable = s && (s->kind == FUNCTION || s->kind == GIVEN_KERNEL);
  CUkernel known = usable ? s->kernel : NULL;
  struct image *image = usable ? s->image : NULL;
  const char *name = usable ? s->name : NULL;
  pthread_mutex_unlock(&lock);
  if (!usable)
    return VGS_RT_MAJOR >= 12 && function ? CUDA_ERROR_INVALID_HANDLE : VGS_RT_INVALID_DEVICE_FUNCTION;
  if (!known) {
    CUlibrary library;
    int result = load(image, &library);
    if (!result)
      result = vgs_rt_driver_legacy.cuLibraryGetKernel(&known, library, name);
    if (result)
      return result == CUDA_ERROR_NOT_FOUND ? VGS_RT_INVALID_DEVICE_FUNCTION : result;
    pthread_mutex_lock(&lock);
    s = lookup(function);
    if (s && s->image == image)
      s->kernel = known;
    pthread_mutex_unlock(&lock);
  }
  *kernel = known;
  return CUDA_SUCCESS;
}

int vgs_rt_function(const void *function, CUfunction *found) {
  CUkernel kernel;
  int result = vgs_rt_kernel(function, &kernel);
  return result ? result : vgs_rt_driver_legacy.cuKernelGetFunction(found, kernel);
}

int vgs_rt_kernel_given(CUkernel kernel) {
  pthread_mutex_lock(&lock);
  bool noted = lookup(kernel) || add_locked((struct symbol){.address = kernel, .kernel = kernel, .kind = GIVEN_KERNEL});
  pthread_mutex_unlock(&lock);
  return noted ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

int vgs_rt_variable(const void *symbol, CUdeviceptr *address, size_t *nbytes) {
  pthread_mutex_lock(&lock);
  struct symbol *s = symbol ? lookup(symbol) : NULL;
  bool usable = s && (s->kind == VARIABLE || s->kind == MANAGED);
  struct image *image = usable ? s->image : NULL;
  const char *name = usable ? s->name : NULL;
  bool managed = usable && s->kind == MANAGED;
  pthread_mutex_unlock(&lock);
  if (!usable)
    return VGS_RT_INVALID_SYMBOL;
  CUlibrary library;
  int result = load(image, &library);
  if (result)
    return result;
  CUdeviceptr found;
  size_t size;
  const struct vgs_rt_driver *cu = &vgs_rt_driver_legacy;
  result = managed ? cu->cuLibraryGetManaged(&found, &size, library, name)
                   : cu->cuLibraryGetGlobal(&found, &size, library, name);
  if (result)
    return result == CUDA_ERROR_NOT_FOUND ? VGS_RT_INVALID_SYMBOL : result;
  if (address)
    *address = found;
  if (nbytes)
    *nbytes = size;
  return CUDA_SUCCESS;
}

/* Release the driver's objects and keep the registrations, which the program removes later or never. */
void vgs_rt_registry_fini(void) {
  pthread_mutex_lock(&lock);
  finished = true;
  for (struct image *image = images; image; image = image->next)
    if (image->library) {
      vgs_rt_driver_legacy.cuLibraryUnload(image->library);
      image->library = NULL;
    }
  pthread_mutex_unlock(&lock);
}
