/* Kernels: their description, fetched once, and their attributes. */
#ifndef VGS_KERNEL_H
#define VGS_KERNEL_H

#include "vgs_enter.h"
#include "vgs_objects.h"

/* Make the object for a kernel that the worker is about to hand out. NULL: out of memory. */
struct vgs_kernel *vgs_kernel_make(enum vgw_kind kind, uint32_t owner_id, uint32_t context_id, const char *name);

/* Fetch the attributes and parameter layout unless they are known. Fails with the reason if the kernel is missing. */
CUresult vgs_kernel_describe(struct vgs_kernel *kernel);

/* Called before a launch: describe the kernel. A missing one ends the context: a card would have run the kernel, so a
 * program that ignores errors must not continue with undefined memory contents. */
CUresult vgs_kernel_prepare(struct vgs_kernel *kernel);

/* Called before an attribute is set: describe the kernel; INVALID_VALUE if the attribute cannot be set. */
CUresult vgs_kernel_check_settable(struct vgs_kernel *kernel, int attribute);

static inline unsigned vgs_kernel_row(const struct vgs_kernel *kernel, CUdevice device) {
  return kernel->object.kind == VGW_KIND_KERNEL ? (unsigned)device : 0;
}

static inline int *vgs_kernel_attribute_at(const struct vgs_kernel *kernel, CUdevice device, int attribute) {
  return &kernel->attributes[vgs_kernel_row(kernel, device)][attribute];
}

/* Whether an attribute of a described kernel is known to have that value on a device. */
bool vgs_kernel_has(const struct vgs_kernel *kernel, CUdevice device, int attribute, int value);

/* Store that the attribute was set to that value on a device. */
void vgs_kernel_set(struct vgs_kernel *kernel, CUdevice device, int attribute, int value);

/* A kernel's name for the trace; "?" for an invalid handle. */
const char *vgs_kernel_traced_name(const void *handle);

/* An attribute of a described kernel on the entered context's device; INT32_MIN if the driver does not know it. */
static inline int vgs_kernel_attribute(const struct vgs_kernel *kernel, int attribute) {
  return __atomic_load_n(vgs_kernel_attribute_at(kernel, vgs_context_entered->device, attribute), __ATOMIC_RELAXED);
}

/* The kernel behind a handle of either kind: CUfunction parameters accept a CUkernel, too. */
static inline struct vgs_kernel *vgs_kernel_find(const void *handle) {
  struct vgs_kernel *kernel = vgs_object_find(VGW_KIND_FUNCTION, handle);
  return kernel ? kernel : vgs_object_find(VGW_KIND_KERNEL, handle);
}

#endif
