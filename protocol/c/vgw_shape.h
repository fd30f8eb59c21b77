/* What both sides derive from the shapes of arrays and copies. */
#ifndef VGW_SHAPE_H
#define VGW_SHAPE_H

#include "vgw_cuda.h"

/* Bytes of an element; 0: no such format or number of channels. */
static inline uint32_t vgw_element_nbytes(int32_t format, uint32_t channels) {
  if (channels != 1 && channels != 2 && channels != 4)
    return 0;
  switch (format) {
  case CU_AD_FORMAT_UNSIGNED_INT8:
  case CU_AD_FORMAT_SIGNED_INT8:
    return channels;
  case CU_AD_FORMAT_UNSIGNED_INT16:
  case CU_AD_FORMAT_SIGNED_INT16:
  case CU_AD_FORMAT_HALF:
    return 2 * channels;
  case CU_AD_FORMAT_UNSIGNED_INT32:
  case CU_AD_FORMAT_SIGNED_INT32:
  case CU_AD_FORMAT_FLOAT:
    return 4 * channels;
  }
  if (format < CU_AD_FORMAT_UNORM_INT8X1 || format > CU_AD_FORMAT_SNORM_INT16X4 ||
      channels != 1u << (format - CU_AD_FORMAT_UNORM_INT8X1) % 3)
    return 0;
  return ((format - CU_AD_FORMAT_UNORM_INT8X1) / 3 % 2 ? 2 : 1) * channels;
}

/* A copy of one layer. */
static inline CUDA_MEMCPY3D vgw_copy_of_2d(const CUDA_MEMCPY2D *c) {
  return (CUDA_MEMCPY3D){.srcXInBytes = c->srcXInBytes,
                         .srcY = c->srcY,
                         .srcMemoryType = c->srcMemoryType,
                         .srcHost = c->srcHost,
                         .srcDevice = c->srcDevice,
                         .srcArray = c->srcArray,
                         .srcPitch = c->srcPitch,
                         .dstXInBytes = c->dstXInBytes,
                         .dstY = c->dstY,
                         .dstMemoryType = c->dstMemoryType,
                         .dstHost = c->dstHost,
                         .dstDevice = c->dstDevice,
                         .dstArray = c->dstArray,
                         .dstPitch = c->dstPitch,
                         .WidthInBytes = c->WidthInBytes,
                         .Height = c->Height,
                         .Depth = 1};
}

#endif
