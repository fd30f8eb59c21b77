/* Launches: what the driver refuses at once is refused here (oracle), so that the rest can be queued. */
#include "vgs_launch.h"
#include "vgs_api.h"
#include "vgs_capture.h"
#include "vgs_enter.h"
#include "vgs_event.h"
#include "vgs_host_mirror.h"
#include "vgs_kernel.h"
#include "vgs_mirror.h"
#include "vgs_order.h"
#include "vgs_stream.h"
#include "vgw_enums.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { ATTRIBUTES_MAX = 64, PARAMS_INLINE_NBYTES = 4096 };

CUresult vgs_launch_check_shape(const struct vgs_launch *launch) {
  const int32_t *limits = vgs_context_entered->attributes;
  uint64_t threads = 1;
  for (int i = 0; i < 3; i++) {
    if (!launch->grid[i] || launch->grid[i] > (uint32_t)limits[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i] ||
        !launch->block[i] || launch->block[i] > (uint32_t)limits[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i])
      return CUDA_ERROR_INVALID_VALUE;
    threads *= launch->block[i]; /* each factor is at most 1024 */
  }
  int most = vgs_kernel_attribute(launch->kernel, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  int dynamic = vgs_kernel_attribute(launch->kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  if ((most > 0 && threads > (uint64_t)most) || (dynamic >= 0 && launch->shared_nbytes > (uint32_t)dynamic))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

static CUresult pack(const struct vgs_launch *launch, char *block, const void **given) {
  const struct vgs_kernel *kernel = launch->kernel;
  *given = block;
  if (launch->params && launch->extra)
    return CUDA_ERROR_INVALID_VALUE;
  if (launch->extra) {
    const void *buffer = NULL;
    size_t nbytes = 0;
    bool has_nbytes = false;
    for (void **next = launch->extra; *next != CU_LAUNCH_PARAM_END; next += 2) {
      if (*next == CU_LAUNCH_PARAM_BUFFER_POINTER)
        buffer = next[1];
      else if (*next == CU_LAUNCH_PARAM_BUFFER_SIZE && next[1]) {
        nbytes = *(const size_t *)next[1];
        has_nbytes = true;
      } else
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!buffer && kernel->param_nbytes)
      return CUDA_ERROR_INVALID_VALUE;
    if (buffer && has_nbytes && nbytes < kernel->param_nbytes) {
      /* NCCL passes fewer arguments than its kernel has parameters. NVIDIA's driver accepts that and reads beyond them.
       */
      memcpy(block, buffer, nbytes);
      memset(block + nbytes, 0, kernel->param_nbytes - nbytes);
    } else if (buffer && kernel->param_nbytes)
      *given = buffer;
    return CUDA_SUCCESS;
  }
  if (!kernel->param_count)
    return CUDA_SUCCESS;
  if (!launch->params)
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t end = 0;
  for (uint32_t i = 0; i < kernel->param_count; i++) {
    const void *value = launch->params[i];
    uint64_t offset = kernel->params[i].offset, nbytes = kernel->params[i].nbytes;
    if (!value)
      return CUDA_ERROR_INVALID_VALUE;
    if (offset > end)
      memset(block + end, 0, offset - end); /* between parameters */
    if (nbytes == 8)                        /* most are pointers or integers: a move, not a call */
      memcpy(block + offset, value, 8);
    else if (nbytes == 4)
      memcpy(block + offset, value, 4);
    else
      memcpy(block + offset, value, nbytes);
    end = offset + nbytes > end ? offset + nbytes : end;
  }
  if (end < kernel->param_nbytes)
    memset(block + end, 0, kernel->param_nbytes - end);
  return CUDA_SUCCESS;
}

CUresult vgs_launch_pack_params(const struct vgs_launch *launch, char *block, const void **given) {
  CUresult result = pack(launch, block, given);
  return result || !vgs_diverted(VGS_MIRRORING) ? result
                                                : vgs_host_mirror_expose_words(*given, launch->kernel->param_nbytes);
}

static bool records_event(const CUlaunchAttribute *attribute) {
  return attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
         attribute->id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
}

/* Launch attributes as they travel: an event inside becomes its id. */
static CUresult translate_attributes(const CUlaunchConfig *config, CUlaunchAttribute *attributes, uint32_t *count,
                                     bool *cooperative) {
  *count = 0;
  if (config->numAttrs > ATTRIBUTES_MAX || (config->numAttrs && !config->attrs))
    return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < config->numAttrs; i++) {
    CUlaunchAttribute *attribute = &attributes[*count];
    *attribute = config->attrs[i];
    if (attribute->id == CU_LAUNCH_ATTRIBUTE_IGNORE)
      continue;
    if (attribute->id < 0 || (attribute->id > CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT &&
                              attribute->id != CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING))
      return CUDA_ERROR_INVALID_VALUE;
    if (attribute->id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE)
      return CUDA_ERROR_NOT_SUPPORTED;
    if (records_event(attribute)) {
      struct vgs_event *event = vgs_object_find(VGW_KIND_EVENT, attribute->value.programmaticEvent.event);
      if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
      vgs_event_recorded_in_worker(event);
      attribute->value.programmaticEvent.event = (CUevent)(uintptr_t)event->object.id;
    }
    *cooperative |= attribute->id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && attribute->value.cooperative;
    ++*count;
  }
  return CUDA_SUCCESS;
}

/* Check the cluster's shape, from the launch's attributes or else the kernel's: it must divide the grid and not exceed
 * the largest cluster. This is checked here because the launch itself is queued. */
static CUresult check_clusters(const struct vgs_launch *launch, const CUlaunchAttribute *attributes, uint32_t count) {
  enum { PORTABLE_MAX = 8, MAX = 16 };
  uint32_t cluster[3];
  for (int i = 0; i < 3; i++)
    cluster[i] = (uint32_t)vgs_kernel_attribute(launch->kernel, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i);
  for (uint32_t i = 0; i < count; i++)
    if (attributes[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      cluster[0] = attributes[i].value.clusterDim.x;
      cluster[1] = attributes[i].value.clusterDim.y;
      cluster[2] = attributes[i].value.clusterDim.z;
    }
  uint64_t size = 1;
  for (int i = 0; i < 3; i++) {
    uint32_t dimension = (int32_t)cluster[i] > 0 ? cluster[i] : 1; /* 0 is not set, INT_MIN not known */
    if (dimension > MAX || launch->grid[i] % dimension)
      return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    size *= dimension;
  }
  bool beyond = vgs_kernel_attribute(launch->kernel, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) > 0;
  return size > (beyond ? MAX : PORTABLE_MAX) ? CUDA_ERROR_INVALID_CLUSTER_SIZE : CUDA_SUCCESS;
}

/* The first launch of a kernel waits for its reply, which may say that the image cannot be compiled or linked. */
static bool is_first(const struct vgs_kernel *kernel) { return !__atomic_load_n(&kernel->launched, __ATOMIC_ACQUIRE); }

/* Encode a launch without attributes in place in the ring, parameters included. False: not possible now. */
static bool send_directly(const struct vgs_launch *launch, CUresult *result) {
  const struct vgs_kernel *kernel = launch->kernel;
  const uint32_t *g = launch->grid, *b = launch->block;
  struct vgs_record record;
  void *params;
  if (!vgs_begin_cuLaunchKernel(&record, kernel->object.kind, kernel->object.id, g[0], g[1], g[2], b[0], b[1], b[2],
                                launch->shared_nbytes, launch->stream, kernel->param_nbytes, &params))
    return false;
  const void *given;
  *result = pack(launch, params, &given);
  if (*result) {
    vgs_record_cancel(&record);
    return true;
  }
  if (given != params)
    memcpy(params, given, kernel->param_nbytes);
  *result = vgs_record_send(&record);
  return true;
}

static CUresult send(const struct vgs_launch *launch, const CUlaunchAttribute *attributes, uint32_t count,
                     const void *params) {
  struct vgs_kernel *kernel = launch->kernel;
  const uint32_t *g = launch->grid, *b = launch->block;
  bool first = is_first(kernel);
  CUresult result;
  if (count)
    result = vgs_send_cuLaunchKernelEx(kernel->object.kind, kernel->object.id, g[0], g[1], g[2], b[0], b[1], b[2],
                                       launch->shared_nbytes, launch->stream, count * (uint32_t)sizeof *attributes,
                                       kernel->param_nbytes, attributes, params, first);
  else
    result = vgs_send_cuLaunchKernel(kernel->object.kind, kernel->object.id, g[0], g[1], g[2], b[0], b[1], b[2],
                                     launch->shared_nbytes, launch->stream, kernel->param_nbytes, params, first);
  /* A record has room for the touch of its stream; later ones that name the event follow all rings. */
  for (uint32_t i = 0; i < count; i++)
    if (records_event(&attributes[i]))
      vgs_touch_mix(VGW_KIND_EVENT, (uint32_t)(uintptr_t)attributes[i].value.programmaticEvent.event);
  if (!result && first)
    __atomic_store_n(&kernel->launched, 1, __ATOMIC_RELEASE);
  return result;
}

static bool blocking;

void vgs_launch_configure(void) {
  const char *wanted = getenv("CUDA_LAUNCH_BLOCKING");
  blocking = wanted && *wanted && strcmp(wanted, "0");
}

/* With CUDA_LAUNCH_BLOCKING a launch itself reports the fault of its kernel. A captured launch runs later. */
static CUresult finish(const struct vgs_launch *launch, const struct vgs_stream *on, CUresult result) {
  return result || !blocking || (on && vgs_capture_status(on->capture)) ? result
                                                                        : vgs_mirror_wait_stream(launch->stream);
}

static CUresult launch_packed(const struct vgs_launch *launch, const CUlaunchAttribute *attributes, uint32_t count) {
  char small[PARAMS_INLINE_NBYTES], *block = small;
  const void *given;
  if (launch->kernel->param_nbytes > sizeof small && !(block = malloc(launch->kernel->param_nbytes)))
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = vgs_launch_pack_params(launch, block, &given);
  if (!result)
    result = send(launch, attributes, count, given);
  if (block != small)
    free(block);
  return result;
}

static CUresult launch_mirroring(const struct vgs_launch *launch, const CUlaunchAttribute *attributes, uint32_t count) {
  CUresult result = vgs_mirror_flush(launch->stream);
  if (!result)
    result = launch_packed(launch, attributes, count);
  vgs_mirror_submitted();
  return result;
}

static CUresult launch_kernel(const CUlaunchConfig *config, CUfunction f, void **params, void **extra) {
  struct vgs_launch launch = {.kernel = vgs_kernel_find(f),
                              .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                              .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
                              .shared_nbytes = config->sharedMemBytes,
                              .params = params,
                              .extra = extra};
  if (!launch.kernel)
    return CUDA_ERROR_INVALID_HANDLE;
  CUlaunchAttribute attributes[ATTRIBUTES_MAX];
  uint32_t count;
  bool cooperative = false;
  struct vgs_stream *on;
  CUresult result = vgs_stream_id(config->hStream, &launch.stream, &on);
  if (result || (result = vgs_kernel_prepare(launch.kernel)) || (result = vgs_launch_check_shape(&launch)) ||
      (result = translate_attributes(config, attributes, &count, &cooperative)) ||
      (result = check_clusters(&launch, attributes, count)))
    return result;
  if (cooperative) { /* all blocks must be resident at once */
    int per_multiprocessor;
    result = vgs_cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &per_multiprocessor, f, (int)(launch.block[0] * launch.block[1] * launch.block[2]), launch.shared_nbytes);
    if (result)
      return result;
    int64_t fit =
        (int64_t)per_multiprocessor * vgs_context_entered->attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
    unsigned __int128 blocks = (unsigned __int128)launch.grid[0] * launch.grid[1] * launch.grid[2];
    if (blocks > (unsigned __int128)fit)
      return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  bool mirroring = vgs_diverted(VGS_MIRRORING); /* the parameters are read before the record is begun */
  if (mirroring && !(on && vgs_capture_status(on->capture)))
    result = launch_mirroring(&launch, attributes, count);
  else if (count || mirroring || is_first(launch.kernel) || !send_directly(&launch, &result))
    result = launch_packed(&launch, attributes, count);
  return finish(&launch, on, result);
}

CUresult vgs_cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                            unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                            unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra) {
  CUlaunchConfig config = {.gridDimX = gridDimX,
                           .gridDimY = gridDimY,
                           .gridDimZ = gridDimZ,
                           .blockDimX = blockDimX,
                           .blockDimY = blockDimY,
                           .blockDimZ = blockDimZ,
                           .sharedMemBytes = sharedMemBytes,
                           .hStream = hStream};
  return launch_kernel(&config, f, kernelParams, extra);
}

CUresult vgs_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra) {
  return config ? launch_kernel(config, f, kernelParams, extra) : CUDA_ERROR_INVALID_VALUE;
}

CUresult vgs_cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                       unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                       unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                       void **kernelParams) {
  CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value = {.cooperative = 1}};
  CUlaunchConfig config = {.gridDimX = gridDimX,
                           .gridDimY = gridDimY,
                           .gridDimZ = gridDimZ,
                           .blockDimX = blockDimX,
                           .blockDimY = blockDimY,
                           .blockDimZ = blockDimZ,
                           .sharedMemBytes = sharedMemBytes,
                           .hStream = hStream,
                           .attrs = &cooperative,
                           .numAttrs = 1};
  return launch_kernel(&config, f, kernelParams, NULL);
}
