/* Tensor maps. */
#include "vgx_custom.h"
#include "vgx_session.h"

CUresult vgx_vgpuTensorMap(struct vgx_session *s, const struct vgw_req_vgpuTensorMap *req, const void *arguments,
                           void *map, uint64_t *map_nbytes) {
  enum { TILED = 1, IM2COL = 2, REPLACE = 3, IM2COL_WIDE = 4, MAX_RANK = 5 };
  struct vgw_tensor_map a;
  CUtensorMap encoded;
  const struct vgx_backend *b = s->backend;
  CUresult result;
  if (req->nbytes != sizeof a || *map_nbytes != sizeof encoded)
    return vgx_violation(s, "tensor map arguments");
  memcpy(&a, arguments, sizeof a);
  if (req->form != REPLACE && (a.rank == 0 || a.rank > MAX_RANK))
    return CUDA_ERROR_INVALID_VALUE;
  if (!b->cuTensorMapEncodeTiled || !b->cuTensorMapEncodeIm2col || !b->cuTensorMapReplaceAddress)
    return vgx_not_offered(s, "cuTensorMapEncode");
  if (req->form == TILED) {
    result = b->cuTensorMapEncodeTiled(&encoded, a.data_type, a.rank, (void *)a.address, a.dims, a.strides, a.box,
                                       a.element_strides, a.interleave, a.swizzle, a.l2_promotion, a.oob_fill);
  } else if (req->form == IM2COL) {
    result = b->cuTensorMapEncodeIm2col(&encoded, a.data_type, a.rank, (void *)a.address, a.dims, a.strides, a.lower,
                                        a.upper, a.channels, a.pixels, a.element_strides, a.interleave, a.swizzle,
                                        a.l2_promotion, a.oob_fill);
  } else if (req->form == IM2COL_WIDE) {
    if (!b->cuTensorMapEncodeIm2colWide)
      return vgx_not_offered(s, "cuTensorMapEncodeIm2colWide");
    result = b->cuTensorMapEncodeIm2colWide(&encoded, a.data_type, a.rank, (void *)a.address, a.dims, a.strides,
                                            a.lower[0], a.upper[0], a.channels, a.pixels, a.element_strides,
                                            a.interleave, a.lower[1], a.swizzle, a.l2_promotion, a.oob_fill);
  } else if (req->form == REPLACE) {
    memcpy(&encoded, a.map, sizeof encoded);
    result = b->cuTensorMapReplaceAddress(&encoded, (void *)a.address);
  } else {
    return vgx_violation(s, "form of tensor map");
  }
  if (result == CUDA_SUCCESS)
    memcpy(map, &encoded, sizeof encoded);
  return result;
}
