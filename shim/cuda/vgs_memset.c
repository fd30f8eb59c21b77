/* Fills. Checked here as the driver checks them (oracle), then queued. */
#include "vgs_api.h"
#include "vgs_context.h"
#include "vgs_copy.h"
#include "vgs_stream.h"

/* `waits`: the worker must judge the address. An empty fill is checked no further. */
static CUresult check(uint64_t address, uint64_t pitch, unsigned element_nbytes, uint64_t width, uint64_t height,
                      CUstream handle, uint32_t *stream, bool *empty, bool *waits) {
  uint64_t row_nbytes, extent;
  enum vgs_place place;
  bool known;
  *empty = !width || !height;
  CUresult result = vgs_stream_id(handle, stream, NULL);
  if (result)
    return result;
  if (address % element_nbytes || __builtin_mul_overflow(width, (uint64_t)element_nbytes, &row_nbytes) ||
      (height > 1 && (pitch < row_nbytes || pitch % element_nbytes)))
    return CUDA_ERROR_INVALID_VALUE;
  if (*empty)
    return CUDA_SUCCESS;
  if (__builtin_mul_overflow(pitch, height - 1, &extent) || __builtin_add_overflow(extent, row_nbytes, &extent))
    return CUDA_ERROR_INVALID_VALUE;
  if ((result = vgs_place_of(address, extent, VGS_PLACE_DEVICE, &place, &known)))
    return result;
  *waits = !known;
  return place == VGS_PLACE_HOST ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

#define DEFINE_MEMSET(bits, type)                                                                                      \
  CUresult vgs_cuMemsetD##bits##Async(CUdeviceptr dst, type value, size_t n, CUstream stream) {                        \
    uint32_t id;                                                                                                       \
    bool empty, waits = false;                                                                                         \
    CUresult result = check(dst, 0, bits / 8, n, 1, stream, &id, &empty, &waits);                                      \
    return result || empty ? result : vgs_send_cuMemsetD##bits##Async(dst, value, n, id, waits);                       \
  }                                                                                                                    \
  CUresult vgs_cuMemsetD##bits##_v2(CUdeviceptr dst, type value, size_t n) {                                           \
    return vgs_cuMemsetD##bits##Async(dst, value, n, vgs_stream_default());                                            \
  }                                                                                                                    \
  CUresult vgs_cuMemsetD2D##bits##Async(CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height,        \
                                        CUstream stream) {                                                             \
    uint32_t id;                                                                                                       \
    bool empty, waits = false;                                                                                         \
    CUresult result = check(dst, pitch, bits / 8, width, height, stream, &id, &empty, &waits);                         \
    return result || empty ? result : vgs_send_cuMemsetD2D##bits##Async(dst, pitch, value, width, height, id, waits);  \
  }                                                                                                                    \
  CUresult vgs_cuMemsetD2D##bits##_v2(CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height) {        \
    return vgs_cuMemsetD2D##bits##Async(dst, pitch, value, width, height, vgs_stream_default());                       \
  }

DEFINE_MEMSET(8, unsigned char)
DEFINE_MEMSET(16, unsigned short)
DEFINE_MEMSET(32, unsigned int)
