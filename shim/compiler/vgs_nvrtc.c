/* A libnvrtc.so in front of NVIDIA's, for programs on simulated devices: if they request machine code they receive PTX,
 * which the driver loads as well, and an architecture that the compiler does not support is replaced by the newest that
 * it supports. Every other call is passed on. */
#include "vgs_arch.h"
#include "vgs_log.h"
#include "vgs_real.h"
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef int nvrtcResult;
typedef void *nvrtcProgram;
enum { NVRTC_SUCCESS = 0, NVRTC_ERROR_OUT_OF_MEMORY = 1, NVRTC_ERROR_INTERNAL_ERROR = 11 };

EXPORT const char vgpuCompilerStandIn[] = "libnvrtc";

/* The real function `name`, looked up once, with the type of this library's function. */
#define REAL(name)                                                                                                     \
  ({                                                                                                                   \
    static __typeof__(&name) found;                                                                                    \
    __typeof__(&name) function = __atomic_load_n(&found, __ATOMIC_ACQUIRE);                                            \
    if (!function) {                                                                                                   \
      function = (__typeof__(&name))vgs_real_function(#name, __builtin_return_address(0));                             \
      __atomic_store_n(&found, function, __ATOMIC_RELEASE);                                                            \
    }                                                                                                                  \
    function;                                                                                                          \
  })

#define FORWARD(name, parameters, ...)                                                                                 \
  EXPORT nvrtcResult name parameters;                                                                                  \
  nvrtcResult name parameters {                                                                                        \
    __typeof__(&name) real = REAL(name);                                                                               \
    return real ? real(__VA_ARGS__) : NVRTC_ERROR_INTERNAL_ERROR;                                                      \
  }

FORWARD(nvrtcVersion, (int *major, int *minor), major, minor)
FORWARD(nvrtcGetNumSupportedArchs, (int *count), count)
FORWARD(nvrtcGetSupportedArchs, (int *archs), archs)
FORWARD(nvrtcCreateProgram,
        (nvrtcProgram * program, const char *source, const char *name, int headers, const char *const *contents,
         const char *const *names),
        program, source, name, headers, contents, names)
FORWARD(nvrtcGetPTXSize, (nvrtcProgram program, size_t *nbytes), program, nbytes)
FORWARD(nvrtcGetPTX, (nvrtcProgram program, char *text), program, text)
FORWARD(nvrtcGetLTOIRSize, (nvrtcProgram program, size_t *nbytes), program, nbytes)
FORWARD(nvrtcGetLTOIR, (nvrtcProgram program, char *code), program, code)
FORWARD(nvrtcGetOptiXIRSize, (nvrtcProgram program, size_t *nbytes), program, nbytes)
FORWARD(nvrtcGetOptiXIR, (nvrtcProgram program, char *code), program, code)
FORWARD(nvrtcGetProgramLogSize, (nvrtcProgram program, size_t *nbytes), program, nbytes)
FORWARD(nvrtcGetProgramLog, (nvrtcProgram program, char *text), program, text)
FORWARD(nvrtcAddNameExpression, (nvrtcProgram program, const char *expression), program, expression)
FORWARD(nvrtcGetLoweredName, (nvrtcProgram program, const char *expression, const char **name), program, expression,
        name)
FORWARD(nvrtcGetPCHHeapSize, (size_t *nbytes), nbytes)
FORWARD(nvrtcSetPCHHeapSize, (size_t nbytes), nbytes)
FORWARD(nvrtcGetPCHCreateStatus, (nvrtcProgram program), program)
FORWARD(nvrtcGetPCHHeapSizeRequired, (nvrtcProgram program, size_t *nbytes), program, nbytes)
FORWARD(nvrtcSetFlowCallback, (nvrtcProgram program, int (*callback)(void *, void *), void *payload), program, callback,
        payload)

/* Functions of CUDA 13.5 that are forwarded without knowing their parameters, which are at most six words. */
#define FORWARD_WORDS(name) FORWARD(name, (long a, long b, long c, long d, long e, long f), a, b, c, d, e, f)
#if VGS_MAJOR == 12
FORWARD(nvrtcGetNVVMSize, (nvrtcProgram program, size_t *nbytes), program, nbytes)
FORWARD(nvrtcGetNVVM, (nvrtcProgram program, char *code), program, code)
#else
FORWARD(nvrtcGetTileIRSize, (nvrtcProgram program, size_t *nbytes), program, nbytes)
FORWARD(nvrtcGetTileIR, (nvrtcProgram program, char *code), program, code)
FORWARD_WORDS(nvrtcGetBundledHeadersInfo)
FORWARD_WORDS(nvrtcInstallBundledHeaders)
FORWARD_WORDS(nvrtcRemoveBundledHeaders)
#endif

EXPORT const char *nvrtcGetErrorString(nvrtcResult result);
const char *nvrtcGetErrorString(nvrtcResult result) {
  __typeof__(&nvrtcGetErrorString) real = REAL(nvrtcGetErrorString);
  return real ? real(result) : "NVRTC_ERROR_INTERNAL_ERROR: vgpu found no NVRTC of NVIDIA's";
}

/* NVRTC opens its builtins by name. It finds them beside itself only if the object that loaded it has such an RPATH. */
static void open_builtins(void) {
  char path[PATH_MAX];
  int major, minor, folder;
  const char *end = strrchr(vgs_real_path(), '/');
  if (!end || nvrtcVersion(&major, &minor))
    return;
  folder = (int)(end - vgs_real_path());
  if (snprintf(path, sizeof path, "%.*s/libnvrtc-builtins.so.%d.%d", folder, vgs_real_path(), major, minor) <
      (int)sizeof path)
    dlopen(path, RTLD_LAZY | RTLD_LOCAL);
}

/* The newest architecture that the compiler knows and that is not newer than `asked`; 0 if it knows `asked`, or none.
 */
static int clamped(int asked) {
  int count = 0, best = 0;
  if (nvrtcGetNumSupportedArchs(&count) || count <= 0)
    return 0;
  int *known = calloc((size_t)count, sizeof *known);
  if (known && !nvrtcGetSupportedArchs(known))
    for (int i = 0; i < count; i++) {
      if (known[i] == asked) {
        best = 0;
        break;
      }
      if (known[i] < asked && known[i] > best)
        best = known[i];
    }
  free(known);
  return best;
}

/* Programs whose registers are limited, by an option of their compilation. */
static struct limit {
  struct limit *next;
  nvrtcProgram program;
  int registers;
} *limits;
static pthread_mutex_t limits_lock = PTHREAD_MUTEX_INITIALIZER;

/* The place of the program's limit, or of the end of the list. */
static struct limit **find_limit_locked(nvrtcProgram program) {
  struct limit **at = &limits;
  while (*at && (*at)->program != program)
    at = &(*at)->next;
  return at;
}

/* False: out of memory. */
static bool set_limit(nvrtcProgram program, int registers) {
  pthread_mutex_lock(&limits_lock);
  struct limit **at = find_limit_locked(program), *found = *at;
  if (found && !registers) {
    *at = found->next;
    free(found);
  } else if (!found && registers && (found = *at = calloc(1, sizeof *found)))
    found->program = program;
  if (found && registers)
    found->registers = registers;
  pthread_mutex_unlock(&limits_lock);
  return found || !registers;
}

/* Write the line of PTX that limits the program's registers; returns its length. */
static size_t write_limit(nvrtcProgram program, char text[VGS_LIMIT_NBYTES]) {
  pthread_mutex_lock(&limits_lock);
  struct limit *found = *find_limit_locked(program);
  int registers = found ? found->registers : 0;
  pthread_mutex_unlock(&limits_lock);
  return vgs_register_limit(text, registers);
}

EXPORT nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program);
nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program) {
  __typeof__(&nvrtcDestroyProgram) real = REAL(nvrtcDestroyProgram);
  if (program)
    set_limit(*program, 0);
  return real ? real(program) : NVRTC_ERROR_INTERNAL_ERROR;
}

EXPORT nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char *const *given);
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char *const *given) {
  __typeof__(&nvrtcCompileProgram) real = REAL(nvrtcCompileProgram);
  static pthread_once_t builtins = PTHREAD_ONCE_INIT;
  struct vgs_options options;
  if (!real)
    return NVRTC_ERROR_INTERNAL_ERROR;
  pthread_once(&builtins, open_builtins);
  if (count < 0 || (count && !given))
    return real(program, count, given);
  if (!vgs_options_init(&options, count, given))
    return NVRTC_ERROR_OUT_OF_MEMORY;
  int number = options.at >= 0 ? clamped(options.asked) : 0;
  if (number) {
    vgs_log(VGS_LOG_INFO, "NVRTC does not know architecture %d: %d is compiled for", options.asked, number);
    vgs_options_set_arch(&options, number);
  }
  nvrtcResult result = real(program, options.count, options.items);
  if (!result && !set_limit(program, options.registers))
    result = NVRTC_ERROR_OUT_OF_MEMORY;
  vgs_options_fini(&options);
  return result;
}

/* Whether there is PTX: a program compiled for link-time optimisation has an empty text. */
static bool has_ptx(nvrtcProgram program, size_t *nbytes) { return !nvrtcGetPTXSize(program, nbytes) && *nbytes > 1; }

EXPORT nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *nbytes);
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *nbytes) {
  __typeof__(&nvrtcGetCUBINSize) real = REAL(nvrtcGetCUBINSize);
  size_t ptx_nbytes;
  char limit[VGS_LIMIT_NBYTES];
  if (nbytes && has_ptx(program, &ptx_nbytes)) {
    *nbytes = ptx_nbytes + write_limit(program, limit);
    return NVRTC_SUCCESS;
  }
  return real ? real(program, nbytes) : NVRTC_ERROR_INTERNAL_ERROR;
}

EXPORT nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *code);
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *code) {
  __typeof__(&nvrtcGetCUBIN) real = REAL(nvrtcGetCUBIN);
  size_t nbytes;
  if (has_ptx(program, &nbytes)) { /* its size includes the NUL */
    char limit[VGS_LIMIT_NBYTES];
    size_t more = write_limit(program, limit);
    nvrtcResult result = nvrtcGetPTX(program, code);
    if (!result && more)
      memcpy(code + nbytes - 1, limit, more + 1);
    return result;
  }
  return real ? real(program, code) : NVRTC_ERROR_INTERNAL_ERROR;
}
