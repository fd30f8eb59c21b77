#include "vgx_device.h"

#include "vgw_ledger.h"
#include "vgx_meter.h"
#include "vgx_reason.h"
#include "vgx_session.h"

CUresult vgx_device_enter(struct vgx_session *s, int32_t device) {
  const struct vgw_ledger *ledger = s->options->ledger;
  if (device < 0 || device >= VGX_DEVICES_MAX)
    return CUDA_ERROR_INVALID_DEVICE;
  uint32_t number = s->options->host_devices ? s->options->host_devices[device] : (uint32_t)device;
  /* Recorded before the check, because vgpud withdraws a device first and then reads who uses it. */
  atomic_fetch_or(&vgx_meter->devices, 1ull << number);
  if (!ledger || !(__atomic_load_n(&ledger->absent, __ATOMIC_SEQ_CST) >> number & 1))
    return CUDA_SUCCESS;
  vgx_reason(s, CUDA_ERROR_DEVICE_UNAVAILABLE, "device %d is out of service on its host", device);
  return CUDA_ERROR_DEVICE_UNAVAILABLE;
}
