/* The backend that is the real driver. The driver takes no size with an image and must not read past what the client
 * sent, so the sizes that an image states are checked before the driver sees it. */
#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vgx_backend.h"
#include "vgx_cuda.h"
#include "vgx_cuda_activity.h"
#include "vgx_cuda_ipc.h"
#include "vgx_cuda_params.h"
#include "vgx_serve.h"

static struct vgx_backend backend;
static CUresult (*load_data)(CUmodule *, const void *);
static CUresult (*load_data_ex)(CUmodule *, const void *, uint32_t, int *, void **);
static CUresult (*library_load_data)(CUlibrary *, const void *, int *, void **, uint32_t, int *, void **, uint32_t);
static CUresult (*link_create)(uint32_t, int *, void **, CUlinkState *);
static CUresult (*link_add)(CUlinkState, int, void *, size_t, const char *, uint32_t, int *, void **);
static CUresult (*link_complete)(CUlinkState, void **, size_t *);
static CUresult (*link_destroy)(CUlinkState);

static uint64_t read_u64(const uint8_t *p) {
  uint64_t v;
  memcpy(&v, p, sizeof v);
  return v;
}

static uint16_t read_u16(const uint8_t *p) {
  uint16_t v;
  memcpy(&v, p, sizeof v);
  return v;
}

/* Whether a table of `count` entries of `entry` bytes at `offset` lies within the image. */
static bool table_fits(uint64_t nbytes, uint64_t offset, uint64_t entry, uint64_t count) {
  return offset <= nbytes && (count == 0 || entry <= (nbytes - offset) / count);
}

/* Whether a fatbin container's header, and the contents whose size the header states, lie within the image. */
static bool container_fits(const uint8_t *image, uint64_t nbytes) {
  static const uint8_t magic[4] = {0x50, 0xed, 0x55, 0xba};
  return nbytes >= 16 && memcmp(image, magic, 4) == 0 && read_u16(image + 6) >= 16 && read_u16(image + 6) <= nbytes &&
         read_u64(image + 8) <= nbytes - read_u16(image + 6);
}

/* Whether everything the image's own headers point at lies within it. PTX ends at its NUL: the executor pads images
 * with zeros. */
static bool image_fits(const uint8_t *image, uint64_t nbytes) {
  if (nbytes >= 4 && image[0] == 0x50 && image[1] == 0xed)
    return container_fits(image, nbytes);
  if (nbytes >= 4 && memcmp(image, "\177ELF", 4) == 0) {
    if (nbytes < 64)
      return false;
    uint64_t phoff = read_u64(image + 32), shoff = read_u64(image + 40);
    uint16_t phentsize = read_u16(image + 54), phnum = read_u16(image + 56);
    uint16_t shentsize = read_u16(image + 58), shnum = read_u16(image + 60);
    if (!table_fits(nbytes, phoff, phentsize, phnum) || !table_fits(nbytes, shoff, shentsize, shnum) ||
        (shnum && shentsize < 64))
      return false;
    for (uint16_t i = 0; i < shnum; i++) {
      const uint8_t *section = image + shoff + (uint64_t)i * shentsize;
      uint32_t type;
      memcpy(&type, section + 4, sizeof type);
      if (type != 8 && !table_fits(nbytes, read_u64(section + 24), read_u64(section + 32), 1))
        return false; /* 8: SHT_NOBITS, a section without bytes in the file */
    }
  }
  return true;
}

/* How nvcc describes a program of several translation units, which the driver links while loading it: the container of
 * the part that is already linked, and the containers of the units. (The layout of .nvFatBinSegment, seen in nvcc's
 * output.) */
struct wrapper {
  uint32_t magic, version;
  const uint8_t *data;
  const uint8_t **units; /* ends with a NULL */
};
enum { WRAPPER_MAGIC = 0x466243b1, WRAPPER_OF_UNITS = 2 };

/* The number of consecutive containers in the image: several if the client's image was such a wrapper. Their addresses
 * are stored in `places` unless that is NULL. 0: not a container, or one of them does not fit. */
static size_t containers(const uint8_t *image, uint64_t nbytes, const uint8_t **places) {
  size_t count = 0;
  while (nbytes) {
    if (!container_fits(image, nbytes))
      return 0;
    if (places)
      places[count] = image;
    count++;
    uint64_t step = read_u16(image + 6) + read_u64(image + 8);
    image += step;
    nbytes -= step;
  }
  return count;
}

/* The pointer to pass to the driver for an image: the image, or a wrapper around its containers, which is stored in
 * `made` for the caller to free. NULL: the image is malformed, or memory is short. */
static const void *for_driver(const uint8_t *image, uint64_t nbytes, struct wrapper **made) {
  *made = NULL;
  size_t count = containers(image, nbytes, NULL);
  if (count < 2)
    return image_fits(image, nbytes) ? image : NULL;
  struct wrapper *wrapper = calloc(1, sizeof *wrapper + (count + 1) * sizeof *wrapper->units);
  if (!wrapper)
    return NULL;
  const uint8_t **places = (const uint8_t **)(wrapper + 1);
  containers(image, nbytes, places);
  *wrapper = (struct wrapper){WRAPPER_MAGIC, WRAPPER_OF_UNITS, places[0], places + 1};
  return *made = wrapper;
}

/* The messages of the driver's compiler are sent to the client whose call caused the work. */
static void (*reason)(CUresult result, bool ends, const char *text);

static void set_reason(void (*to)(CUresult result, bool ends, const char *text)) { reason = to; }

enum { ERROR_LOG_BUFFER = 5, ERROR_LOG_SIZE = 6, LOG_NBYTES = 900 };

struct log {
  char text[LOG_NBYTES];
  int options[2];
  void *values[2];
};

static void log_init(struct log *log) {
  *log = (struct log){.options = {ERROR_LOG_BUFFER, ERROR_LOG_SIZE},
                      .values = {log->text, (void *)(uintptr_t)(sizeof log->text - 1)}};
}

static CUresult log_tell(const struct log *log, CUresult result) {
  if (result != CUDA_SUCCESS && *log->text && reason)
    reason(result, false, log->text);
  return result;
}

static CUresult load_module(CUmodule *module, const void *image, uint64_t nbytes) {
  struct wrapper *made;
  struct log log;
  log_init(&log);
  const void *given = for_driver(image, nbytes, &made);
  CUresult result = CUDA_ERROR_INVALID_IMAGE;
  if (given)
    result = load_data_ex ? load_data_ex(module, given, 2, log.options, log.values) : load_data(module, given);
  free(made);
  return log_tell(&log, result);
}

static CUresult load_library(CUlibrary *library, const void *image, uint64_t nbytes) {
  if (!library_load_data)
    return CUDA_ERROR_NOT_SUPPORTED;
  struct wrapper *made;
  struct log log;
  log_init(&log);
  const void *given = for_driver(image, nbytes, &made);
  CUresult result =
      given ? library_load_data(library, given, log.options, log.values, 2, NULL, NULL, 0) : CUDA_ERROR_INVALID_IMAGE;
  free(made);
  return log_tell(&log, result);
}

static CUresult (*library_get_managed)(CUdeviceptr *, size_t *, CUlibrary, const char *);

/* The driver chooses the variable's address; a given `address` is refused. */
static CUresult managed_variable(CUlibrary library, const char *name, uint64_t address, uint64_t *placed,
                                 uint64_t *nbytes) {
  CUdeviceptr at = 0;
  size_t size = 0;
  if (address)
    return CUDA_ERROR_NOT_SUPPORTED;
  CUresult result = library_get_managed(&at, &size, library, name);
  *placed = at;
  *nbytes = size;
  return result;
}

static CUresult link_images(CUdevice device, const void *const *data, const uint64_t *nbytes, uint32_t count,
                            void **out, uint64_t *out_nbytes) {
  enum { INPUT_CUBIN = 0, INPUT_PTX = 1, INPUT_FATBIN = 2 };
  (void)device;
  CUlinkState state;
  struct log log;
  log_init(&log);
  CUresult result = link_create(2, log.options, log.values, &state);
  if (result != CUDA_SUCCESS)
    return result;
  for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
    const uint8_t *image = data[i];
    bool elf = nbytes[i] >= 4 && memcmp(image, "\177ELF", 4) == 0,
         fat = nbytes[i] >= 4 && image[0] == 0x50 && image[1] == 0xed;
    int type = elf ? INPUT_CUBIN : fat ? INPUT_FATBIN : INPUT_PTX;
    uint64_t size = type == INPUT_PTX ? nbytes[i] + 1 : nbytes[i]; /* PTX: include its NUL, from the padding */
    result = image_fits(image, nbytes[i]) ? link_add(state, type, (void *)image, size, "input", 0, NULL, NULL)
                                          : CUDA_ERROR_INVALID_IMAGE;
  }
  void *cubin;
  size_t cubin_nbytes;
  if (result == CUDA_SUCCESS && out)
    result = link_complete(state, &cubin, &cubin_nbytes);
  if (result == CUDA_SUCCESS && out) {
    *out = malloc(cubin_nbytes);
    if (*out) {
      memcpy(*out, cubin, cubin_nbytes);
      *out_nbytes = cubin_nbytes;
    } else {
      result = CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  link_destroy(state);
  return log_tell(&log, result);
}

const struct vgx_backend *vgx_cuda_backend(const char *path, const char **why) {
  static char text[256];
  /* Called before threads start, so that a context's allocations come from the main heap, which grows in large steps.
   * The heap of a ring's thread grows page by page: 600 times while 580.159.04 creates a context (strace). */
  mallopt(M_ARENA_MAX, 1);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(text, sizeof text, "%s", dlerror());
    *why = text;
    return NULL;
  }
#define RESOLVE(name) backend.name = (__typeof__(backend.name))dlsym(library, #name);
  VGX_BACKEND_FUNCTIONS(RESOLVE)
#define RESOLVE_OLDER(name, older)                                                                                     \
  if (!backend.name)                                                                                                   \
    backend.name = (__typeof__(backend.name))dlsym(library, #older);
  VGX_BACKEND_OLDER_NAMES(RESOLVE_OLDER)
  load_data = (__typeof__(load_data))dlsym(library, "cuModuleLoadData");
  load_data_ex = (__typeof__(load_data_ex))dlsym(library, "cuModuleLoadDataEx");
  library_load_data = (__typeof__(library_load_data))dlsym(library, "cuLibraryLoadData");
  library_get_managed = (__typeof__(library_get_managed))dlsym(library, "cuLibraryGetManaged");
  link_create = (__typeof__(link_create))dlsym(library, "cuLinkCreate_v2");
  link_add = (__typeof__(link_add))dlsym(library, "cuLinkAddData_v2");
  link_complete = (__typeof__(link_complete))dlsym(library, "cuLinkComplete");
  link_destroy = (__typeof__(link_destroy))dlsym(library, "cuLinkDestroy");
  CUresult (*init)(uint32_t) = (CUresult (*)(uint32_t))dlsym(library, "cuInit");
  CUresult result = init ? init(0) : CUDA_ERROR_UNKNOWN;
  if (result != CUDA_SUCCESS || !load_data) {
    snprintf(text, sizeof text, "%s: cuInit answered %d", path, result);
    *why = text;
    return NULL;
  }
  vgx_cuda_ipc_resolve(library, &backend);
  vgx_cuda_activity_resolve(library, &backend);
  backend.name = "cuda";
  backend.current_device = (__typeof__(backend.current_device))dlsym(library, "cuCtxGetDevice");
  backend.has_words = backend.cuStreamWriteValue32_v2 && backend.cuStreamWaitValue32_v2;
  backend.load_module = load_module;
  backend.set_reason = set_reason;
  backend.load_library = load_library;
  backend.managed_variable = library_get_managed ? managed_variable : NULL;
  backend.link = link_create && link_add && link_complete && link_destroy ? link_images : NULL;
  vgx_cuda_params_resolve(&backend);
  return &backend;
}
