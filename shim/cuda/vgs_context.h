/* Contexts: each thread's stack of current ones, the primary contexts, and storage that NVIDIA's libraries hang on
 * them. */
#ifndef VGS_CONTEXT_H
#define VGS_CONTEXT_H

#include "vgs_objects.h"
#include "vgs_session.h"

/* The calling thread's current context if it is alive, else NULL. */
struct vgs_context *vgs_context_current(void);

/* The context that vgs_enter_context found for the call going on; never NULL in functions that need one, even if
 * another thread is destroying it (object memory stays). */
extern VGS_THREAD_LOCAL struct vgs_context *vgs_context_entered;

/* The context of a handle, the current one for NULL. NULL if there is none or it is dead. */
struct vgs_context *vgs_context_find(CUcontext context);

/* The handle of the device's primary context, whether or not it is retained. NULL: out of memory. */
struct vgs_context *vgs_context_primary(CUdevice device);

/* Where a context's flags are kept: a primary context's outlive it. */
uint32_t *vgs_context_flags(struct vgs_context *context);
bool vgs_context_flags_are_valid(unsigned flags);

/* Context-local storage. `context` NULL: the current one.
 * Errors: INVALID_CONTEXT; get and delete: INVALID_HANDLE if there is no such entry. */
CUresult vgs_cls_put(CUcontext context, void *key, void *value, void (*destroy)(CUcontext, void *, void *));
CUresult vgs_cls_delete(CUcontext context, void *key);
CUresult vgs_cls_get(void **value, CUcontext context, void *key);

/* Run the destructors of all entries, and drop them. */
void vgs_cls_clear(struct vgs_context *context);

#endif
