/* Addresses that both processes map: a window of this process's address space, memfds where the channel passes
 * descriptors, else pieces of the region that the host shares with this machine. */
#define _GNU_SOURCE
#include "vgs_host_map.h"
#include "vgs_api.h"
#include "vgs_log.h"
#include "vgs_memfd.h"
#include "vgs_region.h"
#include "vgs_session.h"
#include "vgw_pinned.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t window_next = VGW_PINNED_BEGIN; /* atomic */

/* Reserve an address in the window. Addresses are not reused: 8 TiB of them last. */
static uint64_t take_address(uint64_t nbytes) {
  uint64_t aligned = (nbytes + (2 << 20) - 1) & ~((2ull << 20) - 1);
  uint64_t address = __atomic_fetch_add(&window_next, aligned, __ATOMIC_RELAXED);
  return address > VGW_PINNED_BEGIN + VGW_PINNED_NBYTES - aligned ? 0 : address;
}

/* Another mapping of this process or of the worker occupies the next address of the window: skip far beyond it. */
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
    result = CUDA_ERROR_INVALID_VALUE; /* as the worker answers if the address is occupied */
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

CUresult vgs_host_map_file(uint64_t nbytes, int fd, uint64_t offset, bool read_only, uint64_t *address) {
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (*address - VGW_PINNED_BEGIN < VGW_PINNED_NBYTES)
    result = vgs_send_vgpuHostMapFile(*address, nbytes, offset, read_only, fd);
  for (int i = 0; i < SKIPS_MAX && result == CUDA_ERROR_INVALID_VALUE; i++) {
    if (i)
      skip_addresses();
    *address = take_address(nbytes);
    result = *address ? vgs_send_vgpuHostMapFile(*address, nbytes, offset, read_only, fd) : CUDA_ERROR_OUT_OF_MEMORY;
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
