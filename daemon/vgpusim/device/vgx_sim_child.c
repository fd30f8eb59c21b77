/* Launches from kernels (ptx/device_runtime.py asks for them).
 *
 * A card may run a child at any time after its launch, and a parent cannot wait for it: so the requests of a launch and
 * its descendants are run after the launch, one after another in the order of the calls, and those for the tail stream
 * after all others. Streams and events on the device allow that order.
 *
 * Locking: a family's lock, a leaf, is held while kernels make requests; one thread runs them when no kernel runs. */
#include "vgx_sim_child.h"

#include <stdlib.h>
#include <string.h>

#include "vgx_sim_fault.h"
#include "vgx_sim_heap.h"
#include "vgx_sim_memory.h"
#include "vgx_sim_runtime.h"

enum question { BUFFER, LAUNCH, ATTRIBUTE, DEVICE, OBJECT, COPY, FILL, ERROR };

#define CHILDREN_MAX (1u << 20) /* waiting requests of a launch */
#define FUNCTION_NBYTES 16u     /* ptx/module.py */
#define TAIL_STREAM 3u          /* cudaStreamTailLaunch */
#define PENDING_EXCEEDED 69u    /* cudaErrorLaunchPendingCountExceeded */
#define FIRST_OBJECT 0x100u

struct vgx_sim_child {
  struct vgx_sim_child *next;
  vgx_sim_launch_create_fn *create; /* NULL: a copy or a fill */
  CUcontext ctx;
  CUfunction function;
  uint32_t grid[3], block[3], shared_nbytes;
  void *params;              /* on the device's heap */
  uint64_t to, from, nbytes; /* of a copy; of a fill, `from` is the byte's value */
  bool fills;
};

/* The kernel at a function's address in the parent's image; NULL: none. */
static CUfunction function_at(CUmodule module, uint64_t address) {
  char name[VGX_SIM_NAME_NBYTES];
  CUfunction function;
  for (uint32_t i = 0; i < module->variable_count; i++) {
    uint64_t number = (address - module->addresses[i]) / FUNCTION_NBYTES;
    if (strcmp(module->variable_names[i], " functions") != 0)
      continue;
    if (address < module->addresses[i] || number >= module->kernel_count ||
        vgx_sim_hooks->kernel_name(module->image, (uint32_t)number, name) != CUDA_SUCCESS ||
        vgx_sim_module_function(module, name, &function) != CUDA_SUCCESS)
      return NULL;
    return function;
  }
  return NULL;
}

static void push(struct vgx_sim_child **first, struct vgx_sim_child **last, struct vgx_sim_child *child) {
  child->next = NULL;
  if (*first)
    (*last)->next = child;
  else
    *first = child;
  *last = child;
}

static struct vgx_sim_child *pop(struct vgx_sim_child **first) {
  struct vgx_sim_child *child = *first;
  if (child)
    *first = child->next;
  return child;
}

static void destroy(struct vgx_sim_child *child) {
  if (child->params)
    vgx_sim_heap_free(child->ctx, child->params);
  free(child);
}

/* Allocate a buffer for the parameters of a launch. 0: no memory, or no such kernel. */
static uint64_t prepare(struct vgx_sim_family *family, const struct vgx_sim_launch_op *l, const uint64_t *v) {
  CUfunction function = function_at(l->function->module, v[0]);
  struct vgx_sim_child *child = function ? calloc(1, sizeof *child) : NULL;
  if (!child)
    return 0;
  *child = (struct vgx_sim_child){.create = l->create,
                                  .ctx = l->ctx,
                                  .function = function,
                                  .grid = {(uint32_t)v[1], (uint32_t)(v[1] >> 32), (uint32_t)v[2]},
                                  .block = {(uint32_t)(v[2] >> 32), (uint32_t)v[3], (uint32_t)(v[3] >> 32)},
                                  .shared_nbytes = (uint32_t)v[4]};
  uint64_t nbytes = function->info.param_nbytes;
  child->params = vgx_sim_heap_allocate(l->ctx, nbytes ? nbytes : 1);
  if (!child->params) {
    free(child);
    return 0;
  }
  pthread_mutex_lock(&family->lock);
  bool fits = family->prepared_count < CHILDREN_MAX;
  if (fits) {
    family->prepared_count++;
    child->next = family->prepared;
    family->prepared = child;
  }
  pthread_mutex_unlock(&family->lock);
  if (fits)
    return (uint64_t)child->params;
  destroy(child);
  return 0;
}

static uint32_t enqueue_locked(struct vgx_sim_family *family, struct vgx_sim_child *child, bool at_end) {
  if (family->count >= CHILDREN_MAX)
    return PENDING_EXCEEDED;
  family->count++;
  if (at_end)
    push(&family->tail_first, &family->tail_last, child);
  else
    push(&family->first, &family->last, child);
  return CUDA_SUCCESS;
}

/* Queue the launch whose parameter buffer the kernel has filled. */
static uint32_t launch_locked(struct vgx_sim_family *family, uint64_t buffer, uint64_t stream) {
  struct vgx_sim_child **link = &family->prepared;
  while (*link && (uint64_t)(*link)->params != buffer)
    link = &(*link)->next;
  struct vgx_sim_child *child = *link;
  if (!buffer || !child)
    return CUDA_ERROR_INVALID_VALUE;
  *link = child->next;
  family->prepared_count--;
  uint32_t result = enqueue_locked(family, child, stream == TAIL_STREAM);
  if (result)
    destroy(child);
  return result;
}

static uint32_t move_locked(struct vgx_sim_family *family, const struct vgx_sim_launch_op *l, const uint64_t *v,
                            bool fills) {
  struct vgx_sim_child *child = calloc(1, sizeof *child);
  if (!child)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *child = (struct vgx_sim_child){.ctx = l->ctx, .to = v[0], .from = v[1], .nbytes = v[2], .fills = fills};
  uint32_t result = enqueue_locked(family, child, false);
  if (result)
    free(child);
  return result;
}

static uint64_t with_error(uint32_t error, uint32_t value) { return (uint64_t)error << 32 | value; }

static uint64_t attribute_of(const struct vgx_sim_launch_op *l, uint64_t attribute, uint64_t device) {
  const struct vgx_sim_device *d = device < INT32_MAX ? vgx_sim_device_at((CUdevice)device) : NULL;
  (void)l;
  if (!d || attribute >= VGX_SIM_ATTRIBUTES_MAX || d->properties.attributes[attribute] == INT32_MIN)
    return with_error(CUDA_ERROR_INVALID_VALUE, 0);
  return with_error(CUDA_SUCCESS, (uint32_t)d->properties.attributes[attribute]);
}

uint64_t vgx_sim_child_ask(struct vgx_sim_family *family, const struct vgx_sim_launch_op *l, uint32_t question,
                           const uint64_t *values) {
  uint32_t error = CUDA_SUCCESS;
  uint64_t answer = 0;
  if (question == BUFFER)
    return prepare(family, l, values);
  pthread_mutex_lock(&family->lock);
  switch (question) {
  case LAUNCH:
    error = launch_locked(family, values[0], values[1]);
    break;
  case COPY:
  case FILL:
    error = move_locked(family, l, values, question == FILL);
    break;
  case OBJECT:
    answer = FIRST_OBJECT + family->objects++;
    break;
  case DEVICE:
    answer = l->ctx->device->index;
    break;
  case ATTRIBUTE:
    answer = attribute_of(l, values[0], values[1]);
    break;
  case ERROR:
    answer = with_error(family->error, 0);
    family->error = values[0] ? CUDA_SUCCESS : family->error;
    break;
  default:
    error = CUDA_ERROR_NOT_SUPPORTED;
  }
  if (error) {
    family->error = error;
    answer = with_error(error, 0);
  }
  pthread_mutex_unlock(&family->lock);
  return answer;
}

static void move(void *argument) {
  const struct vgx_sim_child *child = argument;
  if (child->fills)
    memset((void *)child->to, (int)child->from, child->nbytes);
  else
    memmove((void *)child->to, (const void *)child->from, child->nbytes);
}

static bool is_memory(uint64_t address, uint64_t nbytes) {
  return vgx_sim_is_device_range(address, nbytes) || vgx_sim_is_registered(address, nbytes);
}

static CUresult run_one(const struct vgx_sim_child *child) {
  struct vgx_sim_fault fault;
  struct vgx_sim_op *op;
  if (!child->create) {
    if (!child->nbytes)
      return CUDA_SUCCESS;
    if (!is_memory(child->to, child->nbytes) || (!child->fills && !is_memory(child->from, child->nbytes)))
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    return vgx_sim_guarded(NULL, move, (void *)child, &fault);
  }
  size_t nbytes = child->function->info.param_nbytes;
  void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, child->params, CU_LAUNCH_PARAM_BUFFER_SIZE, &nbytes,
                   CU_LAUNCH_PARAM_END};
  CUresult result = child->create(child->ctx, child->function, child->grid, child->block, child->shared_nbytes, NULL,
                                  extra, &(struct vgx_sim_launch_form){0}, &op);
  if (result != CUDA_SUCCESS) {
    vgx_sim_reason(result, true, "kernel %s, launched by a kernel, ended with error %d: it cannot be launched so",
                   child->function->name, result);
    return result;
  }
  result = op->run(op);
  op->destroy(op);
  return result;
}

CUresult vgx_sim_child_run(struct vgx_sim_family *family) {
  CUresult result = CUDA_SUCCESS;
  while (result == CUDA_SUCCESS) {
    struct vgx_sim_child *child = pop(&family->first);
    if (!child)
      child = pop(&family->tail_first);
    if (!child)
      break;
    family->count--;
    result = run_one(child);
    destroy(child);
  }
  return result;
}

void vgx_sim_child_fini(struct vgx_sim_family *family) {
  struct vgx_sim_child *child;
  while ((child = pop(&family->prepared)) || (child = pop(&family->first)) || (child = pop(&family->tail_first)))
    destroy(child);
  pthread_mutex_destroy(&family->lock);
}
