/* Launches: what the driver refuses at once, then an operation in the stream (vgx_sim_run.c runs it).
 *
 * Parameters are copied when the call is made.
 * Locking: none of its own; the function's module is pinned while the call lasts, and unloading waits for its launches.
 */
#include "vgx_sim_launch.h"

#include <stdlib.h>
#include <string.h>

#include "vgx_sim_abi.h"
#include "vgx_sim_cluster.h"
#include "vgx_sim_count.h"
#include "vgx_sim_function.h"
#include "vgx_sim_green.h"
#include "vgx_sim_kernel.h"
#include "vgx_sim_pool.h"
#include "vgx_sim_queue.h"
#include "vgx_sim_run.h"
#include "vgx_sim_runtime.h"
#include "vgx_sim_watch.h"
#include "vgx_sim_watch_turn.h"

#define PARAMS_PADDING 16u       /* bytes behind the parameter block that must be readable (vgx_sim_abi.h) */
#define PARAMS_NBYTES_MAX 32764u /* as a card's */
#define LAUNCH_ATTRIBUTES_MAX 64u
#define WATCHED_CTAS_MAX 4096u         /* CTAs that the sanitizer tracks at once in an interleaved kernel */
#define FRAMES_NBYTES_MAX (1ull << 36) /* address space; a CTA touches little of it */

void vgx_sim_launch_params(const struct vgx_sim_op *op, CUDA_KERNEL_NODE_PARAMS_v2 *params) {
  const struct vgx_sim_launch_op *l = (const struct vgx_sim_launch_op *)op;
  const struct vgx_sim_launch *job = &l->job.launch;
  bool kernel = l->named->magic == VGX_SIM_KERNEL;
  *params = (CUDA_KERNEL_NODE_PARAMS_v2){.func = kernel ? NULL : l->named,
                                         .gridDimX = job->grid[0],
                                         .gridDimY = job->grid[1],
                                         .gridDimZ = job->grid[2],
                                         .blockDimX = job->block[0],
                                         .blockDimY = job->block[1],
                                         .blockDimZ = job->block[2],
                                         .sharedMemBytes = job->shared_dynamic_nbytes,
                                         .extra = (void **)l->extra,
                                         .kern = kernel ? (CUkernel)l->named : NULL,
                                         .ctx = l->ctx};
}

struct vgx_sim_launch_form vgx_sim_launch_form(const struct vgx_sim_op *op) {
  return ((const struct vgx_sim_launch_op *)op)->form;
}

static void describe_launch(const struct vgx_sim_op *op, struct vgw_activity *activity, const char **name) {
  const struct vgx_sim_launch_op *l = (const struct vgx_sim_launch_op *)op;
  const struct vgx_sim_launch *job = &l->job.launch;
  activity->kind = VGW_ACTIVITY_KERNEL;
  memcpy(activity->grid, job->grid, sizeof activity->grid);
  memcpy(activity->block, job->block, sizeof activity->block);
  activity->shared_static_nbytes = job->shared_static_nbytes;
  activity->shared_dynamic_nbytes = job->shared_dynamic_nbytes;
  activity->local_nbytes = l->function->info.local_nbytes;
  activity->registers = l->function->info.register_count;
  *name = l->function->name;
}

static void destroy_launch(struct vgx_sim_op *op) { free(op); }

/* Check the launch's shape and shared memory against the limits of the device and the kernel. */
static CUresult check_shape(CUcontext ctx, CUfunction f, const uint32_t grid[3], const uint32_t block[3],
                            uint32_t dynamic_nbytes) {
  const struct vgx_sim_device *d = ctx->device;
  uint64_t threads = 1;
  for (int i = 0; i < 3; i++) {
    if (grid[i] == 0 || block[i] == 0 ||
        grid[i] > vgx_sim_attribute(d, (enum vgx_sim_attribute)(VGX_SIM_MAX_GRID_DIM_X + i), 65535) ||
        block[i] > vgx_sim_attribute(d, (enum vgx_sim_attribute)(VGX_SIM_MAX_BLOCK_DIM_X + i), 64))
      return CUDA_ERROR_INVALID_VALUE;
    threads *= block[i];
    if (f->info.required_block[i] && f->info.required_block[i] != block[i])
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (threads > (uint64_t)vgx_sim_attribute(d, VGX_SIM_MAX_THREADS_PER_BLOCK, 1024) || threads > f->info.max_threads)
    return CUDA_ERROR_INVALID_VALUE;
  vgx_sim_lock();
  int64_t most = f->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
  vgx_sim_unlock();
  return dynamic_nbytes > most ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Bytes of the parameter block that a call must supply. */
static uint64_t required_nbytes(CUfunction f) {
  uint64_t nbytes = 0;
  for (uint32_t i = 0; i < f->info.param_count; i++) {
    uint64_t end = (uint64_t)f->param_offsets[i] + f->param_nbytes[i];
    nbytes = end > nbytes ? end : nbytes;
  }
  return nbytes;
}

/* Copy the parameters to `block`, which has room for the kernel's parameter block. */
static CUresult copy_params(CUfunction f, void **kernel_params, void **extra, uint8_t *block, uint64_t block_nbytes) {
  if (kernel_params && extra)
    return CUDA_ERROR_INVALID_VALUE;
  if (f->info.param_count == 0)
    return CUDA_SUCCESS;
  if (kernel_params) {
    for (uint32_t i = 0; i < f->info.param_count; i++)
      memcpy(block + f->param_offsets[i], kernel_params[i], f->param_nbytes[i]);
    return CUDA_SUCCESS;
  }
  const void *buffer = NULL;
  size_t nbytes = 0;
  for (void **e = extra; e && *e != CU_LAUNCH_PARAM_END; e += 2) {
    if (*e == CU_LAUNCH_PARAM_BUFFER_POINTER)
      buffer = e[1];
    else if (*e == CU_LAUNCH_PARAM_BUFFER_SIZE && e[1])
      nbytes = *(const size_t *)e[1];
    else
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (!buffer)
    return CUDA_ERROR_INVALID_VALUE;
  if (nbytes < required_nbytes(f))
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  memcpy(block, buffer, nbytes < block_nbytes ? nbytes : block_nbytes);
  return CUDA_SUCCESS;
}

/* Check that all CTAs of a cooperative launch fit the device at once. */
static CUresult check_cooperative(CUcontext ctx, CUfunction f, const uint32_t grid[3], const uint32_t block[3],
                                  uint32_t dynamic_nbytes, const struct CUgreenCtx_st *green) {
  int blocks;
  CUresult result = vgx_sim_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
      &blocks, f, (int)(block[0] * block[1] * block[2]), dynamic_nbytes, 0);
  if (result != CUDA_SUCCESS)
    return result;
  uint64_t fit = (uint64_t)blocks * (uint64_t)vgx_sim_green_count(ctx->device, green);
  return (uint64_t)grid[0] * grid[1] * grid[2] > fit ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_SUCCESS;
}

bool vgx_sim_launch_pin_locked(const struct vgx_sim_op *op, int change) {
  if (op->kind != VGX_SIM_OP_KERNEL)
    return true;
  CUfunction f = ((const struct vgx_sim_launch_op *)op)->function;
  if (change > 0 && f->magic != VGX_SIM_FUNCTION)
    return false;
  f->module->pins += (uint32_t)change;
  if (f->module->pins == 0)
    vgx_sim_notify_locked();
  return true;
}

/* Compute the memory that each thread needs. */
static CUresult lay_out(struct vgx_sim_launch_op *l, bool resident, uint32_t cluster_size) {
  struct vgx_sim_job *job = &l->job;
  uint64_t together = resident ? job->launch.cta_count : cluster_size; /* CTAs that one thread runs at once */
  job->shared_nbytes = (uint64_t)job->launch.shared_static_nbytes + job->launch.shared_dynamic_nbytes;
  if (!resident && together == 1)
    return CUDA_SUCCESS;
  job->alone |= resident;
  uint64_t stride = vgx_sim_shared_stride(&job->launch);
  if (__builtin_mul_overflow(together, job->frame_nbytes, &job->frame_nbytes) ||
      job->frame_nbytes > FRAMES_NBYTES_MAX ||
      __builtin_mul_overflow(together, job->local_nbytes, &job->local_nbytes) ||
      job->local_nbytes > VGX_SIM_LOCAL_NBYTES_MAX || __builtin_mul_overflow(together, stride, &job->shared_nbytes) ||
      job->shared_nbytes > VGX_SIM_SHARED_NBYTES_MAX) {
    vgx_sim_reason(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, false, "kernel %s: %llu blocks at once need too much memory",
                   l->function->name, (unsigned long long)together);
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  }
  return CUDA_SUCCESS;
}

/* How many CTAs of an interleaved kernel a thread may run at once: as many as the device does, as far as there is room
 * for them. */
static uint64_t count_places(CUcontext ctx, CUfunction f, const struct vgx_sim_launch_op *op) {
  const struct vgx_sim_job *job = &op->job;
  const struct vgx_sim_launch *l = &job->launch;
  int64_t threads = (int64_t)l->block[0] * l->block[1] * l->block[2];
  int64_t blocks = vgx_sim_active_blocks(ctx->device, f, threads, l->shared_dynamic_nbytes);
  uint64_t limits[] = {(uint64_t)blocks * (uint64_t)vgx_sim_green_count(ctx->device, op->form.green),
                       VGX_SIM_SHARED_NBYTES_MAX / vgx_sim_place_stride(l),
                       job->local_nbytes ? VGX_SIM_LOCAL_NBYTES_MAX / job->local_nbytes : UINT64_MAX,
                       FRAMES_NBYTES_MAX / (job->frame_nbytes ? job->frame_nbytes : 1)};
  uint64_t places = l->cta_count;
  for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
    places = limits[i] < places ? limits[i] : places;
  return places ? places : 1;
}

static CUresult create_pinned(CUcontext ctx, CUfunction f, const uint32_t grid[3], const uint32_t block[3],
                              uint32_t dynamic_nbytes, void **kernel_params, void **extra,
                              const struct vgx_sim_launch_form *form, struct vgx_sim_op **op) {
  bool cooperative = form->cooperative;
  uint32_t cluster[3];
  CUresult result = check_shape(ctx, f, grid, block, dynamic_nbytes);
  if (result == CUDA_SUCCESS)
    result = vgx_sim_cluster_of(ctx->device, f, form->cluster, grid, cluster);
  if (result == CUDA_SUCCESS && cooperative && vgx_sim_cluster_size(cluster) > 1)
    result = CUDA_ERROR_NOT_SUPPORTED;
  if (result == CUDA_SUCCESS && cooperative)
    result = check_cooperative(ctx, f, grid, block, dynamic_nbytes, form->green);
  if (result != CUDA_SUCCESS)
    return result;
  uint64_t nbytes = required_nbytes(f);
  nbytes = f->info.param_nbytes > nbytes ? f->info.param_nbytes : nbytes;
  if (nbytes > PARAMS_NBYTES_MAX) {
    vgx_sim_reason(CUDA_ERROR_INVALID_VALUE, false, "kernel %s: %llu bytes of parameters; %u is the limit", f->name,
                   (unsigned long long)nbytes, PARAMS_NBYTES_MAX);
    return CUDA_ERROR_INVALID_VALUE;
  }
  struct vgx_sim_launch_op *l = calloc(1, sizeof *l + nbytes + PARAMS_PADDING);
  if (!l)
    return CUDA_ERROR_OUT_OF_MEMORY;
  const struct vgx_sim_variant *v;
  result = copy_params(f, kernel_params, extra, l->params, nbytes);
  if (result == CUDA_SUCCESS)
    result = vgx_sim_function_compile(
        f, block,
        (cooperative ? VGX_SIM_COMPILE_COOPERATIVE : 0) | (vgx_sim_tools ? VGX_SIM_COMPILE_WATCHED : 0) |
            (vgx_sim_tools & VGX_SIM_INITCHECK_SHARED ? VGX_SIM_COMPILE_TRACKED : 0) |
            (vgx_sim_counts ? VGX_SIM_COMPILE_COUNTED : 0) | vgx_sim_cluster_flags(cluster),
        &form->followed, &v);
  if (result == CUDA_SUCCESS && cooperative && !v->compiled.cooperative)
    result = CUDA_ERROR_NOT_SUPPORTED;
  if (result != CUDA_SUCCESS) {
    free(l);
    return result;
  }
  l->op = (struct vgx_sim_op){
      .run = vgx_sim_run_launch, .destroy = destroy_launch, .kind = VGX_SIM_OP_KERNEL, .describe = describe_launch};
  l->ctx = ctx;
  l->function = l->named = f;
  l->form = *form;
  l->create = vgx_sim_launch_create_as;
  l->param_nbytes = f->info.param_nbytes;
  l->extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
  l->extra[1] = l->params;
  l->extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
  l->extra[3] = &l->param_nbytes;
  l->extra[4] = CU_LAUNCH_PARAM_END;
  l->job = (struct vgx_sim_job){.code = v->compiled.code,
                                .params_nbytes = nbytes + PARAMS_PADDING,
                                .frame_nbytes = v->compiled.frame_nbytes,
                                .local_nbytes = v->compiled.local_nbytes,
                                .cooperative = cooperative};
  l->job.launch = (struct vgx_sim_launch){
      .params = l->params,
      .cta_count = (uint64_t)grid[0] * grid[1] * grid[2],
      .grid = {grid[0], grid[1], grid[2]},
      .block = {block[0], block[1], block[2]},
      .shared_static_nbytes = v->compiled.shared_static_nbytes,
      .shared_dynamic_nbytes = dynamic_nbytes,
      .symbols = v->symbols,
  };
  bool resident = v->compiled.cooperative == VGX_SIM_COOPERATIVE_RESIDENT;
  bool interleaved = v->compiled.code->turns == VGX_SIM_INTERLEAVED;
  bool each = interleaved && vgx_sim_tools && l->job.launch.cta_count <= WATCHED_CTAS_MAX;
  l->together = resident || each || vgx_sim_cluster_size(cluster) > 1;
  l->job.in_order = !l->together && vgx_sim_watch_goes_ahead(vgx_sim_tools, v->compiled.code->turns);
  l->job.alone = !l->job.in_order && (vgx_sim_tools & (VGX_SIM_INITCHECKS | VGX_SIM_RACECHECK)) != 0;
  result = lay_out(l, resident, vgx_sim_cluster_size(cluster));
  l->job.launch.places = interleaved && (each || !vgx_sim_tools) ? count_places(ctx, f, l) : 1;
  if (result != CUDA_SUCCESS) {
    free(l);
    return result;
  }
  *op = &l->op;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_launch_create(CUcontext ctx, CUfunction handle, const uint32_t grid[3], const uint32_t block[3],
                               uint32_t dynamic_nbytes, void **kernel_params, void **extra, struct vgx_sim_op **op) {
  return vgx_sim_launch_create_as(ctx, handle, grid, block, dynamic_nbytes, kernel_params, extra,
                                  &(struct vgx_sim_launch_form){0}, op);
}

CUresult vgx_sim_launch_create_as(CUcontext ctx, CUfunction handle, const uint32_t grid[3], const uint32_t block[3],
                                  uint32_t dynamic_nbytes, void **kernel_params, void **extra,
                                  const struct vgx_sim_launch_form *form, struct vgx_sim_op **op) {
  CUfunction f;
  CUresult result = vgx_sim_function_pin(ctx, handle, &f);
  if (result != CUDA_SUCCESS)
    return result;
  result = create_pinned(ctx, f, grid, block, dynamic_nbytes, kernel_params, extra, form, op);
  if (result == CUDA_SUCCESS)
    ((struct vgx_sim_launch_op *)*op)->named = handle;
  vgx_sim_function_unpin(f);
  return result;
}

static CUresult launch(CUfunction handle, const uint32_t grid[3], const uint32_t block[3], uint32_t dynamic_nbytes,
                       CUstream stream_handle, void **kernel_params, void **extra, struct vgx_sim_launch_form *form) {
  CUcontext ctx;
  CUstream stream;
  CUfunction f;
  CUresult result = vgx_sim_enter_stream(stream_handle, &ctx, &stream);
  if (result == CUDA_SUCCESS)
    result = vgx_sim_function_pin(ctx, handle, &f);
  if (result != CUDA_SUCCESS)
    return result;
  struct vgx_sim_op *op;
  form->green = stream->green;
  result = stream->ctx == ctx ? create_pinned(ctx, f, grid, block, dynamic_nbytes, kernel_params, extra, form, &op)
                              : CUDA_ERROR_INVALID_HANDLE;
  if (result == CUDA_SUCCESS) {
    ((struct vgx_sim_launch_op *)op)->named = handle;
    result = vgx_sim_submit(stream, op, VGX_SIM_QUEUE);
  }
  vgx_sim_function_unpin(f);
  return result;
}

CUresult vgx_sim_cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                                unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                                unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra) {
  return launch(f, (uint32_t[]){gridDimX, gridDimY, gridDimZ}, (uint32_t[]){blockDimX, blockDimY, blockDimZ},
                sharedMemBytes, hStream, kernelParams, extra, &(struct vgx_sim_launch_form){0});
}

CUresult vgx_sim_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra) {
  if (!config || config->numAttrs > LAUNCH_ATTRIBUTES_MAX || (config->numAttrs && !config->attrs))
    return CUDA_ERROR_INVALID_VALUE;
  struct vgx_sim_launch_form form = {0};
  CUevent events[LAUNCH_ATTRIBUTES_MAX];
  uint32_t event_count = 0;
  for (uint32_t i = 0; i < config->numAttrs; i++) {
    const CUlaunchAttributeValue *value = &config->attrs[i].value;
    switch (config->attrs[i].id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      form.cooperative = value->cooperative != 0;
      break;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT: /* the driver allows both to come late, at the kernel's end */
      events[event_count++] = value->programmaticEvent.event;
      break;
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      return CUDA_ERROR_NOT_SUPPORTED;
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
      break;
    default:
      if (config->attrs[i].id < 0 || config->attrs[i].id > CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
        return CUDA_ERROR_INVALID_VALUE;
      break; /* the rest are hints, or permissions to begin early */
    }
  }
  vgx_sim_cluster_asked(config, form.cluster);
  CUresult result = launch(f, (uint32_t[]){config->gridDimX, config->gridDimY, config->gridDimZ},
                           (uint32_t[]){config->blockDimX, config->blockDimY, config->blockDimZ},
                           config->sharedMemBytes, config->hStream, kernelParams, extra, &form);
  for (uint32_t i = 0; result == CUDA_SUCCESS && i < event_count; i++)
    result = vgx_sim_cuEventRecordWithFlags(events[i], config->hStream, 0);
  return result;
}
