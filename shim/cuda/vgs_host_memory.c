/* Pinned host memory. Both processes map it at one address, so that kernels and copies reach it in place: a memfd where
 * the channel passes descriptors, a piece of the region where the host shares one with this machine. Elsewhere it is
 * ordinary memory and copies travel; kernels reach a copy in the worker (vgs_host_mirror.h), at the same address. */
#define _GNU_SOURCE
#include "vgs_api.h"
#include "vgs_host_map.h"
#include "vgs_host_mirror.h"
#include "vgs_log.h"
#include "vgs_range.h"
#include "vgs_session.h"
#include "vgs_stream.h"
#include "vgw_pinned.h"
#include <sys/mman.h>

enum { HOST_ALLOC_FLAGS = 7, PAGE_NBYTES = 4096 };

static CUresult refuse_mapped(void) {
  static bool named;
  if (!__atomic_exchange_n(&named, true, __ATOMIC_RELAXED))
    vgs_log(VGS_LOG_REASON, "registered without CU_MEMHOSTREGISTER_DEVICEMAP, host memory has no device address: "
                            "CUDA_ERROR_NOT_SUPPORTED");
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult vgs_cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags) {
  if (!pp || Flags & ~(unsigned)HOST_ALLOC_FLAGS)
    return CUDA_ERROR_INVALID_VALUE;
  if (!bytesize) { /* oracle: success; the address is one that nothing can be read from */
    *pp = NULL;
    return CUDA_SUCCESS;
  }
  if (bytesize > VGW_PINNED_NBYTES)
    return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t nbytes = ((uint64_t)bytesize + PAGE_NBYTES - 1) & ~(uint64_t)(PAGE_NBYTES - 1);
  void *memory = NULL;
  bool shared = !vgs_host_map(nbytes, &memory), reachable = shared;
  if (!shared && vgs_session_error())
    return vgs_session_error();
  if (!shared && !(reachable = vgs_host_mirror_map(nbytes, &memory))) {
    memory = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
  struct vgs_range range = {.base = (uintptr_t)memory,
                            .nbytes = nbytes,
                            .kind = VGS_RANGE_PINNED,
                            .shared = shared,
                            .flags = Flags,
                            .device_address = reachable ? (uintptr_t)memory : 0};
  CUresult result = vgs_range_add(&range) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  if (!result && !shared && Flags & CU_MEMHOSTALLOC_DEVICEMAP && (result = vgs_host_mirror_add(&range)))
    vgs_range_remove(range.base, true, &range);
  if (result)
    vgs_range_unmap(&range);
  else
    *pp = memory;
  return result;
}

CUresult vgs_cuMemAllocHost_v2(void **pp, size_t bytesize) { return vgs_cuMemHostAlloc(pp, bytesize, 0); }

CUresult vgs_cuMemFreeHost(void *p) {
  struct vgs_range range;
  if (!p)
    return CUDA_SUCCESS;
  if (!vgs_range_find((uintptr_t)p, &range) || range.kind != VGS_RANGE_PINNED ||
      !vgs_range_remove((uintptr_t)p, true, &range))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result;
  if (!vgs_host_mirror_remove(range.base, &result))
    result = range.shared ? vgs_send_vgpuHostUnmap(range.base) : vgs_wait_context();
  vgs_range_unmap(&range);
  return result;
}

CUresult vgs_cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags) {
  struct vgs_range range;
  if (!pdptr || Flags || !vgs_range_find((uintptr_t)p, &range) || !vgs_range_is_host(&range))
    return CUDA_ERROR_INVALID_VALUE;
  /* Where no memory is shared, what is registered for copies alone gets its device address now. */
  bool copied = range.kind == VGS_RANGE_PINNED ? range.device_address && !range.shared : !vgs_session_shares_memory();
  CUresult result = copied && range.kind != VGS_RANGE_MANAGED ? vgs_host_mirror_add(&range) : CUDA_SUCCESS;
  if (result)
    return result;
  if (range.kind == VGS_RANGE_REGISTERED && range.device_address)
    vgs_range_set_device_address(&range);
  if (!vgs_range_device_address(&range, (uintptr_t)p))
    return refuse_mapped();
  *pdptr = vgs_range_device_address(&range, (uintptr_t)p);
  return CUDA_SUCCESS;
}

CUresult vgs_cuMemHostGetFlags(unsigned int *pFlags, void *p) {
  struct vgs_range range;
  if (!pFlags || !vgs_range_find((uintptr_t)p, &range) || !vgs_range_is_host(&range))
    return CUDA_ERROR_INVALID_VALUE;
  *pFlags = range.flags | (range.shared || range.device_address ? CU_MEMHOSTALLOC_DEVICEMAP : 0);
  return CUDA_SUCCESS;
}
