#include "vgs_array.h"
#include "vgs_api.h"
#include "vgw_shape.h"
#include <string.h>

bool vgs_array_is_valid(const CUDA_ARRAY3D_DESCRIPTOR *desc) {
  return desc->Width && vgw_element_nbytes(desc->Format, desc->NumChannels);
}

CUresult vgs_cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *d) {
  if (!d)
    return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR desc;
  memset(&desc, 0, sizeof desc);
  desc.Width = d->Width;
  desc.Height = d->Height;
  desc.Format = d->Format;
  desc.NumChannels = d->NumChannels;
  return vgs_cuArray3DCreate_v2(pHandle, &desc);
}

CUresult vgs_cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray) {
  struct vgs_array *array = vgs_array_find(hArray);
  if (!pArrayDescriptor)
    return CUDA_ERROR_INVALID_VALUE;
  if (!array)
    return CUDA_ERROR_INVALID_HANDLE;
  *pArrayDescriptor = array->desc;
  return CUDA_SUCCESS;
}

CUresult vgs_cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *pArrayDescriptor, CUarray hArray) {
  CUDA_ARRAY3D_DESCRIPTOR desc;
  CUresult result = vgs_cuArray3DGetDescriptor_v2(pArrayDescriptor ? &desc : NULL, hArray);
  if (!result)
    *pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR){
        .Width = desc.Width, .Height = desc.Height, .Format = desc.Format, .NumChannels = desc.NumChannels};
  return result;
}

/* --- mipmapped arrays --- */

static size_t halved(size_t extent, uint32_t level) { return extent && !(extent >> level) ? 1 : extent >> level; }

uint32_t vgs_array_levels(const struct vgs_mipmap *mipmap) {
  const CUDA_ARRAY3D_DESCRIPTOR *d = &mipmap->desc;
  size_t largest = d->Width > d->Height ? d->Width : d->Height;
  uint32_t levels = 0;
  if (!(d->Flags & CUDA_ARRAY3D_LAYERED) && d->Depth > largest)
    largest = d->Depth;
  while (levels < mipmap->level_count && levels < 64 && largest >> levels) /* the driver makes no more than this */
    levels++;
  return levels;
}

CUDA_ARRAY3D_DESCRIPTOR vgs_array_level(const CUDA_ARRAY3D_DESCRIPTOR *desc, uint32_t level) {
  CUDA_ARRAY3D_DESCRIPTOR d = *desc;
  d.Width = halved(d.Width, level);
  d.Height = halved(d.Height, level);
  if (!(d.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
    d.Depth = halved(d.Depth, level);
  return d;
}
