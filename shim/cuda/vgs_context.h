/* Contexts: each thread's stack of current ones, the primary contexts, and storage that NVIDIA's libraries hang on
 * them. */
#ifndef VGS_CONTEXT_H
#define VGS_CONTEXT_H

#include "vgs_enter.h"
#include "vgs_objects.h"
#include "vgs_session.h"

/* The handle of the device's primary context, whether or not it is retained. NULL: out of memory. */
struct vgs_context *vgs_context_primary(CUdevice device);

/* The context that the worker knows by this id now. NULL: none. */
struct vgs_context *vgs_context_of_wire(uint32_t wire_id);

/* The storage of a context's flags: a primary context's outlive it. */
uint32_t *vgs_context_flags(struct vgs_context *context);
bool vgs_context_flags_are_valid(unsigned flags);

/* Context-local storage. `context` NULL: the current one.
 * Errors: INVALID_CONTEXT; get and delete: INVALID_HANDLE if there is no such entry. */
CUresult vgs_cls_set(CUcontext context, void *key, void *value, void (*destroy)(CUcontext, void *, void *));
CUresult vgs_cls_delete(CUcontext context, void *key);
CUresult vgs_cls_get(void **value, CUcontext context, void *key);

/* Run the destructors of all entries, and drop them. */
void vgs_cls_clear(struct vgs_context *context);

#endif
