/* Contexts: each thread's stack of current ones, and the primary contexts. */
#ifndef VGS_CONTEXT_H
#define VGS_CONTEXT_H

#include "vgs_enter.h"
#include "vgs_objects.h"
#include "vgs_session.h"

/* The handle of the device's primary context, whether or not it is retained. NULL: out of memory. */
struct vgs_context *vgs_context_primary(CUdevice device);

/* The context that the worker knows by this id now. NULL: none. */
struct vgs_context *vgs_context_of_wire(uint32_t wire_id);

/* The context that stands for a green one: create its object before the request (NULL: out of memory), connect the two
 * after it, and disconnect them before the green one is destroyed. */
struct vgs_context *vgs_context_create_green(const struct vgs_green *green);
void vgs_context_start_green(struct vgs_green *green, struct vgs_context *context);
void vgs_green_destroy_context(struct vgs_green *green);

/* The storage of a context's flags: the flags of a primary context outlive the context. */
uint32_t *vgs_context_flags(struct vgs_context *context);
bool vgs_context_flags_are_valid(unsigned flags);

#endif
