/* Pools as descriptors, like physical memory (vgs_share.c). */
#include "vgs_pool_share.h"
#include "vgs_api.h"
#include "vgs_device.h"
#include "vgs_objects.h"
#include "vgs_share.h"
#include "vgw_enums.h"
#include <string.h>

static const char POOL[16] = "vgpu pool";

/* vgpud sets the attribute if this client has others to share with. */
bool vgs_pool_types_are_offered(const CUmemPoolProps *props) {
  const struct vgs_device *device = vgs_device(props->location.id);
  int offered = device ? device->attributes[CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES] : 0;
  return !(props->handleTypes & ~(offered & VGS_SHARE_DESCRIPTOR));
}

CUresult vgs_cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool, int handleType,
                                              unsigned long long flags) {
  const struct vgs_pool *found = vgs_object_find(VGW_KIND_MEMPOOL, pool);
  CUmemPoolPtrExportData token;
  if (!handle_out || !found || found->imported || flags)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgs_share_check_type(handleType);
  if (!result)
    result = vgs_send_cuMemPoolExportToShareableHandle(&token, found->object.id);
  return result ? result : vgs_share_write(POOL, &token, handle_out);
}

CUresult vgs_cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle, int handleType,
                                                unsigned long long flags) {
  CUmemPoolPtrExportData token;
  if (!pool_out || flags)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgs_share_check_type(handleType);
  if (result)
    return result;
  if (!vgs_share_read((int)(intptr_t)handle, POOL, &token))
    return CUDA_ERROR_INVALID_VALUE;
  struct vgs_pool *made = vgs_object_create(VGW_KIND_MEMPOOL, 0);
  if (!made)
    return CUDA_ERROR_OUT_OF_MEMORY;
  made->imported = true;
  result = vgs_send_cuMemPoolImportFromShareableHandle(made->object.id, &token);
  if (result)
    vgs_object_destroy(made);
  else
    *pool_out = vgs_object_handle(made);
  return result;
}
