#include "vgs_array.h"
#include "vgs_api.h"
#include "vgs_device.h"
#include "vgs_stream.h"
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

/* --- memory that is mapped later --- */

/* A worker's device mask counts the host's devices. */
static CUresult devices_of(uint32_t mask, uint32_t *wire) {
  *wire = 0;
  for (CUdevice i = 0; i < 32; i++)
    if (mask >> i & 1) {
      if (!vgs_device(i))
        return CUDA_ERROR_INVALID_VALUE;
      *wire |= 1u << vgs_device_wire(i);
    }
  return CUDA_SUCCESS;
}

static CUresult translate_map(CUarrayMapInfo *info) {
  bool whole = info->resourceType == CU_RESOURCE_TYPE_ARRAY;
  if (!whole && info->resourceType != CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
    return CUDA_ERROR_INVALID_VALUE;
  const struct vgs_object *resource = vgs_object_find(whole ? VGW_KIND_ARRAY : VGW_KIND_MIPMAP,
                                                      whole ? (void *)info->resource.array : info->resource.mipmap);
  const struct vgs_object *memory =
      info->memHandle ? vgs_object_find(VGW_KIND_ALLOCATION, (void *)(uintptr_t)info->memHandle) : NULL;
  if (!resource || (info->memHandle && !memory))
    return CUDA_ERROR_INVALID_VALUE;
  info->resource.array = (CUarray)(uintptr_t)resource->id;
  info->memHandle = memory ? memory->id : 0;
  return devices_of(info->deviceBitMask, &info->deviceBitMask);
}

CUresult vgs_cuMemMapArrayAsync(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream) {
  enum { PIECE = 16 };
  CUarrayMapInfo piece[PIECE];
  uint32_t stream;
  struct vgs_stream *on;
  CUresult result = mapInfoList && count ? vgs_stream_id(hStream, &stream, &on) : CUDA_ERROR_INVALID_VALUE;
  for (unsigned done = 0, filled; done < count && !result; done += filled) {
    int32_t type = mapInfoList[done].resourceType;
    for (filled = 0; filled < PIECE && done + filled < count && mapInfoList[done + filled].resourceType == type;
         filled++) {
      piece[filled] = mapInfoList[done + filled];
      if ((result = translate_map(&piece[filled])))
        return result;
    }
    result = type == CU_RESOURCE_TYPE_ARRAY ? vgs_send_vgpuMapArrays(piece, filled, stream)
                                            : vgs_send_vgpuMapMipmaps(piece, filled, stream);
  }
  return result;
}
