/* The layout of kernels' parameters where the driver does not tell it (before 12.4): read from their images. */
#ifndef VGX_CUDA_PARAMS_H
#define VGX_CUDA_PARAMS_H

#include <stdint.h>

struct vgx_backend;

/* A reader of images. From any thread; `open` and `param` return a CUresult. */
struct vgx_params_reader {
  /* Keep the image, whose bytes are valid only during the call; *image identifies it and is not 0. */
  int32_t (*open)(const void *data, uint64_t nbytes, uint64_t *image);
  void (*close)(uint64_t image);
  /* INVALID_VALUE: the kernel has no such parameter. NOT_FOUND: the image does not say. */
  int32_t (*param)(uint64_t image, const char *kernel, uint64_t index, uint64_t *offset, uint64_t *nbytes);
};

/* Set the reader of images, which must stay valid. To be called before vgx_cuda_backend. */
void vgx_cuda_params_set_reader(const struct vgx_params_reader *reader);

/* Add cuFuncGetParamInfo to `backend` if it has none and a reader is set: the backend's modules, libraries and kernels
 * are recorded for that. */
void vgx_cuda_params_resolve(struct vgx_backend *backend);

#endif
