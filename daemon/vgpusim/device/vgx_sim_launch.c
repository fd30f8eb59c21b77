/* Launches: what the driver refuses at once, then an operation in the stream that runs on the pool.
 *
 * Parameters are copied when the call is made. A fault becomes the context's sticky error and one line in the log.
 * Locking: none of its own; the function's module is pinned while the call lasts, and unloading waits for its launches.
 */
#include "vgx_sim_launch.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vgx_sim_abi.h"
#include "vgx_sim_array.h"
#include "vgx_sim_function.h"
#include "vgx_sim_graph.h"
#include "vgx_sim_heap.h"
#include "vgx_sim_kernel.h"
#include "vgx_sim_memory.h"
#include "vgx_sim_output.h"
#include "vgx_sim_pool.h"
#include "vgx_sim_queue.h"
#include "vgx_sim_runtime.h"
#include "vgx_sim_sample.h"
#include "vgx_sim_watch.h"

#define MESSAGE_NBYTES 1280u
#define AGAIN_MS_MAX 5000u       /* for running a block again to say more about its fault */
#define PARAMS_PADDING 16u       /* readable behind the parameter block, says the ABI */
#define PARAMS_NBYTES_MAX 32764u /* as a card's */
#define LAUNCH_ATTRIBUTES_MAX 64u
#define PORTABLE_CLUSTER_MAX 8u /* CTAs, on every device that has clusters, says the programming guide */
#define CLUSTER_MAX 16u
#define FRAMES_NBYTES_MAX (1ull << 36) /* address space; a CTA touches little of it */

/* A launch as it was asked for; it may run any number of times (graphs), at once too. */
struct launch {
  struct vgx_sim_op op;
  CUcontext ctx;
  CUfunction function;
  struct vgx_sim_job job;        /* without what a run adds */
  bool together;                 /* a thread runs several CTAs at once */
  CUfunction named;              /* by the caller: the function, or a library's kernel */
  size_t param_nbytes;           /* of the caller's block */
  void *extra[5];                /* `params`, as a launch takes them */
  _Alignas(16) uint8_t params[]; /* kernels check the alignment of what they read by an address */
};

void vgx_sim_launch_params(const struct vgx_sim_op *op, CUDA_KERNEL_NODE_PARAMS_v2 *params) {
  const struct launch *l = (const struct launch *)op;
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

/* One run of it. */
struct run {
  struct vgx_sim_services services; /* kernels hand it back: what follows is found through it */
  CUcontext ctx;
  const struct vgx_sim_launch *launch;
  uint32_t assertion_count; /* atomic */
  uint32_t message_taken;   /* atomic: the first failing thread's message is kept */
  char message[MESSAGE_NBYTES];
};

static struct run *of_services(struct vgx_sim_services *services) {
  return (struct run *)((char *)services - offsetof(struct run, services));
}

static int32_t serve_vprintf(struct vgx_sim_services *services, const char *format, const uint8_t *args) {
  return vgx_sim_output_format(of_services(services)->ctx, format, args);
}

static _Noreturn void fail_with(struct run *l, CUresult result, const char *message) {
  uint32_t taken = 0;
  if (__atomic_compare_exchange_n(&l->message_taken, &taken, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    size_t n = 0;
    for (; message && message[n] && n < sizeof l->message - 1; n++)
      l->message[n] = message[n];
    l->message[n] = 0;
  }
  vgx_sim_leave(result, l->message);
}

/* Read a string the kernel named; a bad address is the kernel's fault. */
static void copy_string(char *to, size_t capacity, const char *from) {
  size_t n = 0;
  for (; from && n < capacity - 1 && *(const char *)vgx_sim_reach((uint64_t)from + n); n++)
    to[n] = from[n];
  to[n] = 0;
}

/* "block: [1,0,0], thread: [28,0,0]" */
static void put_place(char *to, size_t capacity, const struct vgx_sim_launch *launch, const uint32_t cta[3],
                      uint32_t thread) {
  const uint32_t *block = launch->block;
  snprintf(to, capacity, "block: [%u,%u,%u], thread: [%u,%u,%u]", cta[0], cta[1], cta[2], thread % block[0],
           thread / block[0] % block[1], thread / block[0] / block[1]);
}

/* ", 16 bytes before an allocation of 4096 bytes" */
static void put_nearest(char *to, size_t capacity, uint64_t address) {
  struct vgx_sim_allocation a;
  struct vgx_sim_device *device = vgx_sim_device_of(address);
  to[0] = 0;
  if (!device || !vgx_sim_arena_nearest(&device->arena, address, &a))
    return;
  if (address < a.address)
    snprintf(to, capacity, ", %llu bytes before an allocation of %llu bytes", (unsigned long long)(a.address - address),
             (unsigned long long)a.nbytes);
  else if (address < a.address + a.nbytes)
    snprintf(to, capacity, ", %llu bytes into an allocation of %llu bytes", (unsigned long long)(address - a.address),
             (unsigned long long)a.nbytes);
  else
    snprintf(to, capacity, ", %llu bytes past the end of an allocation of %llu bytes",
             (unsigned long long)(address - a.address - a.nbytes), (unsigned long long)a.nbytes);
}

static void serve_bad_access(struct vgx_sim_services *services, int32_t result, const char *what, uint64_t address,
                             const uint32_t cta[3], uint32_t thread) {
  char place[128], near[160], text[MESSAGE_NBYTES];
  put_place(place, sizeof place, of_services(services)->launch, cta, thread);
  put_nearest(near, sizeof near, address);
  snprintf(text, sizeof text, "%s at address 0x%llx, %s%s", what, (unsigned long long)address, place, near);
  fail_with(of_services(services), result, text);
}

static void serve_outside(struct vgx_sim_services *services, const char *what, uint64_t address, const uint32_t cta[3],
                          uint32_t thread) {
  serve_bad_access(services, CUDA_ERROR_ILLEGAL_ADDRESS, what, address, cta, thread);
}

/* Each failing thread has a line, as on a device: the other threads of the running CTAs continue for a moment. */
static void serve_assertfail(struct vgx_sim_services *services, const char *message, const char *file, uint32_t line,
                             const char *function, const uint32_t cta[3], uint32_t thread) {
  struct run *l = of_services(services);
  char what[512], where[512], who[512], place[128], text[2048];
  copy_string(what, sizeof what, message);
  copy_string(where, sizeof where, file);
  copy_string(who, sizeof who, function);
  vgx_sim_service_begin();
  put_place(place, sizeof place, l->launch, cta, thread);
  int n = snprintf(text, sizeof text, "%s:%u: %s: %s Assertion `%s` failed.\n", where, line, who, place, what);
  vgx_sim_output_append(l->ctx, text, (uint64_t)n < sizeof text ? (uint64_t)n : sizeof text - 1);
  if (__atomic_fetch_add(&l->assertion_count, 1, __ATOMIC_RELAXED) == 0) {
    snprintf(l->message, sizeof l->message, "%s:%u: assertion `%s` failed in %s", where, line, what, place);
    vgx_sim_pool_end_soon(l->launch->stop, CUDA_ERROR_ASSERT, l->message);
  }
  vgx_sim_service_pause();
}

static void serve_fail(struct vgx_sim_services *services, int32_t result, const char *message) {
  fail_with(of_services(services), result ? result : CUDA_ERROR_LAUNCH_FAILED, message);
}

static void *serve_malloc(struct vgx_sim_services *services, uint64_t nbytes) {
  vgx_sim_service_begin();
  void *block = vgx_sim_heap_allocate(of_services(services)->ctx, nbytes);
  vgx_sim_service_end();
  return block;
}

static void serve_free(struct vgx_sim_services *services, void *pointer) {
  struct run *l = of_services(services);
  vgx_sim_service_begin();
  bool valid = vgx_sim_heap_free(l->ctx, pointer);
  vgx_sim_service_end();
  if (!valid)
    fail_with(l, CUDA_ERROR_LAUNCH_FAILED, "free of a pointer that device malloc did not give");
}

static void serve_texture(struct vgx_sim_services *services, uint64_t form, uint32_t mask, const uint64_t *in,
                          uint64_t *out) {
  const char *wrong = vgx_sim_sample(of_services(services)->ctx, form, mask, in, out);
  if (wrong)
    fail_with(of_services(services), CUDA_ERROR_LAUNCH_FAILED, wrong);
}

/* ", block [0,0,0], threads [0,0,0] to [31,0,0]": the warp that ran. */
static void put_warp(char *to, size_t capacity, const struct launch *l, const struct vgx_sim_fault *fault) {
  const uint32_t *block = l->job.launch.block;
  uint32_t count = block[0] * block[1] * block[2], first = fault->warp * 32, last = first + 31;
  to[0] = 0;
  if (fault->warp == VGX_SIM_NO_WARP || first >= count)
    return;
  last = last < count ? last : count - 1;
  snprintf(to, capacity, "; block [%u,%u,%u], threads [%u,%u,%u] to [%u,%u,%u]", fault->cta[0], fault->cta[1],
           fault->cta[2], first % block[0], first / block[0] % block[1], first / block[0] / block[1], last % block[0],
           last / block[0] % block[1], last / block[0] / block[1]);
}

/* A message of the compiler begins with the kernel's name. */
static const char *without_name(const struct launch *l, const char *message) {
  size_t n = strlen(l->function->name);
  bool named = strncmp(message, l->function->name, n) == 0 && strncmp(message + n, ": ", 2) == 0;
  return named ? message + n + 2 : message;
}

static void report(const struct launch *l, const struct vgx_sim_fault *fault, const struct vgx_sim_finding *found) {
  static const char *const accesses[] = {"access to", "read of", "write to"};
  char near[160], warp[160];
  if (fault->signal == SIGFPE || fault->signal == SIGILL) {
    vgx_sim_reason(fault->result, true, "kernel %s ended with error %d: signal %d", l->function->name, fault->result,
                   fault->signal);
    return;
  }
  if (!fault->signal) {
    vgx_sim_reason(fault->result, true, "kernel %s ended with error %d: %s", l->function->name, fault->result,
                   fault->message ? without_name(l, fault->message) : "");
    return;
  }
  if (found) {
    char place[128];
    put_nearest(near, sizeof near, found->address);
    put_place(place, sizeof place, &l->job.launch, found->cta, found->thread);
    vgx_sim_reason(fault->result, true, "kernel %s ended with error %d: %s at address 0x%llx, %s%s", l->function->name,
                   fault->result, found->text, (unsigned long long)found->address, place, near);
    return;
  }
  put_nearest(near, sizeof near, fault->address);
  put_warp(warp, sizeof warp, l, fault);
  vgx_sim_reason(fault->result, true, "kernel %s ended with error %d: %s address 0x%llx%s%s", l->function->name,
                 fault->result, accesses[fault->access], (unsigned long long)fault->address, near, warp);
}

/* Run a job of the launch. `message` takes over the fault's text. `again`: only to find the access that faulted. */
static CUresult run_job(const struct launch *l, const struct vgx_sim_job *from, uint32_t tools,
                        struct vgx_sim_fault *fault, char message[MESSAGE_NBYTES], struct vgx_sim_finding *again) {
  static uint64_t last_launch;
  struct run run = {.services = {serve_vprintf, serve_assertfail, serve_fail, serve_malloc, serve_free,
                                 serve_bad_access, serve_texture, serve_outside, vgx_sim_serve_access,
                                 vgx_sim_serve_sync, NULL},
                    .ctx = l->ctx};
  struct vgx_sim_job job = *from;
  struct vgx_sim_watch watch;
  run.launch = &job.launch;
  job.launch.services = &run.services;
  job.launch.launch_id = __atomic_add_fetch(&last_launch, 1, __ATOMIC_RELAXED);
  if (tools) {
    vgx_sim_watch_begin(&watch, tools, l->function->name, &job.launch, l->together);
    watch.look = vgx_sim_look;
    watch.log = vgx_sim_log;
    watch.pages = again != NULL;
    run.services.watch = &watch;
  }
  CUresult result = vgx_sim_pool_run(&job, fault);
  if (fault->message && result != CUDA_SUCCESS) { /* it lies in `run` */
    snprintf(message, MESSAGE_NBYTES, "%s", fault->message);
    fault->message = message;
  }
  if (tools) {
    if (again)
      *again = watch.finding;
    vgx_sim_watch_end(&watch);
  }
  return result;
}

/* A fault in reach of kernels is known by its address alone. Run its block again, compiled to be watched, to learn
 * which thread's access by which instruction it was: the context is lost, so what memory holds no longer matters. */
static bool find_access(const struct launch *l, const struct vgx_sim_fault *fault, struct vgx_sim_finding *found) {
  const struct vgx_sim_variant *v;
  struct vgx_sim_fault other;
  char message[MESSAGE_NBYTES];
  const uint32_t *grid = l->job.launch.grid;
  found->found = false;
  if (!fault->signal || fault->warp == VGX_SIM_NO_WARP || l->together || vgx_sim_tools ||
      !vgx_sim_is_reachable(fault->address) ||
      vgx_sim_function_compile(l->function, l->job.launch.block, VGX_SIM_COMPILE_WATCHED, &v) != CUDA_SUCCESS)
    return false;
  struct vgx_sim_job job = l->job;
  job.run = v->compiled.run;
  job.frame_nbytes = v->compiled.frame_nbytes;
  job.local_nbytes = v->compiled.local_nbytes;
  job.launch.symbols = v->symbols;
  job.alone = true;
  job.limit_ms = AGAIN_MS_MAX;
  job.first_cta = fault->cta[0] + (uint64_t)grid[0] * (fault->cta[1] + (uint64_t)grid[1] * fault->cta[2]);
  job.launch.cta_count = job.first_cta + 1;
  return run_job(l, &job, VGX_SIM_MEMCHECK, &other, message, found) != CUDA_SUCCESS && found->found;
}

static CUresult run_launch(struct vgx_sim_op *op) {
  const struct launch *l = (const struct launch *)op;
  struct vgx_sim_fault fault;
  struct vgx_sim_finding found;
  char message[MESSAGE_NBYTES];
  CUresult result = run_job(l, &l->job, vgx_sim_tools, &fault, message, NULL);
  if (result != CUDA_SUCCESS)
    report(l, &fault, find_access(l, &fault, &found) ? &found : NULL);
  return result;
}

static void drop_launch(struct vgx_sim_op *op) { free(op); }

/* The shape and its shared memory against the device and the kernel. */
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

/* All CTAs of a cooperative launch must fit the device at once. */
static CUresult check_cooperative(CUcontext ctx, CUfunction f, const uint32_t grid[3], const uint32_t block[3],
                                  uint32_t dynamic_nbytes) {
  int blocks;
  CUresult result = vgx_sim_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
      &blocks, f, (int)(block[0] * block[1] * block[2]), dynamic_nbytes, 0);
  if (result != CUDA_SUCCESS)
    return result;
  uint64_t fit = (uint64_t)blocks * (uint64_t)vgx_sim_attribute(ctx->device, VGX_SIM_SM_COUNT, 1);
  return (uint64_t)grid[0] * grid[1] * grid[2] > fit ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_SUCCESS;
}

bool vgx_sim_launch_pin_locked(const struct vgx_sim_op *op, int change) {
  if (op->kind != VGX_SIM_OP_KERNEL)
    return true;
  CUfunction f = ((const struct launch *)op)->function;
  if (change > 0 && f->magic != VGX_SIM_FUNCTION)
    return false;
  f->module->pins += (uint32_t)change;
  if (f->module->pins == 0)
    vgx_sim_notify_locked();
  return true;
}

void vgx_sim_cluster_asked(const CUlaunchConfig *config, uint32_t asked[3]) {
  memset(asked, 0, 3 * sizeof asked[0]);
  for (uint32_t i = 0; i < config->numAttrs; i++)
    if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      const CUlaunchAttributeValue *value = &config->attrs[i].value;
      asked[0] = value->clusterDim.x;
      asked[1] = value->clusterDim.y;
      asked[2] = value->clusterDim.z;
    }
}

uint32_t vgx_sim_cluster_largest(CUfunction f) {
  vgx_sim_lock();
  bool beyond = f->attributes[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED] != 0;
  vgx_sim_unlock();
  return beyond ? CLUSTER_MAX : PORTABLE_CLUSTER_MAX;
}

CUresult vgx_sim_cluster_of(const struct vgx_sim_device *device, CUfunction f, const uint32_t asked[3],
                            const uint32_t grid[3], uint32_t cluster[3]) {
  bool asks = asked && (asked[0] || asked[1] || asked[2]);
  vgx_sim_lock();
  for (int i = 0; i < 3; i++) {
    uint32_t set = (uint32_t)f->attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i];
    cluster[i] = asks ? asked[i] : set ? set : 1;
  }
  vgx_sim_unlock();
  if (cluster[0] == 1 && cluster[1] == 1 && cluster[2] == 1 && !f->info.cluster[0])
    return CUDA_SUCCESS;
  if (!vgx_sim_attribute(device, VGX_SIM_CLUSTER_LAUNCH, 0))
    return CUDA_ERROR_NOT_SUPPORTED;
  uint64_t size = 1;
  for (int i = 0; i < 3; i++) {
    if (cluster[i] == 0 || cluster[i] > CLUSTER_MAX || grid[i] % cluster[i] ||
        (f->info.cluster[0] && cluster[i] != f->info.cluster[i]))
      return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    size *= cluster[i];
  }
  return size > vgx_sim_cluster_largest(f) ? CUDA_ERROR_INVALID_CLUSTER_SIZE : CUDA_SUCCESS;
}

/* The memory of each thread. */
static CUresult lay_out(struct launch *l, bool resident, uint32_t cluster_size) {
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

static CUresult create_pinned(CUcontext ctx, CUfunction f, const uint32_t grid[3], const uint32_t block[3],
                              uint32_t dynamic_nbytes, void **kernel_params, void **extra, bool cooperative,
                              const uint32_t asked[3], struct vgx_sim_op **op) {
  uint32_t cluster[3];
  CUresult result = check_shape(ctx, f, grid, block, dynamic_nbytes);
  if (result == CUDA_SUCCESS)
    result = vgx_sim_cluster_of(ctx->device, f, asked, grid, cluster);
  if (result == CUDA_SUCCESS && cooperative && vgx_sim_cluster_size(cluster) > 1)
    result = CUDA_ERROR_NOT_SUPPORTED;
  if (result == CUDA_SUCCESS && cooperative)
    result = check_cooperative(ctx, f, grid, block, dynamic_nbytes);
  if (result != CUDA_SUCCESS)
    return result;
  uint64_t nbytes = required_nbytes(f);
  nbytes = f->info.param_nbytes > nbytes ? f->info.param_nbytes : nbytes;
  if (nbytes > PARAMS_NBYTES_MAX) {
    vgx_sim_reason(CUDA_ERROR_INVALID_VALUE, false, "kernel %s: %llu bytes of parameters; %u is the limit", f->name,
                   (unsigned long long)nbytes, PARAMS_NBYTES_MAX);
    return CUDA_ERROR_INVALID_VALUE;
  }
  struct launch *l = calloc(1, sizeof *l + nbytes + PARAMS_PADDING);
  if (!l)
    return CUDA_ERROR_OUT_OF_MEMORY;
  const struct vgx_sim_variant *v;
  result = copy_params(f, kernel_params, extra, l->params, nbytes);
  if (result == CUDA_SUCCESS)
    result =
        vgx_sim_function_compile(f, block,
                                 (cooperative ? VGX_SIM_COMPILE_COOPERATIVE : 0) |
                                     (vgx_sim_tools ? VGX_SIM_COMPILE_WATCHED : 0) | vgx_sim_cluster_flags(cluster),
                                 &v);
  if (result == CUDA_SUCCESS && cooperative && !v->compiled.cooperative)
    result = CUDA_ERROR_NOT_SUPPORTED;
  if (result != CUDA_SUCCESS) {
    free(l);
    return result;
  }
  l->op = (struct vgx_sim_op){.run = run_launch, .drop = drop_launch, .kind = VGX_SIM_OP_KERNEL};
  l->ctx = ctx;
  l->function = l->named = f;
  l->param_nbytes = f->info.param_nbytes;
  l->extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
  l->extra[1] = l->params;
  l->extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
  l->extra[3] = &l->param_nbytes;
  l->extra[4] = CU_LAUNCH_PARAM_END;
  l->job = (struct vgx_sim_job){.run = v->compiled.run,
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
  l->together = resident || vgx_sim_cluster_size(cluster) > 1;
  l->job.alone = vgx_sim_tools != 0;
  result = lay_out(l, resident, vgx_sim_cluster_size(cluster));
  if (result != CUDA_SUCCESS) {
    free(l);
    return result;
  }
  *op = &l->op;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_launch_create(CUcontext ctx, CUfunction handle, const uint32_t grid[3], const uint32_t block[3],
                               uint32_t dynamic_nbytes, void **kernel_params, void **extra, struct vgx_sim_op **op) {
  CUfunction f;
  CUresult result = vgx_sim_function_pin(ctx, handle, &f);
  if (result != CUDA_SUCCESS)
    return result;
  result = create_pinned(ctx, f, grid, block, dynamic_nbytes, kernel_params, extra, false, NULL, op);
  if (result == CUDA_SUCCESS)
    ((struct launch *)*op)->named = handle;
  vgx_sim_function_unpin(f);
  return result;
}

static CUresult launch(CUfunction handle, const uint32_t grid[3], const uint32_t block[3], uint32_t dynamic_nbytes,
                       CUstream stream_handle, void **kernel_params, void **extra, bool cooperative,
                       const uint32_t cluster[3]) {
  CUcontext ctx;
  CUstream stream;
  CUfunction f;
  CUresult result = vgx_sim_enter(&ctx);
  if (result == CUDA_SUCCESS)
    result = vgx_sim_stream_of(ctx, stream_handle, &stream);
  if (result == CUDA_SUCCESS)
    result = vgx_sim_function_pin(ctx, handle, &f);
  if (result != CUDA_SUCCESS)
    return result;
  struct vgx_sim_op *op;
  result = stream->ctx == ctx
               ? create_pinned(ctx, f, grid, block, dynamic_nbytes, kernel_params, extra, cooperative, cluster, &op)
               : CUDA_ERROR_INVALID_HANDLE;
  if (result == CUDA_SUCCESS) {
    ((struct launch *)op)->named = handle;
    result = vgx_sim_submit(stream, op, VGX_SIM_QUEUE);
  }
  vgx_sim_function_unpin(f);
  return result;
}

CUresult vgx_sim_cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                                unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                                unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra) {
  return launch(f, (uint32_t[]){gridDimX, gridDimY, gridDimZ}, (uint32_t[]){blockDimX, blockDimY, blockDimZ},
                sharedMemBytes, hStream, kernelParams, extra, false, NULL);
}

CUresult vgx_sim_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra) {
  if (!config || config->numAttrs > LAUNCH_ATTRIBUTES_MAX || (config->numAttrs && !config->attrs))
    return CUDA_ERROR_INVALID_VALUE;
  bool cooperative = false;
  CUevent events[LAUNCH_ATTRIBUTES_MAX];
  uint32_t event_count = 0;
  for (uint32_t i = 0; i < config->numAttrs; i++) {
    const CUlaunchAttributeValue *value = &config->attrs[i].value;
    switch (config->attrs[i].id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      cooperative = value->cooperative != 0;
      break;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT: /* both may be late, says the driver: at the kernel's end */
      events[event_count++] = value->programmaticEvent.event;
      break;
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      if (config->attrs[i].id < 0 || config->attrs[i].id > CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
        return CUDA_ERROR_INVALID_VALUE;
      break; /* the rest are hints, or permissions to begin early */
    }
  }
  uint32_t cluster[3];
  vgx_sim_cluster_asked(config, cluster);
  CUresult result = launch(f, (uint32_t[]){config->gridDimX, config->gridDimY, config->gridDimZ},
                           (uint32_t[]){config->blockDimX, config->blockDimY, config->blockDimZ},
                           config->sharedMemBytes, config->hStream, kernelParams, extra, cooperative, cluster);
  for (uint32_t i = 0; result == CUDA_SUCCESS && i < event_count; i++)
    result = vgx_sim_cuEventRecordWithFlags(events[i], config->hStream, 0);
  return result;
}
