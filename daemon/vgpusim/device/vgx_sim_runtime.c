/* The state that all parts of the simulator use. Contexts are created and destroyed in vgx_sim_context.c. */
#include "vgx_sim_runtime.h"

#include <stdarg.h>
#include <stdio.h>

#include "vgx_sim_green.h"

pthread_mutex_t vgx_sim_runtime_lock = PTHREAD_MUTEX_INITIALIZER;
const struct vgx_sim_hooks *vgx_sim_hooks;
struct vgx_sim_device vgx_sim_devices[VGX_SIM_DEVICES_MAX];
static CUcontext contexts;
static _Thread_local CUcontext current;
static void (*log_line)(const char *line);
static void (*log_reason)(char *text, size_t capacity);
static void (*reason_to)(CUresult result, bool ends, const char *text);

void vgx_sim_set_log(void (*line)(const char *line), void (*reason)(char *text, size_t capacity)) {
  log_line = line;
  log_reason = reason;
}

void vgx_sim_log(const char *format, ...) {
  char line[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  if (log_line)
    log_line(line);
  else
    fprintf(stderr, "%s\n", line);
}

void vgx_sim_set_reason(void (*reason)(CUresult result, bool ends, const char *text)) { reason_to = reason; }

void vgx_sim_reason(CUresult result, bool ends, const char *format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (log_reason)
    log_reason(text, sizeof text);
  else
    vgx_sim_log("simulator: %s", text);
  if (reason_to)
    reason_to(result, ends, text);
}

void vgx_sim_set_hooks(const struct vgx_sim_hooks *hooks) { vgx_sim_hooks = hooks; }

struct vgx_sim_device *vgx_sim_device_at(CUdevice device) {
  return device >= 0 && (uint32_t)device < VGX_SIM_DEVICES_MAX && vgx_sim_devices[device].configured
             ? &vgx_sim_devices[device]
             : NULL;
}

struct vgx_sim_device *vgx_sim_device_of_host(uint32_t number) {
  for (uint32_t i = 0; i < VGX_SIM_DEVICES_MAX; i++)
    if (vgx_sim_devices[i].configured && vgx_sim_devices[i].host_number == number)
      return &vgx_sim_devices[i];
  return NULL;
}

struct vgx_sim_device *vgx_sim_device_of(uint64_t address) {
  if (address < VGW_DEVICE_MEMORY_BEGIN)
    return NULL;
  uint64_t index = (address - VGW_DEVICE_MEMORY_BEGIN) / VGW_DEVICE_MEMORY_NBYTES;
  return index < VGX_SIM_DEVICES_MAX && vgx_sim_devices[index].configured ? &vgx_sim_devices[index] : NULL;
}

int64_t vgx_sim_attribute(const struct vgx_sim_device *device, enum vgx_sim_attribute id, int64_t otherwise) {
  int32_t value = device->properties.attributes[id];
  return value == INT32_MIN || value < 0 ? otherwise : value;
}

CUcontext vgx_sim_contexts(void) { return contexts; }

void vgx_sim_contexts_add_locked(CUcontext ctx) {
  ctx->next = contexts;
  contexts = ctx;
}

CUresult vgx_sim_check(CUcontext ctx) {
  if (!ctx)
    return CUDA_ERROR_INVALID_CONTEXT;
  vgx_sim_lock();
  CUresult result = ctx->destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                    : ctx->green   ? CUDA_ERROR_NOT_SUPPORTED /* a green context as an argument of other calls */
                                   : ctx->sticky;
  vgx_sim_unlock();
  return result;
}

CUcontext vgx_sim_current(void) {
  return current && current->green && !current->destroyed ? current->green->primary : current;
}

CUcontext vgx_sim_current_name(void) { return current; }
void vgx_sim_set_current(CUcontext ctx) { current = ctx; }

CUresult vgx_sim_enter(CUcontext *ctx) {
  CUcontext entered = vgx_sim_current();
  CUresult result = vgx_sim_check(entered);
  if (result == CUDA_SUCCESS)
    *ctx = entered;
  return result;
}

CUresult vgx_sim_stream_of(CUcontext ctx, CUstream handle, CUstream *stream) {
  if (handle == NULL || handle == CU_STREAM_LEGACY)
    *stream = &ctx->legacy;
  else if (handle == CU_STREAM_PER_THREAD) /* this process's threads are not the client's: the client creates a stream
                                              for each of its own */
    *stream = &ctx->per_thread;
  else if (handle->magic != VGX_SIM_STREAM)
    return CUDA_ERROR_INVALID_HANDLE;
  else if (handle->green && handle->green->magic != VGX_SIM_GREEN)
    return CUDA_ERROR_STREAM_DETACHED;
  else
    *stream = handle;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_enter_stream(CUstream handle, CUcontext *ctx, CUstream *stream) {
  CUcontext entered;
  CUresult result = vgx_sim_enter(&entered);
  if (result == CUDA_SUCCESS)
    result = vgx_sim_stream_of(entered, handle, stream);
  if (result == CUDA_SUCCESS && ctx)
    *ctx = entered;
  return result;
}
