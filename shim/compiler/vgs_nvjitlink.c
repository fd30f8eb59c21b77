/* A libnvJitLink.so in front of NVIDIA's, for programs on simulated devices: the linked result is PTX, which the driver
 * loads in place of machine code. NVIDIA's linker makes one PTX text of LTO-IR; PTX inputs are left as they are, and
 * linked when the module is loaded. Machine code is refused by name, but for libcudadevrt.a. What NVIDIA's linker says
 * of PTX is the program's answer, where it knows the architecture. */
#define _GNU_SOURCE /* memmem */
#include "vgs_arch.h"
#include "vgs_linked.h"
#include "vgs_log.h"
#include "vgs_real.h"
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int nvJitLinkResult;
enum {
  NVJITLINK_SUCCESS = 0,
  NVJITLINK_ERROR_INVALID_INPUT = 3,
  NVJITLINK_ERROR_INTERNAL = 6,
  NVJITLINK_ERROR_UNRECOGNIZED_INPUT = 8,
  NVJITLINK_ERROR_UNRECOGNIZED_ARCH = 16,
};
enum { INPUT_CUBIN = 1, INPUT_PTX = 2, INPUT_LTOIR = 3, INPUT_ANY = 10 };
#define FILE_NBYTES_MAX (1l << 30)

/* Architectures to try, newest first, if NVIDIA's linker does not support the requested one. */
static const int architectures[] = {121, 120, 110, 103, 101, 100, 90, 89, 87, 86, 80, 75, 70, 60, 50};

struct nvJitLink {
  void *real;
  bool optimises;  /* -lto: NVIDIA's linker makes PTX of its inputs */
  bool wants_ptx;  /* -ptx: NVIDIA's linker judges every input */
  bool has_others; /* inputs that NVIDIA's linker was given, to make PTX of */
  bool judges;     /* it knows the requested architecture: PTX is given to it, too, so that errors are its own */
  int sm;
  int registers; /* the limit for each thread, or 0 */
  struct vgs_text *texts, **last;
  char *image;
  size_t image_nbytes;
  char refused[256]; /* for the error log */
};
typedef struct nvJitLink *nvJitLinkHandle;

/* Each function is exported under its name and, as NVIDIA's headers call it, under one name for each minor version. */
#define ALIAS(name, major, minor, parameters)                                                                          \
  nvJitLinkResult __##name##_##major##_##minor parameters __attribute__((alias(#name), visibility("default")));
#define ALIASES_OF(name, major, parameters)                                                                            \
  ALIAS(name, major, 0, parameters)                                                                                    \
  ALIAS(name, major, 1, parameters)                                                                                    \
  ALIAS(name, major, 2, parameters)                                                                                    \
  ALIAS(name, major, 3, parameters)                                                                                    \
  ALIAS(name, major, 4, parameters)                                                                                    \
  ALIAS(name, major, 5, parameters)                                                                                    \
  ALIAS(name, major, 6, parameters)                                                                                    \
  ALIAS(name, major, 7, parameters)                                                                                    \
  ALIAS(name, major, 8, parameters)                                                                                    \
  ALIAS(name, major, 9, parameters)
#define ALIASES(name, major, parameters) ALIASES_OF(name, major, parameters)
#define EXPORTED(name, parameters)                                                                                     \
  __attribute__((visibility("default"))) nvJitLinkResult name parameters;                                              \
  ALIASES(name, VGS_MAJOR, parameters)                                                                                 \
  nvJitLinkResult name parameters

__attribute__((visibility("default"))) const char vgpuCompilerStandIn[] = "libnvJitLink";

#define REAL(name) ((__typeof__(&name))vgs_real_function(#name, __builtin_return_address(0)))

#define FORWARD(name, type)                                                                                            \
  EXPORTED(name, (nvJitLinkHandle link, type into)) {                                                                  \
    __typeof__(&name) real = REAL(name);                                                                               \
    if (!link)                                                                                                         \
      return NVJITLINK_ERROR_INVALID_INPUT;                                                                            \
    return real ? real(link->real, into) : NVJITLINK_ERROR_INTERNAL;                                                   \
  }

FORWARD(nvJitLinkGetLinkedPtxSize, size_t *)
FORWARD(nvJitLinkGetLinkedPtx, char *)
FORWARD(nvJitLinkGetInfoLogSize, size_t *)
FORWARD(nvJitLinkGetInfoLog, char *)
#if VGS_MAJOR == 13
FORWARD(nvJitLinkGetLinkedLTOIRSize, size_t *)
FORWARD(nvJitLinkGetLinkedLTOIR, void *)
#endif

static void refuse(nvJitLinkHandle link, const char *name, const char *what) {
  snprintf(link->refused, sizeof link->refused, "%.64s: %s cannot be linked for a simulated device: pass PTX or LTO-IR",
           name ? name : "input", what);
  vgs_log(VGS_LOG_REASON, "nvJitLink: %s", link->refused);
}

EXPORTED(nvJitLinkVersion, (unsigned int *major, unsigned int *minor)) {
  __typeof__(&nvJitLinkVersion) real = REAL(nvJitLinkVersion);
  return real ? real(major, minor) : NVJITLINK_ERROR_INTERNAL;
}

typedef nvJitLinkResult create_function(nvJitLinkHandle *, uint32_t, const char **);

/* Create NVIDIA's linker for the requested architecture, else for the newest older one that it supports. */
static nvJitLinkResult create_real(nvJitLinkHandle link, struct vgs_options *options, create_function *real) {
  nvJitLinkHandle *made = (nvJitLinkHandle *)&link->real;
  nvJitLinkResult result = real(made, (uint32_t)options->count, options->items);
  link->judges = !result && !link->optimises && !link->wants_ptx;
  for (size_t i = 0; result == NVJITLINK_ERROR_UNRECOGNIZED_ARCH && i < sizeof architectures / sizeof *architectures;
       i++)
    if (options->at >= 0 && architectures[i] < options->asked) {
      vgs_options_set_arch(options, architectures[i]);
      result = real(made, (uint32_t)options->count, options->items);
    }
  return result;
}

EXPORTED(nvJitLinkCreate, (nvJitLinkHandle * made, uint32_t count, const char **given)) {
  __typeof__(&nvJitLinkCreate) real = REAL(nvJitLinkCreate);
  struct vgs_options options;
  if (!real)
    return NVJITLINK_ERROR_INTERNAL;
  if (!made || count > INT_MAX - 1 || (count && !given))
    return NVJITLINK_ERROR_INVALID_INPUT;
  nvJitLinkHandle link = calloc(1, sizeof *link);
  if (!link || !vgs_options_init(&options, (int)count, given)) {
    free(link);
    return NVJITLINK_ERROR_INTERNAL;
  }
  link->last = &link->texts;
  link->sm = options.asked;
  link->registers = options.registers;
  for (int i = 0; i < options.count; i++) {
    link->optimises |= options.items[i] && !strcmp(options.items[i], "-lto");
    link->wants_ptx |= options.items[i] && !strcmp(options.items[i], "-ptx");
  }
  if (link->optimises && !link->wants_ptx)
    options.items[options.count++] = "-ptx"; /* vgs_options_init has left room for it */
  nvJitLinkResult result = create_real(link, &options, real);
  vgs_options_fini(&options);
  if (result) {
    free(link);
    return result;
  }
  *made = link;
  return NVJITLINK_SUCCESS;
}

EXPORTED(nvJitLinkDestroy, (nvJitLinkHandle * gone)) {
  if (!gone || !*gone)
    return NVJITLINK_ERROR_INVALID_INPUT;
  nvJitLinkHandle link = *gone;
  __typeof__(&nvJitLinkDestroy) real = REAL(nvJitLinkDestroy);
  nvJitLinkResult result = real ? real((nvJitLinkHandle *)&link->real) : NVJITLINK_ERROR_INTERNAL;
  while (link->texts) {
    struct vgs_text *next = link->texts->next;
    free(link->texts);
    link->texts = next;
  }
  free(link->image);
  free(link);
  *gone = NULL;
  return result;
}

static bool append(nvJitLinkHandle link, const char *bytes, size_t nbytes) {
  char limit[VGS_LIMIT_NBYTES];
  size_t more = vgs_register_limit(limit, link->registers);
  struct vgs_text *text = malloc(sizeof *text + nbytes + more + 1);
  if (!text)
    return false;
  nbytes = strnlen(bytes, nbytes);
  *text = (struct vgs_text){.nbytes = nbytes + more};
  memcpy(text->bytes, bytes, nbytes);
  memcpy(text->bytes + nbytes, limit, more + 1);
  *link->last = text;
  link->last = &text->next;
  return true;
}

static bool is_ptx(const void *data, size_t nbytes) {
  static const char word[] = ".version";
  return memmem(data, nbytes < 65536 ? nbytes : 65536, word, sizeof word - 1) && memcmp(data, "\177ELF", 4) != 0 &&
         memcmp(data, "\x50\xed\x55\xba", 4) != 0;
}

/* libcudadevrt.a, whose functions the simulator has itself. */
static bool is_device_runtime(const char *data, size_t nbytes, const char *name) {
  static const char archive[] = "!<arch>\n";
  return name && strstr(name, "cudadevrt") && nbytes >= sizeof archive && !memcmp(data, archive, sizeof archive - 1);
}

EXPORTED(nvJitLinkAddData, (nvJitLinkHandle link, int type, const void *data, size_t nbytes, const char *name)) {
  __typeof__(&nvJitLinkAddData) real = REAL(nvJitLinkAddData);
  if (!link || link->image || !data || nbytes < 4)
    return NVJITLINK_ERROR_INVALID_INPUT;
  if (!link->wants_ptx && is_device_runtime(data, nbytes, name))
    return link->judges && real ? real(link->real, type, data, nbytes, name) : NVJITLINK_SUCCESS;
  if (!link->wants_ptx && (type == INPUT_PTX || (type == INPUT_ANY && is_ptx(data, nbytes)))) {
    nvJitLinkResult result = link->judges && real ? real(link->real, type, data, nbytes, name) : NVJITLINK_SUCCESS;
    return result || append(link, data, nbytes) ? result : NVJITLINK_ERROR_INTERNAL;
  }
  if (type == INPUT_CUBIN || (!link->optimises && type != INPUT_LTOIR)) {
    refuse(link, name, type == INPUT_CUBIN ? "machine code" : "what is neither PTX nor LTO-IR");
    return NVJITLINK_ERROR_UNRECOGNIZED_INPUT;
  }
  link->has_others = true;
  return real ? real(link->real, type, data, nbytes, name) : NVJITLINK_ERROR_INTERNAL;
}

EXPORTED(nvJitLinkAddFile, (nvJitLinkHandle link, int type, const char *path)) {
  FILE *file = link && path ? fopen(path, "rbe") : NULL;
  if (!file)
    return NVJITLINK_ERROR_INVALID_INPUT;
  nvJitLinkResult result = NVJITLINK_ERROR_INVALID_INPUT;
  long nbytes = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
  char *data = nbytes > 0 && nbytes < FILE_NBYTES_MAX && !fseek(file, 0, SEEK_SET) ? malloc((size_t)nbytes) : NULL;
  if (data && fread(data, 1, (size_t)nbytes, file) == (size_t)nbytes)
    result = nvJitLinkAddData(link, type, data, (size_t)nbytes, path);
  free(data);
  fclose(file);
  return result;
}

/* Add the PTX that NVIDIA's linker made of its inputs. */
static nvJitLinkResult append_linked(nvJitLinkHandle link) {
  size_t nbytes;
  nvJitLinkResult result = nvJitLinkGetLinkedPtxSize(link, &nbytes);
  char *ptx = result ? NULL : malloc(nbytes + 1);
  if (ptx)
    result = nvJitLinkGetLinkedPtx(link, ptx);
  if (!result && !(ptx && append(link, ptx, nbytes)))
    result = NVJITLINK_ERROR_INTERNAL;
  free(ptx);
  return result;
}

EXPORTED(nvJitLinkComplete, (nvJitLinkHandle link)) {
  __typeof__(&nvJitLinkComplete) real = REAL(nvJitLinkComplete);
  if (!real)
    return NVJITLINK_ERROR_INTERNAL;
  if (!link || *link->refused || link->image)
    return NVJITLINK_ERROR_INVALID_INPUT;
  if (link->judges) {
    nvJitLinkResult result = real(link->real);
    if (result)
      return result;
  } else if (link->has_others || !link->texts) {
    nvJitLinkResult result = real(link->real);
    if (result || link->wants_ptx)
      return result;
    result = append_linked(link);
    if (result)
      return result;
  }
  link->image = vgs_linked_image(link->texts, link->sm, &link->image_nbytes);
  return link->image ? NVJITLINK_SUCCESS : NVJITLINK_ERROR_INTERNAL;
}

EXPORTED(nvJitLinkGetLinkedCubinSize, (nvJitLinkHandle link, size_t *nbytes)) {
  if (!link || !nbytes || !link->image)
    return NVJITLINK_ERROR_INVALID_INPUT;
  *nbytes = link->image_nbytes;
  return NVJITLINK_SUCCESS;
}

EXPORTED(nvJitLinkGetLinkedCubin, (nvJitLinkHandle link, void *cubin)) {
  if (!link || !cubin || !link->image)
    return NVJITLINK_ERROR_INVALID_INPUT;
  memcpy(cubin, link->image, link->image_nbytes);
  return NVJITLINK_SUCCESS;
}

EXPORTED(nvJitLinkGetErrorLogSize, (nvJitLinkHandle link, size_t *nbytes)) {
  __typeof__(&nvJitLinkGetErrorLogSize) real = REAL(nvJitLinkGetErrorLogSize);
  if (!link || !nbytes)
    return NVJITLINK_ERROR_INVALID_INPUT;
  if (*link->refused) {
    *nbytes = strlen(link->refused) + 1;
    return NVJITLINK_SUCCESS;
  }
  return real ? real(link->real, nbytes) : NVJITLINK_ERROR_INTERNAL;
}

EXPORTED(nvJitLinkGetErrorLog, (nvJitLinkHandle link, char *log)) {
  __typeof__(&nvJitLinkGetErrorLog) real = REAL(nvJitLinkGetErrorLog);
  if (!link || !log)
    return NVJITLINK_ERROR_INVALID_INPUT;
  if (*link->refused) {
    strcpy(log, link->refused);
    return NVJITLINK_SUCCESS;
  }
  return real ? real(link->real, log) : NVJITLINK_ERROR_INTERNAL;
}
