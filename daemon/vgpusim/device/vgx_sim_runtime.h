/* The state that all parts of the simulator use: the runtime lock, the devices, the calling thread's context, the log.
 */
#ifndef VGX_SIM_RUNTIME_H
#define VGX_SIM_RUNTIME_H

#include "vgx_sim_internal.h"

extern pthread_mutex_t vgx_sim_runtime_lock;
extern const struct vgx_sim_hooks *vgx_sim_hooks;

static inline void vgx_sim_lock(void) { pthread_mutex_lock(&vgx_sim_runtime_lock); }
static inline void vgx_sim_unlock(void) { pthread_mutex_unlock(&vgx_sim_runtime_lock); }

/* The calling thread's context, if it can be used: else INVALID_CONTEXT, CONTEXT_IS_DESTROYED or its sticky error. */
CUresult vgx_sim_enter(CUcontext *ctx);
CUcontext vgx_sim_current(void);      /* NULL: none; unchecked. In place of a green context, its primary context */
CUcontext vgx_sim_current_name(void); /* as it was set */
void vgx_sim_set_current(CUcontext ctx);
/* The same for a given context. */
CUresult vgx_sim_check(CUcontext ctx);
extern struct vgx_sim_device vgx_sim_devices[VGX_SIM_DEVICES_MAX];
/* NULL when `device` is not configured. */
struct vgx_sim_device *vgx_sim_device_at(CUdevice device);
/* By its number among the host's devices; NULL: this process does not have it. */
struct vgx_sim_device *vgx_sim_device_of_host(uint32_t number);
/* The device whose address space holds `address`, or NULL. */
struct vgx_sim_device *vgx_sim_device_of(uint64_t address);
CUcontext vgx_sim_contexts(void); /* all, under the runtime lock */
void vgx_sim_contexts_add_locked(CUcontext ctx);
int64_t vgx_sim_attribute(const struct vgx_sim_device *device, enum vgx_sim_attribute id, int64_t otherwise);

/* The stream a handle means in `ctx`; INVALID_HANDLE when it is none. */
CUresult vgx_sim_stream_of(CUcontext ctx, CUstream handle, CUstream *stream);
/* The calling thread's context, as vgx_sim_enter finds it (`ctx` may be NULL), and the stream a handle means in it. */
CUresult vgx_sim_enter_stream(CUstream handle, CUcontext *ctx, CUstream *stream);

void vgx_sim_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A line for the log and for the client: why a call failed with `result`, or (`ends`) what ended the context. */
void vgx_sim_reason(CUresult result, bool ends, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
