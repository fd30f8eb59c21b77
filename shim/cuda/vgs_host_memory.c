/* Pinned host memory. Both processes map it at one address, so that kernels and copies reach it in place: a memfd where
 * the channel passes descriptors, a piece of the region where the host shares one with this machine. Elsewhere it is
 * ordinary memory and copies travel. */
#define _GNU_SOURCE
#include "vgs_host_memory.h"
#include "vgs_api.h"
#include "vgs_context.h"
#include "vgs_log.h"
#include "vgs_memfd.h"
#include "vgs_range.h"
#include "vgs_region.h"
#include "vgs_session.h"
#include "vgs_wait.h"
#include "vgw_pinned.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HOST_ALLOC_FLAGS = 7, PAGE_NBYTES = 4096 };

static uint64_t window_next = VGW_PINNED_BEGIN; /* atomic */

/* Reserve an address in the window. Addresses are not reused: 8 TiB of them last. */
static uint64_t take_address(uint64_t nbytes) {
  uint64_t aligned = (nbytes + (2 << 20) - 1) & ~((2ull << 20) - 1);
  uint64_t address = __atomic_fetch_add(&window_next, aligned, __ATOMIC_RELAXED);
  return address > VGW_PINNED_BEGIN + VGW_PINNED_NBYTES - aligned ? 0 : address;
}

/* Something else of this process, or of the worker's, is in the window's way: go far beyond it. */
enum { SKIPS_MAX = 4 };
static void skip_addresses(void) { __atomic_fetch_add(&window_next, 4ull << 30, __ATOMIC_RELAXED); }

/* Map a piece of the region here and in the worker. The caller falls back, as for map_memfd. */
static CUresult map_in_region(uint64_t nbytes, void **memory) {
  uint64_t address = take_address(nbytes), offset;
  int error = address ? vgs_region_map_pinned(address, nbytes, &offset) : -ENOMEM;
  if (error) {
    vgs_log(VGS_LOG_INFO, "%llu bytes of pinned memory are not shared with the host: %s", (unsigned long long)nbytes,
            error == -ENOSPC ? "this session's range is full" : strerror(-error));
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUresult result = vgs_send_vgpuHostMapAt(address, nbytes, offset);
  if (result) {
    munmap((void *)(uintptr_t)address, nbytes);
    vgs_region_free_pinned(address);
    return result;
  }
  *memory = (void *)(uintptr_t)address;
  return CUDA_SUCCESS;
}

/* Map shared memory here and in the worker. 0, or what went wrong; the caller falls back to memory of its own. */
static CUresult map_memfd(uint64_t nbytes, void **memory) {
  uint64_t address = take_address(nbytes);
  int fd = address ? vgs_memfd_create("vgpu-pinned", nbytes) : -1;
  if (fd < 0)
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  void *mapped =
      mmap((void *)(uintptr_t)address, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
  if (mapped == MAP_FAILED && errno == EEXIST)
    result = CUDA_ERROR_INVALID_VALUE; /* as the worker answers */
  if (mapped != MAP_FAILED && (uintptr_t)mapped == address)
    result = vgs_send_vgpuHostMap(address, nbytes, fd);
  if (result && mapped != MAP_FAILED)
    munmap(mapped, nbytes);
  close(fd);
  if (!result)
    *memory = mapped;
  return result;
}

CUresult vgs_host_map(uint64_t nbytes, void **memory) {
  bool passed = vgs_session_has_pinned_fd();
  if (!passed && !vgs_region_mapped())
    return CUDA_ERROR_NOT_SUPPORTED;
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  for (int i = 0; i < SKIPS_MAX && result == CUDA_ERROR_INVALID_VALUE; i++) {
    if (i)
      skip_addresses();
    result = passed ? map_memfd(nbytes, memory) : map_in_region(nbytes, memory);
  }
  return result;
}

CUresult vgs_host_map_file(uint64_t nbytes, int fd, uint64_t *address) {
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  for (int i = 0; i < SKIPS_MAX && result == CUDA_ERROR_INVALID_VALUE; i++) {
    if (i)
      skip_addresses();
    *address = take_address(nbytes);
    result = *address ? vgs_send_vgpuHostMap(*address, nbytes, fd) : CUDA_ERROR_OUT_OF_MEMORY;
  }
  return result;
}

CUresult vgs_host_reserve(uint64_t nbytes, uint64_t *address) {
  CUresult result = nbytes <= VGW_PINNED_NBYTES ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
  for (int i = 0; i < SKIPS_MAX && result == CUDA_ERROR_INVALID_VALUE; i++) {
    if (i)
      skip_addresses();
    *address = take_address(nbytes);
    result = *address ? vgs_send_vgpuHostReserve(*address, nbytes) : CUDA_ERROR_OUT_OF_MEMORY;
  }
  return result;
}

/* Kernels do not reach this process's memory. */
static CUresult refuse_mapped(void) {
  static bool named;
  if (!__atomic_exchange_n(&named, true, __ATOMIC_RELAXED))
    vgs_log(VGS_LOG_REASON, "host memory on this channel has no device address: CUDA_ERROR_NOT_SUPPORTED");
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
  if (Flags & CU_MEMHOSTALLOC_DEVICEMAP && !vgs_session_shares_memory())
    return refuse_mapped();
  uint64_t nbytes = ((uint64_t)bytesize + PAGE_NBYTES - 1) & ~(uint64_t)(PAGE_NBYTES - 1);
  void *memory = NULL;
  bool shared = !vgs_host_map(nbytes, &memory);
  if (!shared) {
    if (vgs_session_error())
      return vgs_session_error();
    memory = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
  struct vgs_range range = {
      .base = (uintptr_t)memory, .nbytes = nbytes, .kind = VGS_RANGE_PINNED, .shared = shared, .flags = Flags};
  CUresult result = vgs_range_add(&range);
  if (result) {
    vgs_range_unmap(&range);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *pp = memory;
  return CUDA_SUCCESS;
}

CUresult vgs_cuMemAllocHost_v2(void **pp, size_t bytesize) { return vgs_cuMemHostAlloc(pp, bytesize, 0); }

CUresult vgs_cuMemFreeHost(void *p) {
  struct vgs_range range;
  if (!p)
    return CUDA_SUCCESS;
  if (!vgs_range_find((uintptr_t)p, &range) || range.kind != VGS_RANGE_PINNED ||
      !vgs_range_remove((uintptr_t)p, true, &range))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = range.shared ? vgs_send_vgpuHostUnmap(range.base) : vgs_wait_context();
  vgs_range_unmap(&range);
  return result;
}

CUresult vgs_cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags) {
  struct vgs_range range;
  if (!pdptr || Flags || !vgs_range_find((uintptr_t)p, &range) || !vgs_range_is_host(&range))
    return CUDA_ERROR_INVALID_VALUE;
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
