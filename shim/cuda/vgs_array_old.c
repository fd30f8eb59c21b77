/* Arrays as CUDA 3.1 describes them. */
#include "vgs_api.h"

CUresult vgs_cuArrayCreate(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR_v1 *p) {
  return p ? vgs_cuArrayCreate_v2(pHandle, &(CUDA_ARRAY_DESCRIPTOR){.Width = p->Width,
                                                                    .Height = p->Height,
                                                                    .Format = p->Format,
                                                                    .NumChannels = p->NumChannels})
           : CUDA_ERROR_INVALID_VALUE;
}

CUresult vgs_cuArray3DCreate(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *p) {
  return p ? vgs_cuArray3DCreate_v2(pHandle, &(CUDA_ARRAY3D_DESCRIPTOR){.Width = p->Width,
                                                                        .Height = p->Height,
                                                                        .Depth = p->Depth,
                                                                        .Format = p->Format,
                                                                        .NumChannels = p->NumChannels,
                                                                        .Flags = p->Flags})
           : CUDA_ERROR_INVALID_VALUE;
}

CUresult vgs_cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1 *pArrayDescriptor, CUarray hArray) {
  CUDA_ARRAY3D_DESCRIPTOR wide;
  CUresult result = pArrayDescriptor ? vgs_cuArray3DGetDescriptor_v2(&wide, hArray) : CUDA_ERROR_INVALID_VALUE;
  if (!result) /* no device has an array of 4 Gi elements along a side */
    *pArrayDescriptor = (CUDA_ARRAY3D_DESCRIPTOR_v1){(uint32_t)wide.Width, (uint32_t)wide.Height, (uint32_t)wide.Depth,
                                                     wide.Format,          wide.NumChannels,      wide.Flags};
  return result;
}

CUresult vgs_cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1 *pArrayDescriptor, CUarray hArray) {
  CUDA_ARRAY_DESCRIPTOR wide;
  CUresult result = pArrayDescriptor ? vgs_cuArrayGetDescriptor_v2(&wide, hArray) : CUDA_ERROR_INVALID_VALUE;
  if (!result)
    *pArrayDescriptor =
        (CUDA_ARRAY_DESCRIPTOR_v1){(uint32_t)wide.Width, (uint32_t)wide.Height, wide.Format, wide.NumChannels};
  return result;
}
