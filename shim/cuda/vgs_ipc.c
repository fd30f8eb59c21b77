#include "vgs_ipc.h"
#include "vgs_api.h"
#include "vgs_capture.h"
#include "vgs_claiming.h"
#include "vgs_device.h"
#include "vgs_enter.h"
#include "vgs_log.h"
#include "vgs_objects.h"
#include "vgs_stream.h"
#include "vgw_enums.h"

/* --- memory --- */

/* Memory of cuMemAlloc alone: memory of a pool or mapped by cuMemMap is shared in other ways. */
static bool is_exportable(const struct vgs_range *range) {
  return range->kind == VGS_RANGE_DEVICE && !range->allocation && !range->is_apart;
}

/* vgpud sets the attribute if this client has others to share with. */
bool vgs_ipc_is_capable(const struct vgs_range *range) {
  const struct vgs_device *device = vgs_device(range->device);
  return is_exportable(range) && device && device->attributes[CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED] == 1;
}

CUresult vgs_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr) {
  struct vgs_range range;
  if (!pHandle || !vgs_range_find(dptr, &range))
    return CUDA_ERROR_INVALID_VALUE;
  if (range.is_apart) {
    vgs_log(VGS_LOG_REASON,
            "cuIpcGetMemHandle: CUDA_ERROR_NOT_SUPPORTED: memory at %#llx lies at an address of vgpu's choice, because "
            "this process uses those of the host's driver itself; such memory has no handle",
            (unsigned long long)range.base);
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (!is_exportable(&range))
    return CUDA_ERROR_INVALID_VALUE;
  return vgs_send_cuIpcGetMemHandle(pHandle, range.base);
}

CUresult vgs_cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags) {
  CUdeviceptr base = 0;
  size_t nbytes = 0;
  bool again;
  if (!pdptr || Flags & ~(unsigned)CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
    return CUDA_ERROR_INVALID_VALUE;
  struct vgs_claiming claiming = {.is_imported = true, .is_single = true};
  CUresult result;
  do {
    result = vgs_send_cuIpcOpenMemHandle_v2(&base, &nbytes, &handle, Flags);
    again = vgs_claim_made(&claiming, &result, base, nbytes);
    for (CUdeviceptr taken; vgs_claim_rejected(&claiming, &taken);)
      vgs_send_cuIpcCloseMemHandle(taken);
  } while (again);
  if (result)
    return result;
  struct vgs_range range = {.base = base, .nbytes = nbytes, .kind = VGS_RANGE_IMPORTED};
  if (vgs_range_add(&range)) { /* every call would refuse an unknown address */
    vgs_send_cuIpcCloseMemHandle(base);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *pdptr = base;
  return CUDA_SUCCESS;
}

bool vgs_ipc_is_opened(CUdeviceptr dptr) {
  struct vgs_range range;
  return vgs_range_find(dptr, &range) && range.base == dptr && range.kind == VGS_RANGE_IMPORTED;
}

/* --- events --- */

static struct vgs_ipc_event *find(CUevent event) { return vgs_object_find(VGW_KIND_IPC_EVENT, event); }

CUresult vgs_ipc_event_create(CUevent *event, unsigned int flags) {
  if (!(flags & CU_EVENT_DISABLE_TIMING)) /* as the driver's manual demands */
    return CUDA_ERROR_INVALID_VALUE;
  struct vgs_ipc_event *made = vgs_object_create(VGW_KIND_IPC_EVENT, vgs_context_entered->wire_id);
  if (!made)
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = vgs_send_vgpuIpcEventCreate(made->object.id);
  if (result)
    vgs_object_destroy(made);
  else
    *event = vgs_object_handle(made);
  return result;
}

CUresult vgs_ipc_event_destroy(CUevent event) {
  struct vgs_ipc_event *found = find(event);
  if (!found)
    return CUDA_ERROR_INVALID_HANDLE;
  uint32_t id = found->object.id;
  vgs_object_destroy(found);
  return vgs_send_vgpuIpcEventDestroy(id);
}

/* A captured event would be recorded at each replay under one sequence number, so capturing is refused. */
static CUresult stream_id(CUstream stream, uint32_t *id) {
  struct vgs_stream *found;
  CUresult result = vgs_stream_id(stream, id, &found);
  return !result && found && vgs_capture_status(found->capture) ? vgs_capture_forbid(found->capture) : result;
}

CUresult vgs_ipc_event_record(CUevent event, CUstream stream, unsigned int flags) {
  struct vgs_ipc_event *found = find(event);
  uint32_t id;
  if (!found)
    return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = flags > 1 ? CUDA_ERROR_INVALID_VALUE : stream_id(stream, &id);
  return result ? result : vgs_send_vgpuIpcEventRecord(found->object.id, id);
}

CUresult vgs_ipc_event_wait(CUstream stream, CUevent event, unsigned int flags) {
  struct vgs_ipc_event *found = find(event);
  uint32_t id;
  if (!found)
    return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = flags > 1 ? CUDA_ERROR_INVALID_VALUE : stream_id(stream, &id);
  return result ? result : vgs_send_vgpuIpcEventWait(found->object.id, id);
}

CUresult vgs_ipc_event_query(CUevent event) {
  struct vgs_ipc_event *found = find(event);
  return found ? vgs_send_vgpuIpcEventQuery(found->object.id) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult vgs_ipc_event_synchronize(CUevent event) {
  struct vgs_ipc_event *found = find(event);
  return found ? vgs_send_vgpuIpcEventSynchronize(found->object.id) : CUDA_ERROR_INVALID_HANDLE;
}
