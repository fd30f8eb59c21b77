/* A driver of which one call fails (vgt_fuzz_faults.h): the simulator's table, with a function of the same type in
 * front of each of its own. tests/fuzz/build.py generates the list of them, vgt_driver.h. */
#include "vgt_fuzz_driver.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "vgt_fuzz_faults.h"
#include "vgx_image.h"

static struct vgx_backend real, failing;

/* Stands for the simulator's linker, which is Python: what is linked is the first input. */
static CUresult link_images(CUdevice device, const void *const *data, const uint64_t *nbytes, uint32_t count,
                            void **out, uint64_t *out_nbytes) {
  (void)device, (void)count;
  if (!out)
    return CUDA_SUCCESS;
  *out = calloc(1, nbytes[0] + VGX_IMAGE_PADDING);
  if (!*out)
    return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(*out, data[0], nbytes[0]);
  *out_nbytes = nbytes[0];
  return CUDA_SUCCESS;
}

/* The simulator shares a device otherwise, and has not this. */
static CUresult current_device(CUdevice *device) {
  *device = 0;
  return CUDA_SUCCESS;
}

/* As NVIDIA's driver, of which the caller may want the status alone. */
static const struct vgx_backend *simulated;
static CUresult capture_info(CUstream stream, int *status, uint64_t *id, CUgraph *graph, const CUgraphNode **nodes,
                             size_t *count) {
  uint64_t id_unread;
  CUgraph graph_unread;
  const CUgraphNode *nodes_unread;
  size_t count_unread;
  return simulated->cuStreamGetCaptureInfo_v2(stream, status, id ? id : &id_unread, graph ? graph : &graph_unread,
                                              nodes ? nodes : &nodes_unread, count ? count : &count_unread);
}

/* A driver may not know a kernel's parameters (vgx_cuda_params.c). */
static CUresult param_info(CUfunction function, size_t index, size_t *offset, size_t *nbytes) {
  static _Atomic uint32_t turn;
  return ++turn % 16 ? simulated->cuFuncGetParamInfo(function, index, offset, nbytes) : CUDA_ERROR_NOT_FOUND;
}

/* The images of the search have no managed variables. */
static CUresult managed_variable(CUlibrary library, const char *name, uint64_t address, uint64_t *placed,
                                 uint64_t *nbytes) {
  (void)library, (void)name;
  *placed = address;
  *nbytes = 64;
  return CUDA_SUCCESS;
}

/* As NVIDIA's driver, which returns a place for each parameter, where the simulator returns one block; as a driver that
 * names a kernel's function, and as one that the executor does not know. */
static CUresult kernel_node(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2 *params) {
  enum { PARAMETERS_MAX = 16, OF_FUNCTION = 1, UNKNOWN = 2 };
  static void *strange[] = {(void *)3, NULL, NULL};
  static _Thread_local uint64_t block[PARAMETERS_MAX];
  static _Thread_local void *places[PARAMETERS_MAX];
  static _Atomic uint32_t turn;
  CUresult result = simulated->cuGraphKernelNodeGetParams_v2(node, params);
  uint32_t form = turn++ % VGT_KERNEL_NODE_FORMS;
  if (result == CUDA_SUCCESS && form == OF_FUNCTION && params->kern && !params->func &&
      simulated->cuKernelGetFunction(&params->func, params->kern) == CUDA_SUCCESS)
    params->kern = NULL;
  if (result != CUDA_SUCCESS || form <= OF_FUNCTION || !params->extra ||
      params->extra[0] != CU_LAUNCH_PARAM_BUFFER_POINTER)
    return result;
  if (form == UNKNOWN) {
    params->extra = strange;
    return result;
  }
  size_t nbytes = *(const size_t *)params->extra[3];
  memcpy(block, params->extra[1], nbytes < sizeof block ? nbytes : sizeof block);
  for (int i = 0; i < PARAMETERS_MAX; i++)
    places[i] = &block[i];
  params->kernelParams = places;
  params->extra = NULL;
  return CUDA_SUCCESS;
}

/* Now and then a kernel has printed something, and an attribute is one that the device does not know. */
static bool output_pending(void) {
  static _Atomic uint32_t turn;
  return ++turn % 4 == 0;
}

static CUresult function_attribute(int *value, int attribute, CUfunction function) {
  static _Atomic uint32_t turn;
  return ++turn % 32 ? simulated->cuFuncGetAttribute(value, attribute, function) : CUDA_ERROR_INVALID_VALUE;
}

static void measured(void) {}

/* What a stream's host function is given belongs to the driver until it calls the function, which it never does once a
 * kernel has faulted; the worker's process ends then. So it is kept in sight of LeakSanitizer: the simulator forgets it
 * with the operation that it cancels. */
enum { HELD = 1024 };
static struct held {
  _Atomic(CUhostFn) function; /* NULL: nothing is held */
  void *argument;
} held[HELD];

static void call_held(void *place) {
  struct held *h = place;
  CUhostFn function = h->function;
  void *argument = h->argument;
  h->argument = NULL;
  h->function = NULL;
  function(argument);
}

static CUresult launch_host(CUstream stream, CUhostFn function, void *argument) {
  for (struct held *h = held; function && h < held + HELD; h++) {
    CUhostFn none = NULL;
    if (!atomic_compare_exchange_strong(&h->function, &none, function))
      continue;
    h->argument = argument;
    CUresult result = simulated->cuLaunchHostFunc(stream, call_held, h);
    if (result != CUDA_SUCCESS) {
      h->argument = NULL;
      h->function = NULL;
    }
    return result;
  }
  return simulated->cuLaunchHostFunc(stream, function, argument);
}

/* A driver that lacks all functions that the executor can do without. */
const struct vgx_backend *vgt_driver_of_few(void) {
  static struct vgx_backend few;
  few = failing;
  few.share_export = NULL;
  few.share_open = NULL;
  few.pool_export = NULL;
  few.pool_open = NULL;
  few.pointer_export = NULL;
  few.pointer_open = NULL;
  few.link = NULL;
  few.managed_variable = NULL;
  few.cuFuncGetParamInfo = NULL;
  few.cuGraphAddNode_v2 = NULL;
  few.cuStreamEndCapture = NULL;
  few.cuStreamGetCaptureInfo_v2 = NULL;
  few.cuStreamGetCaptureInfo_v3 = NULL;
  few.cuStreamUpdateCaptureDependencies = NULL;
  few.cuGraphMemcpyNodeGetParams = NULL;
  few.cuGraphMemcpyNodeSetParams = NULL;
  few.cuLaunchHostFunc = NULL;
  few.measure = NULL;
  few.cuTensorMapEncodeTiled = NULL;
  few.cuLibraryGetKernelCount = NULL;
  few.cuModuleGetFunctionCount = NULL;
  few.has_words = false;
  return &few;
}

void vgt_driver_words(bool has) { failing.has_words = has; }

#ifdef VGT_FAULTS
#define VGT_DRIVER(name, parameters, arguments)                                                                        \
  static CUresult fail_##name parameters {                                                                             \
    return vgt_faults_driver_fails() ? CUDA_ERROR_OUT_OF_MEMORY : real.name arguments;                                 \
  }
#include "vgt_driver.h"
#undef VGT_DRIVER
#endif

const struct vgx_backend *vgt_driver(const struct vgx_backend *simulator) {
  real = *simulator;
  real.link = link_images;
  real.current_device = current_device;
  simulated = simulator;
  real.cuStreamGetCaptureInfo_v2 = capture_info;
  real.cuGraphKernelNodeGetParams_v2 = kernel_node;
  real.cuFuncGetParamInfo = param_info;
  real.managed_variable = managed_variable;
  real.cuLaunchHostFunc = launch_host;
  real.output_pending = output_pending;
  real.cuFuncGetAttribute = function_attribute;
  real.measured = measured;
  failing = real;
#ifdef VGT_FAULTS
#define VGT_DRIVER(name, parameters, arguments)                                                                        \
  if (real.name)                                                                                                       \
    failing.name = fail_##name;
#include "vgt_driver.h"
#undef VGT_DRIVER
#endif
  return &failing;
}
