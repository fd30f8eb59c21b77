/* One run of a launch on the pool: the services that its kernels call, and the report of a fault.
 *
 * Locking: none of its own; unloading a module waits for its launches. */
#include "vgx_sim_run.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "vgx_sim_abi.h"
#include "vgx_sim_activity.h"
#include "vgx_sim_child.h"
#include "vgx_sim_count.h"
#include "vgx_sim_function.h"
#include "vgx_sim_green.h"
#include "vgx_sim_heap.h"
#include "vgx_sim_memory.h"
#include "vgx_sim_output.h"
#include "vgx_sim_queue.h"
#include "vgx_sim_runtime.h"
#include "vgx_sim_sample.h"
#include "vgx_sim_schedule.h"
#include "vgx_sim_scratch.h"
#include "vgx_sim_tensor.h"
#include "vgx_sim_watch.h"
#include "vgx_sim_watch_turn.h"

#define MESSAGE_NBYTES 1280u
#define NULL_NBYTES (1u << 16) /* an address below it is a null pointer with an index */
#define AGAIN_MS_MAX 5000u     /* for running a block again to say more about its fault */
#define ABSENT_MAX (VGX_SIM_FOLLOWED_MAX + 1)
#define NO_FUNCTION "call through a pointer that is not a function of this form"
#define GATHER_MS_MAX 5000u /* for a launch to find all functions that it lacks */

/* One run of a launch. */
struct run {
  struct vgx_sim_services services; /* kernels pass it to services, which find the rest of this struct through it */
  CUcontext ctx;
  const struct vgx_sim_launch_op *op;
  struct vgx_sim_family *family;
  const struct vgx_sim_launch *launch;
  uint32_t assertion_count;        /* atomic */
  uint32_t message_taken;          /* atomic: the first failing thread's message is kept */
  uint64_t absent[ABSENT_MAX + 1]; /* atomic: pointers of calls whose functions the kernel lacks, then 0 */
  char message[MESSAGE_NBYTES];
};

static struct run *of_services(struct vgx_sim_services *services) {
  return (struct run *)((char *)services - offsetof(struct run, services));
}

/* What is not memory, but seen by others, has an order, too. */
static void wait_for_turn(struct vgx_sim_services *services) {
  if (!services->watch)
    return;
  vgx_sim_service_begin();
  vgx_sim_watch_take_turn(services->watch, vgx_sim_schedule_running());
  vgx_sim_service_end();
}

static int32_t serve_vprintf(struct vgx_sim_services *services, const char *format, const uint8_t *args) {
  wait_for_turn(services);
  return vgx_sim_output_format(of_services(services)->ctx, format, args);
}

static _Noreturn void fail_with(struct run *l, CUresult result, const char *message) {
  uint32_t taken = 0;
  wait_for_turn(&l->services);
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

/* ", 16 bytes before an allocation of 4096 bytes"; for a low address, which no allocation has: ", 8 bytes behind a null
 * pointer". */
static void put_nearest(char *to, size_t capacity, uint64_t address) {
  struct vgx_sim_allocation a;
  struct vgx_sim_device *device = vgx_sim_device_of(address);
  to[0] = 0;
  if (address < NULL_NBYTES)
    snprintf(to, capacity, ", %llu bytes behind a null pointer", (unsigned long long)address);
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
  wait_for_turn(services);
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

static void serve_fail(struct vgx_sim_services *services, int32_t result, const char *message, const uint32_t cta[3],
                       uint32_t thread) {
  char place[128], text[MESSAGE_NBYTES];
  if (cta) {
    put_place(place, sizeof place, of_services(services)->launch, cta, thread);
    snprintf(text, sizeof text, "%s, %s", message, place);
  }
  fail_with(of_services(services), result ? result : CUDA_ERROR_LAUNCH_FAILED, cta ? text : message);
}

/* The first state other than VGX_SIM_UNCHANGED stays: whether a launch can begin again is decided once. */
static enum vgx_sim_changed decide(struct vgx_sim_services *services, enum vgx_sim_changed wanted) {
  uint32_t state = VGX_SIM_UNCHANGED;
  return __atomic_compare_exchange_n(&services->changed, &state, wanted, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)
             ? wanted
             : state;
}

static int32_t serve_change(struct vgx_sim_services *services, int32_t may_skip) {
  if (decide(services, VGX_SIM_CHANGED) == VGX_SIM_CHANGED)
    return 1;
  if (!may_skip)
    fail_with(of_services(services), CUDA_ERROR_NOT_SUPPORTED, "to begin again");
  return 0;
}

/* Where more functions are absent than a launch may have, begin_again says so. */
static void serve_absent(struct vgx_sim_services *services, uint64_t pointer, const char *message,
                         const uint32_t cta[3], uint32_t thread) {
  struct run *run = of_services(services);
  if (!pointer)
    serve_fail(services, CUDA_ERROR_LAUNCH_FAILED, NO_FUNCTION, cta, thread);
  if (decide(services, VGX_SIM_TO_BEGIN_AGAIN) == VGX_SIM_CHANGED) {
    char text[MESSAGE_NBYTES];
    snprintf(text, sizeof text, "%s after it has changed memory", message);
    serve_fail(services, CUDA_ERROR_NOT_SUPPORTED, text, cta, thread);
  }
  for (uint32_t i = 0; i < ABSENT_MAX; i++) {
    uint64_t known = 0;
    if (__atomic_compare_exchange_n(&run->absent[i], &known, pointer, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      if (i == 0) {
        vgx_sim_service_begin();
        vgx_sim_pool_limit(run->launch->stop, GATHER_MS_MAX);
        vgx_sim_service_end();
      }
      break;
    }
    if (known == pointer)
      break;
  }
  if (services->watch) /* the tools would report what a call that does nothing leaves undone */
    fail_with(run, CUDA_ERROR_NOT_SUPPORTED, "to begin again");
}

static void *serve_malloc(struct vgx_sim_services *services, uint64_t nbytes) {
  wait_for_turn(services);
  vgx_sim_service_begin();
  void *block = vgx_sim_heap_allocate(of_services(services)->ctx, nbytes);
  vgx_sim_service_end();
  return block;
}

static void serve_free(struct vgx_sim_services *services, void *pointer) {
  struct run *l = of_services(services);
  wait_for_turn(services);
  vgx_sim_service_begin();
  bool valid = vgx_sim_heap_free(l->ctx, pointer);
  vgx_sim_service_end();
  if (!valid)
    fail_with(l, CUDA_ERROR_LAUNCH_FAILED, "free of a pointer that device malloc did not give");
}

static uint8_t *serve_another(struct vgx_sim_services *services, struct vgx_sim_thread *thread, uint64_t place) {
  (void)services;
  vgx_sim_service_begin();
  sched_yield();
  uint8_t *frames = place ? vgx_sim_scratch_another(thread, place) : NULL;
  vgx_sim_service_end();
  return frames;
}

static uint64_t serve_device_runtime(struct vgx_sim_services *services, uint32_t question, uint64_t a, uint64_t b,
                                     uint64_t c, uint64_t d, uint64_t e) {
  const struct run *run = of_services(services);
  wait_for_turn(services);
  vgx_sim_service_begin();
  uint64_t answer = vgx_sim_child_ask(run->family, run->op, question, (uint64_t[]){a, b, c, d, e});
  vgx_sim_service_end();
  return answer;
}

static void serve_texture(struct vgx_sim_services *services, uint64_t form, uint32_t mask, const uint64_t *in,
                          uint64_t *out) {
  const char *wrong = vgx_sim_sample(of_services(services)->ctx, form, mask, in, out);
  CUresult result = wrong == vgx_sim_misaligned_surface ? CUDA_ERROR_MISALIGNED_ADDRESS
                    : vgx_sim_tensor_is_illegal(wrong)  ? CUDA_ERROR_ILLEGAL_INSTRUCTION
                                                        : CUDA_ERROR_LAUNCH_FAILED;
  if (wrong)
    fail_with(of_services(services), result, wrong);
}

/* "; block [0,0,0], threads [0,0,0] to [31,0,0]": the warp that ran. */
static void put_warp(char *to, size_t capacity, const struct vgx_sim_launch_op *l, const struct vgx_sim_fault *fault) {
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
static const char *without_name(const struct vgx_sim_launch_op *l, const char *message) {
  size_t n = strlen(l->function->name);
  bool named = strncmp(message, l->function->name, n) == 0 && strncmp(message + n, ": ", 2) == 0;
  return named ? message + n + 2 : message;
}

static void report(const struct vgx_sim_launch_op *l, const struct vgx_sim_fault *fault,
                   const struct vgx_sim_finding *found) {
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

/* A kernel that a kernel launches runs on this thread, and is of the same family. */
static _Thread_local struct vgx_sim_family *family;

/* Run a job of the launch. `message` takes over the fault's text. `again`: only to find the access that faulted.
 * absent: the functions that the kernel needs and lacks, then 0, if the launch is to begin again with them: it has
 * changed nothing that others see. */
static CUresult run_job(const struct vgx_sim_launch_op *l, const struct vgx_sim_job *from, uint32_t tools,
                        struct vgx_sim_fault *fault, char message[MESSAGE_NBYTES], struct vgx_sim_finding *again,
                        uint64_t absent[ABSENT_MAX + 1]) {
  static uint64_t last_launch;
  struct run run = {.services = {serve_vprintf,
                                 serve_assertfail,
                                 serve_fail,
                                 serve_malloc,
                                 serve_free,
                                 serve_bad_access,
                                 serve_texture,
                                 serve_outside,
                                 vgx_sim_serve_access,
                                 vgx_sim_serve_sync,
                                 serve_another,
                                 serve_device_runtime,
                                 vgx_sim_serve_row,
                                 vgx_sim_serve_group,
                                 NULL,
                                 serve_absent,
                                 VGX_SIM_SLOTS_BEGIN,
                                 VGX_SIM_UNCHANGED,
                                 0,
                                 serve_change,
                                 vgx_sim_serve_unset,
                                 {0},
                                 {0},
                                 0,
                                 vgx_sim_serve_pair,
                                 vgx_sim_serve_end_cta},
                    .ctx = l->ctx,
                    .op = l,
                    .family = family};
  struct vgx_sim_job job = *from;
  job.green = vgx_sim_running_green();
  job.threads_max = job.green ? job.green->count : 0;
  struct vgx_sim_watch watch;
  struct vgx_sim_counted counted;
  run.launch = &job.launch;
  job.launch.services = &run.services;
  job.launch.launch_id = __atomic_add_fetch(&last_launch, 1, __ATOMIC_RELAXED);
  if (!again)
    vgx_sim_count_begin(&counted, &job, l->function->name);
  if (tools) {
    vgx_sim_watch_begin(&watch, tools, l->function->name, &job.launch, l->together);
    watch.launched_by = vgx_sim_host_stack();
    watch.services = &run.services;
    watch.look = vgx_sim_look;
    watch.log = vgx_sim_log;
    watch.pages = again != NULL;
    watch.in_order = job.in_order;
    watch.turn = job.first_cta;
    run.services.watch = &watch;
    run.services.watches_all = tools & VGX_SIM_RACECHECK;
  }
  CUresult result = vgx_sim_pool_run(&job, fault);
  memset(absent, 0, sizeof run.absent);
  if (run.services.changed == VGX_SIM_TO_BEGIN_AGAIN && run.absent[0]) { /* whatever it came to without the functions */
    result = CUDA_ERROR_NOT_SUPPORTED;
    memcpy(absent, run.absent, sizeof run.absent);
  }
  if (!again)
    vgx_sim_count_end(&counted, l->ctx->device->index, &job.launch, result);
  if (fault->message && result != CUDA_SUCCESS) { /* the message lies in `run` */
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

/* Only the address of a fault inside the reachable range is known. Run the block again, compiled to be watched, to find
 * the thread and the instruction: the context is lost, so changes to memory no longer matter. */
static bool find_access(const struct vgx_sim_launch_op *l, const struct vgx_sim_fault *fault,
                        struct vgx_sim_finding *found) {
  const struct vgx_sim_variant *v;
  struct vgx_sim_fault other;
  char message[MESSAGE_NBYTES];
  const uint32_t *grid = l->job.launch.grid;
  found->found = false;
  if (!fault->signal || fault->warp == VGX_SIM_NO_WARP || l->together || vgx_sim_tools ||
      !vgx_sim_is_reachable(fault->address) ||
      vgx_sim_function_compile(l->function, l->job.launch.block, VGX_SIM_COMPILE_WATCHED, &l->form.followed, &v) !=
          CUDA_SUCCESS)
    return false;
  struct vgx_sim_job job = l->job;
  job.code = v->compiled.code;
  job.frame_nbytes = v->compiled.frame_nbytes;
  job.local_nbytes = v->compiled.local_nbytes;
  job.launch.symbols = v->symbols;
  job.alone = true;
  job.limit_ms = AGAIN_MS_MAX;
  job.first_cta = fault->cta[0] + (uint64_t)grid[0] * (fault->cta[1] + (uint64_t)grid[1] * fault->cta[2]);
  job.launch.cta_count = job.first_cta + 1;
  job.launch.places = 1;
  uint64_t absent[ABSENT_MAX + 1];
  return run_job(l, &job, VGX_SIM_MEMCHECK, &other, message, found, absent) != CUDA_SUCCESS && found->found;
}

/* Begin a launch again with functions that its kernel lacks: codegen/emit_absent.py. */
static CUresult begin_again(const struct vgx_sim_launch_op *l, const uint64_t *absent) {
  const struct vgx_sim_launch *launch = &l->job.launch;
  struct vgx_sim_launch_form form = l->form;
  struct vgx_sim_op *op;
  for (; *absent; absent++) {
    for (uint64_t i = 0; i < l->form.followed.count; i++)
      if (form.followed.pointers[i] == *absent) {
        vgx_sim_reason(CUDA_ERROR_LAUNCH_FAILED, true, "kernel %s ended with error %d: " NO_FUNCTION, l->function->name,
                       CUDA_ERROR_LAUNCH_FAILED);
        return CUDA_ERROR_LAUNCH_FAILED;
      }
    if (form.followed.count == VGX_SIM_FOLLOWED_MAX) {
      vgx_sim_reason(CUDA_ERROR_NOT_SUPPORTED, true,
                     "kernel %s ended with error %d: a launch calls more than %u functions through pointers",
                     l->function->name, CUDA_ERROR_NOT_SUPPORTED, VGX_SIM_FOLLOWED_MAX);
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    form.followed.pointers[form.followed.count++] = *absent;
  }
  CUcontext before = vgx_sim_current_name();
  vgx_sim_set_current(l->ctx); /* the function of a library's kernel is that in the current context */
  CUresult result = l->create(l->ctx, l->named, launch->grid, launch->block, launch->shared_dynamic_nbytes, NULL,
                              (void **)l->extra, &form, &op);
  vgx_sim_set_current(before);
  if (result != CUDA_SUCCESS)
    return result;
  result = op->run(op); /* of the same family; it may begin again in turn */
  op->destroy(op);
  return result;
}

static CUresult run_alone(const struct vgx_sim_launch_op *l) {
  struct vgx_sim_fault fault;
  struct vgx_sim_finding found;
  char message[MESSAGE_NBYTES];
  uint64_t absent[ABSENT_MAX + 1];
  CUresult result = run_job(l, &l->job, vgx_sim_tools, &fault, message, NULL, absent);
  if (absent[0])
    return begin_again(l, absent);
  if (result != CUDA_SUCCESS)
    report(l, &fault, find_access(l, &fault, &found) ? &found : NULL);
  return result;
}

CUresult vgx_sim_run_launch(struct vgx_sim_op *op) {
  const struct vgx_sim_launch_op *l = (const struct vgx_sim_launch_op *)op;
  if (family)
    return run_alone(l);
  struct vgx_sim_family own = {.lock = PTHREAD_MUTEX_INITIALIZER};
  family = &own;
  CUresult result = run_alone(l);
  if (result == CUDA_SUCCESS)
    result = vgx_sim_child_run(&own);
  family = NULL;
  vgx_sim_child_fini(&own);
  return result;
}
