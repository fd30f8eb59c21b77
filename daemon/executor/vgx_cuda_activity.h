/* Measuring what a real device does, by events around each operation. */
#ifndef VGX_CUDA_ACTIVITY_H
#define VGX_CUDA_ACTIVITY_H

struct vgx_backend;

/* Add measuring to `backend`, which was filled from `library`: its operations are replaced by functions that measure on
 * request. */
void vgx_cuda_activity_resolve(void *library, struct vgx_backend *backend);

#endif
