/* Registered memory: the program's own. It stays where it is, and copies from it travel like any others; only the
 * bookkeeping differs. With CU_MEMHOSTREGISTER_DEVICEMAP it also gets a device address, where the channel passes
 * descriptors: the worker maps the file that the pages are mapped from, at an address of the window, so that the device
 * and every process with that file see the same memory. Private pages are first moved into a file (vgs_pages_move.c).
 * Of a stack, which a forked child must not share, and on other channels kernels reach a copy (vgs_host_mirror.h). */
#include "vgs_api.h"
#include "vgs_context.h"
#include "vgs_device.h"
#include "vgs_host_end.h"
#include "vgs_host_map.h"
#include "vgs_host_mirror.h"
#include "vgs_log.h"
#include "vgs_mirror.h"
#include "vgs_pages.h"
#include "vgs_pages_move.h"
#include "vgs_range.h"
#include "vgs_session.h"
#include "vgs_stream.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { MAPPED = 2, IO_MEMORY = 4, FLAGS = 15 };
enum { READ_ONLY_HOST_REGISTER_SUPPORTED = 113 }; /* CUdevice_attribute */

static uint64_t page_floor(uint64_t address) { return address & ~(uint64_t)(VGS_PAGE_NBYTES - 1); }
static uint64_t page_ceiling(uint64_t address) { return page_floor(address + VGS_PAGE_NBYTES - 1); }

static CUresult refuse(const char *why) {
  vgs_log(VGS_LOG_ERROR, "cuMemHostRegister: CUDA_ERROR_NOT_SUPPORTED: %s", why);
  return CUDA_ERROR_NOT_SUPPORTED;
}

/* Open the file of the pages; private pages are moved into one. Negative: *result says why not; -EDEADLK: they are the
 * calling thread's stack. */
static int open_file(const struct vgs_pages *pages, uint64_t begin, uint64_t end, CUresult *result) {
  int fd = -1;
  if (pages->kind == VGS_PAGES_FILE) {
    fd = vgs_pages_open(pages);
    if (fd < 0)
      *result = refuse("the memory is shared with other processes, and this one cannot open its file again");
  } else if (pages->kind == VGS_PAGES_PRIVATE && pages->writable) {
    fd = vgs_pages_move(begin, end);
    if (fd == -EBUSY)
      *result = refuse("other threads may write to the memory, and userfaultfd, which would hold them back while it is "
                       "moved, is not to be had");
    else if (fd < 0 && fd != -EDEADLK)
      *result = CUDA_ERROR_OUT_OF_MEMORY;
  } else if (pages->kind == VGS_PAGES_STACK)
    fd = -EDEADLK;
  else
    *result = refuse("only private anonymous memory and shared files can be mapped for the device");
  return fd;
}

static CUresult map_for_device(struct vgs_range *range, uint64_t begin, uint64_t end, const struct vgs_pages *pages) {
  CUresult result = CUDA_SUCCESS;
  uint64_t address = begin;
  if (!vgs_session_has_pinned_fd())
    return vgs_host_mirror_add(range);
  int fd = open_file(pages, begin, end, &result);
  if (fd < 0)
    return fd == -EDEADLK ? vgs_host_mirror_add(range) : result;
  result = vgs_host_map_file(end - begin, fd, pages->kind == VGS_PAGES_FILE ? pages->offset : 0,
                             range->flags & CU_MEMHOSTREGISTER_READ_ONLY, &address);
  close(fd);
  if (result == CUDA_ERROR_NOT_SUPPORTED)
    refuse("of files, only those in memory (/dev/shm, memfd) can be mapped for the device");
  if (!result)
    range->device_address = address + (range->base - begin);
  else if (pages->kind == VGS_PAGES_PRIVATE)
    vgs_pages_move_back(begin, end);
  return result;
}

CUresult vgs_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags) {
  uint64_t begin = page_floor((uintptr_t)p), end;
  struct vgs_pages pages;
  if (!p || !bytesize || Flags & ~(unsigned)FLAGS || __builtin_add_overflow((uintptr_t)p, bytesize, &end) ||
      end > UINT64_MAX - VGS_PAGE_NBYTES)
    return CUDA_ERROR_INVALID_VALUE;
  end = page_ceiling(end);
  vgs_pages_look(begin, end, &pages);
  if (pages.kind == VGS_PAGES_NONE)
    return CUDA_ERROR_INVALID_VALUE;
  if (Flags & IO_MEMORY)
    return refuse("memory of devices is not offered");
  if (Flags & CU_MEMHOSTREGISTER_READ_ONLY &&
      vgs_device(vgs_context_entered->device)->attributes[READ_ONLY_HOST_REGISTER_SUPPORTED] != 1)
    return refuse("read-only registration is not offered: CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED is 0");
  if (!pages.writable && !(Flags & CU_MEMHOSTREGISTER_READ_ONLY))
    return CUDA_ERROR_INVALID_VALUE;
  struct vgs_range range = {.base = (uintptr_t)p, .nbytes = bytesize, .kind = VGS_RANGE_REGISTERED, .flags = Flags};
  CUresult result = vgs_range_add(&range);
  if (result || !(Flags & MAPPED))
    return result;
  result = map_for_device(&range, begin, end, &pages);
  if (result)
    vgs_range_remove(range.base, true, &range);
  else
    vgs_range_set_device_address(&range);
  return result;
}

CUresult vgs_cuMemHostUnregister(void *p) {
  struct vgs_range range;
  if (!vgs_range_find((uintptr_t)p, &range) || range.kind != VGS_RANGE_REGISTERED ||
      !vgs_range_remove((uintptr_t)p, true, &range))
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  CUresult result = vgs_mirror_wait_context(); /* the program may unmap the memory as soon as this returns */
  if (vgs_host_mirror_remove(range.base, &result) || !range.device_address)
    return result;
  result = vgs_send_vgpuHostUnmap(page_floor(range.device_address)); /* this call waits, too */
  vgs_host_end_moved(page_floor(range.base), page_ceiling(range.base + range.nbytes));
  return result;
}
