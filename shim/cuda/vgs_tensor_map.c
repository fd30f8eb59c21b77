/* Tensor maps. cuBLASLt and JAX encode one for nearly every launch, and the answer depends on nothing but the
 * arguments, so the last ones are kept. */
#include "vgs_api.h"
#include "vgw_wire.h"
#include <pthread.h>
#include <string.h>

enum { TILED = 1, IM2COL = 2, REPLACE = 3, IM2COL_WIDE = 4, RANK_MAX = 5, KEPT = 128, MAP_NBYTES = 128 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  uint32_t form; /* 0: free */
  struct vgw_tensor_map arguments;
  uint8_t map[MAP_NBYTES];
} kept[KEPT];

static unsigned place(const struct vgw_tensor_map *arguments) {
  uint64_t hash = arguments->address;
  for (int i = 0; i < RANK_MAX; i++)
    hash = (hash ^ arguments->dims[i] ^ arguments->strides[i] << 7 ^ (uint64_t)arguments->box[i] << 32) *
           0x9e3779b97f4a7c15u;
  return (unsigned)(hash >> 57) % KEPT;
}

static CUresult encode(CUtensorMap *map, uint32_t form, const struct vgw_tensor_map *arguments) {
  unsigned at = place(arguments);
  pthread_mutex_lock(&lock);
  bool hit = kept[at].form == form && !memcmp(&kept[at].arguments, arguments, sizeof *arguments);
  if (hit)
    memcpy(map, kept[at].map, MAP_NBYTES);
  pthread_mutex_unlock(&lock);
  if (hit)
    return CUDA_SUCCESS;
  uint8_t fresh[MAP_NBYTES];
  CUresult result = vgs_send_vgpuTensorMap(form, sizeof *arguments, sizeof fresh, arguments, fresh);
  if (result)
    return result;
  pthread_mutex_lock(&lock);
  kept[at].form = form;
  kept[at].arguments = *arguments;
  memcpy(kept[at].map, fresh, MAP_NBYTES);
  pthread_mutex_unlock(&lock);
  memcpy(map, fresh, MAP_NBYTES);
  return CUDA_SUCCESS;
}

/* The part common to both forms. `arguments` was zeroed, including padding: it is compared as bytes. */
static bool fill(struct vgw_tensor_map *arguments, int type, uint32_t rank, void *address, const uint64_t *dims,
                 const uint64_t *strides, const uint32_t *element_strides, const int tail[4]) {
  if (!rank || rank > RANK_MAX || !dims || (rank > 1 && !strides) || !element_strides)
    return false;
  arguments->address = (uintptr_t)address;
  arguments->data_type = type;
  arguments->rank = rank;
  memcpy(arguments->dims, dims, rank * sizeof *dims);
  if (rank > 1)
    memcpy(arguments->strides, strides, (rank - 1) * sizeof *strides);
  memcpy(arguments->element_strides, element_strides, rank * sizeof *element_strides);
  arguments->interleave = tail[0];
  arguments->swizzle = tail[1];
  arguments->l2_promotion = tail[2];
  arguments->oob_fill = tail[3];
  return true;
}

CUresult vgs_cuTensorMapEncodeTiled(CUtensorMap *tensorMap, int tensorDataType, unsigned int tensorRank,
                                    void *globalAddress, const uint64_t *globalDim, const uint64_t *globalStrides,
                                    const uint32_t *boxDim, const uint32_t *elementStrides, int interleave, int swizzle,
                                    int l2Promotion, int oobFill) {
  struct vgw_tensor_map arguments;
  memset(&arguments, 0, sizeof arguments);
  if (!tensorMap || !boxDim ||
      !fill(&arguments, tensorDataType, tensorRank, globalAddress, globalDim, globalStrides, elementStrides,
            (int[]){interleave, swizzle, l2Promotion, oobFill}))
    return CUDA_ERROR_INVALID_VALUE;
  memcpy(arguments.box, boxDim, tensorRank * sizeof *boxDim);
  return encode(tensorMap, TILED, &arguments);
}

CUresult vgs_cuTensorMapEncodeIm2col(CUtensorMap *tensorMap, int tensorDataType, unsigned int tensorRank,
                                     void *globalAddress, const uint64_t *globalDim, const uint64_t *globalStrides,
                                     const int *pixelBoxLowerCorner, const int *pixelBoxUpperCorner,
                                     unsigned int channelsPerPixel, unsigned int pixelsPerColumn,
                                     const uint32_t *elementStrides, int interleave, int swizzle, int l2Promotion,
                                     int oobFill) {
  struct vgw_tensor_map arguments;
  memset(&arguments, 0, sizeof arguments);
  if (!tensorMap || !pixelBoxLowerCorner || !pixelBoxUpperCorner || tensorRank < 3 ||
      !fill(&arguments, tensorDataType, tensorRank, globalAddress, globalDim, globalStrides, elementStrides,
            (int[]){interleave, swizzle, l2Promotion, oobFill}))
    return CUDA_ERROR_INVALID_VALUE;
  memcpy(arguments.lower, pixelBoxLowerCorner, (tensorRank - 2) * sizeof *pixelBoxLowerCorner);
  memcpy(arguments.upper, pixelBoxUpperCorner, (tensorRank - 2) * sizeof *pixelBoxUpperCorner);
  arguments.channels = channelsPerPixel;
  arguments.pixels = pixelsPerColumn;
  return encode(tensorMap, IM2COL, &arguments);
}

CUresult vgs_cuTensorMapEncodeIm2colWide(CUtensorMap *tensorMap, int tensorDataType, unsigned int tensorRank,
                                         void *globalAddress, const uint64_t *globalDim, const uint64_t *globalStrides,
                                         int pixelBoxLowerCornerWidth, int pixelBoxUpperCornerWidth,
                                         unsigned int channelsPerPixel, unsigned int pixelsPerColumn,
                                         const uint32_t *elementStrides, int interleave, int mode, int swizzle,
                                         int l2Promotion, int oobFill) {
  struct vgw_tensor_map arguments;
  memset(&arguments, 0, sizeof arguments);
  if (!tensorMap || !fill(&arguments, tensorDataType, tensorRank, globalAddress, globalDim, globalStrides,
                          elementStrides, (int[]){interleave, swizzle, l2Promotion, oobFill}))
    return CUDA_ERROR_INVALID_VALUE;
  arguments.lower[0] = pixelBoxLowerCornerWidth;
  arguments.upper[0] = pixelBoxUpperCornerWidth;
  arguments.channels = channelsPerPixel;
  arguments.pixels = pixelsPerColumn;
  arguments.lower[1] = mode;
  return encode(tensorMap, IM2COL_WIDE, &arguments);
}

CUresult vgs_cuTensorMapReplaceAddress(CUtensorMap *tensorMap, void *globalAddress) {
  struct vgw_tensor_map arguments;
  memset(&arguments, 0, sizeof arguments);
  if (!tensorMap)
    return CUDA_ERROR_INVALID_VALUE;
  arguments.address = (uintptr_t)globalAddress;
  memcpy(arguments.map, tensorMap, MAP_NBYTES);
  return encode(tensorMap, REPLACE, &arguments);
}
