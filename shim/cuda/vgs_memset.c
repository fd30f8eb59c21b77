/* Fills. Checked here as the driver checks them (oracle), then queued. A fill of pinned host memory is complete when
 * the call returns, unless it is one of the Async forms: the program reads that memory without asking anybody. */
#include "vgs_api.h"
#include "vgs_copy.h"
#include "vgs_enter.h"
#include "vgs_stream.h"
#include "vgs_wait.h"
#include <string.h>

struct target {
  uint64_t address, pitch, width, height; /* width in elements */
  unsigned element_nbytes;
  uint32_t stream;
  bool empty; /* checked no further */
  bool waits; /* the worker must judge the address */
  bool local; /* pinned memory that the worker cannot see */
  bool host;  /* pinned memory of either kind */
};

static CUresult check(struct target *t, CUstream handle) {
  uint64_t row_nbytes, extent;
  enum vgs_place place;
  bool known;
  t->empty = !t->width || !t->height;
  CUresult result = vgs_stream_id(handle, &t->stream, NULL);
  if (result)
    return result;
  if (t->address % t->element_nbytes || __builtin_mul_overflow(t->width, (uint64_t)t->element_nbytes, &row_nbytes) ||
      (t->height > 1 && (t->pitch < row_nbytes || t->pitch % t->element_nbytes)))
    return CUDA_ERROR_INVALID_VALUE;
  if (t->empty)
    return CUDA_SUCCESS;
  if (__builtin_mul_overflow(t->pitch, t->height - 1, &extent) || __builtin_add_overflow(extent, row_nbytes, &extent))
    return CUDA_ERROR_INVALID_VALUE;
  if ((result = vgs_place_of(t->address, extent, VGS_PLACE_DEVICE, &place, &known)))
    return result;
  t->waits = !known;
  t->local = place == VGS_PLACE_HOST;
  t->host = place != VGS_PLACE_DEVICE;
  return CUDA_SUCCESS;
}

/* What the stream does first may use the memory, so that comes first. */
static CUresult fill_here(const struct target *t, uint32_t value) {
  CUresult result = vgs_send_cuStreamSynchronize(t->stream);
  for (uint64_t y = 0; y < t->height && !result; y++) {
    char *row = (char *)(uintptr_t)(t->address + y * t->pitch);
    for (uint64_t x = 0; x < t->width; x++)
      memcpy(row + x * t->element_nbytes, &value, t->element_nbytes); /* little-endian: the low bytes */
  }
  return result;
}

/* Wait for the fill of a call that is not asynchronous. */
static CUresult finish(const struct target *t, CUresult result) {
  return result || t->empty || !t->host || t->local ? result : vgs_wait_stream(t->stream);
}

#define DEFINE_MEMSET(bits, type)                                                                                      \
  static CUresult fill##bits(struct target *t, type value, CUstream stream) {                                          \
    t->element_nbytes = bits / 8;                                                                                      \
    CUresult result = check(t, stream);                                                                                \
    if (result || t->empty)                                                                                            \
      return result;                                                                                                   \
    return t->local ? fill_here(t, value)                                                                              \
                    : vgs_send_cuMemsetD##bits##Async(t->address, value, t->width, t->stream, t->waits);               \
  }                                                                                                                    \
  CUresult vgs_cuMemsetD##bits##Async(CUdeviceptr dst, type value, size_t n, CUstream stream) {                        \
    struct target t = {.address = dst, .width = n, .height = 1};                                                       \
    return fill##bits(&t, value, stream);                                                                              \
  }                                                                                                                    \
  CUresult vgs_cuMemsetD##bits##_v2(CUdeviceptr dst, type value, size_t n) {                                           \
    struct target t = {.address = dst, .width = n, .height = 1};                                                       \
    return finish(&t, fill##bits(&t, value, vgs_stream_default()));                                                    \
  }                                                                                                                    \
  static CUresult fill_2d##bits(struct target *t, type value, CUstream stream) {                                       \
    t->element_nbytes = bits / 8;                                                                                      \
    CUresult result = check(t, stream);                                                                                \
    if (result || t->empty)                                                                                            \
      return result;                                                                                                   \
    return t->local ? fill_here(t, value)                                                                              \
                    : vgs_send_cuMemsetD2D##bits##Async(t->address, t->pitch, value, t->width, t->height, t->stream,   \
                                                        t->waits);                                                     \
  }                                                                                                                    \
  CUresult vgs_cuMemsetD2D##bits##Async(CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height,        \
                                        CUstream stream) {                                                             \
    struct target t = {.address = dst, .pitch = pitch, .width = width, .height = height};                              \
    return fill_2d##bits(&t, value, stream);                                                                           \
  }                                                                                                                    \
  CUresult vgs_cuMemsetD2D##bits##_v2(CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height) {        \
    struct target t = {.address = dst, .pitch = pitch, .width = width, .height = height};                              \
    return finish(&t, fill_2d##bits(&t, value, vgs_stream_default()));                                                 \
  }

DEFINE_MEMSET(8, unsigned char)
DEFINE_MEMSET(16, unsigned short)
DEFINE_MEMSET(32, unsigned int)
