/* Fills. Checked here as the driver checks them (oracle), then queued. */
#include "vgs_memset.h"
#include "vgs_api.h"
#include "vgs_copy.h"
#include "vgs_enter.h"
#include "vgs_host_mirror.h"
#include "vgs_mirror.h"
#include "vgs_range.h"
#include "vgs_stream.h"
#include <string.h>

CUresult vgs_fill_check(struct vgs_fill *t) {
  uint64_t row_nbytes, extent;
  enum vgs_place place;
  bool known;
  t->empty = !t->width || !t->height;
  if (t->address % t->element_nbytes || __builtin_mul_overflow(t->width, (uint64_t)t->element_nbytes, &row_nbytes) ||
      (t->height > 1 && (t->pitch < row_nbytes || t->pitch % t->element_nbytes)))
    return CUDA_ERROR_INVALID_VALUE;
  if (t->empty)
    return CUDA_SUCCESS;
  if (__builtin_mul_overflow(t->pitch, t->height - 1, &extent) || __builtin_add_overflow(extent, row_nbytes, &extent))
    return CUDA_ERROR_INVALID_VALUE;
  t->address = vgs_host_mirror_host_address(t->address);
  CUresult result = vgs_place_of(t->address, extent, VGS_PLACE_DEVICE, &place, &known);
  if (result)
    return result;
  t->unknown = !known;
  t->local = place == VGS_PLACE_HOST;
  t->host = place != VGS_PLACE_DEVICE || vgs_range_completes(t->address, t->address);
  return CUDA_SUCCESS;
}

/* Earlier work of the stream may use the memory, so it must be done first. */
CUresult vgs_fill_here(const struct vgs_fill *t, uint32_t value) {
  CUresult result = vgs_send_cuStreamSynchronize(t->stream);
  result = vgs_mirror_after(result, t->stream); /* before the fill, as it is older */
  for (uint64_t y = 0; y < t->height && !result; y++) {
    char *row = (char *)(uintptr_t)(t->address + y * t->pitch);
    for (uint64_t x = 0; x < t->width; x++)
      memcpy(row + x * t->element_nbytes, &value, t->element_nbytes); /* little-endian: the low bytes */
  }
  return result;
}
