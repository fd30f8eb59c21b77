/* The cuda backend. */
#ifndef VGX_CUDA_H
#define VGX_CUDA_H

struct vgx_backend;

/* The backend that is the real driver: dlopens `path`, calls cuInit; NULL with `*why` set when it cannot. */
const struct vgx_backend *vgx_cuda_backend(const char *path, const char **why);

#endif
