/* The program's device code: what the compiler's stubs registered, found by the host addresses that stand for it. */
#ifndef VGS_RT_REGISTRY_H
#define VGS_RT_REGISTRY_H

#include "vgs_rt.h"

/* The kernel of a host function, loaded if need be; needs a current context. A kernel that this library handed out
 * (cudaGetKernel, cudaLibraryGetKernel) stands for itself. For any other address the error is INVALID_HANDLE from 12
 * on, where it might have been a kernel handle; in 11, and for NULL, it is VGS_RT_INVALID_DEVICE_FUNCTION. */
int vgs_rt_kernel(const void *function, CUkernel *kernel);

/* The same, in the current context. */
int vgs_rt_function(const void *function, CUfunction *found);

/* Register kernels that the program may pass where a host function is expected. */
int vgs_rt_kernel_given(CUkernel kernel);

/* Whether `function` was registered. */
bool vgs_rt_is_registered(const void *function);

/* Address and size of a device variable in the current context; VGS_RT_INVALID_SYMBOL if there is none. Either result
 * may be NULL. */
int vgs_rt_variable(const void *symbol, CUdeviceptr *address, size_t *nbytes);

/* Load what must be loaded as soon as there is a context: everything when the driver loads eagerly, else the images
 * that have managed variables, whose host pointers must be right before the first kernel. */
int vgs_rt_registry_prepare(void);

/* Load the image that was registered as `handle`; needs a current context. */
int vgs_rt_registry_load(void **handle);

void vgs_rt_registry_fini(void);
void vgs_rt_registry_lock(void);
void vgs_rt_registry_unlock(void);

#endif
