/* Registered memory: the program's own. It stays where it is, and copies from it travel like any others; only the
 * bookkeeping differs. Who asks for it to be mapped gets a device address, if the memory is private and anonymous and
 * the channel passes descriptors: its pages move into a file that the worker maps, too, at an address of the window.
 * They do so piece by piece, each in one step; a thread that writes to them meanwhile may lose what it writes. */
#define _GNU_SOURCE
#include "vgs_api.h"
#include "vgs_host_map.h"
#include "vgs_log.h"
#include "vgs_range.h"
#include "vgs_session.h"
#include "vgs_wait.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MAPPED = 2, IO_MEMORY = 4, READ_ONLY = 8, FLAGS = 15 };
enum { PAGE_NBYTES = 4096, PIECE_NBYTES = 64 << 10 };

#define FILE_NAME "vgpu-registered"

enum memory {
  MEMORY_NONE,     /* not all of it is mapped */
  MEMORY_CONSTANT, /* some of it cannot be written */
  MEMORY_PRIVATE,  /* anonymous, this process's alone */
  MEMORY_MOVED,    /* a file of ours */
  MEMORY_OTHER,    /* files, memory shared with other processes, stacks */
};

/* What whole pages are, as the kernel lists them. */
static enum memory look(uint64_t begin, uint64_t end) {
  FILE *maps = fopen("/proc/self/maps", "re");
  char *line = NULL;
  size_t room = 0;
  enum memory memory = MEMORY_NONE;
  uint64_t at = begin;
  while (maps && at < end && getline(&line, &room, maps) > 0) {
    unsigned long long low, high, inode;
    char access[8], name[32] = "";
    if (sscanf(line, "%llx-%llx %7s %*s %*s %llu %31s", &low, &high, access, &inode, name) < 4 || high <= at)
      continue;
    if (low > at)
      break;
    enum memory here = access[0] != 'r' || access[1] != 'w'                       ? MEMORY_CONSTANT
                       : access[3] == 'p' && !inode && strncmp(name, "[stack", 6) ? MEMORY_PRIVATE
                       : access[3] == 's' && !strcmp(name, "/memfd:" FILE_NAME)   ? MEMORY_MOVED
                                                                                  : MEMORY_OTHER;
    if (memory == MEMORY_NONE || here == MEMORY_CONSTANT)
      memory = here;
    else if (memory != here && memory != MEMORY_CONSTANT)
      memory = MEMORY_OTHER;
    at = high;
  }
  free(line);
  if (maps)
    fclose(maps);
  return at < end ? MEMORY_NONE : memory;
}

static bool move_piece(int fd, uint64_t base, uint64_t at, uint64_t nbytes) {
  off_t offset = (off_t)(at - base);
  return pwrite(fd, (const void *)(uintptr_t)at, nbytes, offset) == (ssize_t)nbytes &&
         mmap((void *)(uintptr_t)at, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, offset) != MAP_FAILED;
}

/* Move whole pages into a file, the outer ones singly: other data may lie there. What was moved when it fails stays
 * moved: it holds the same bytes. -1: it failed. */
static int move(uint64_t begin, uint64_t end) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur < end - begin)
    return -1;
  int fd = memfd_create(FILE_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  bool moved = fd >= 0 && !ftruncate(fd, (off_t)(end - begin)) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  for (uint64_t at = begin; moved && at < end;) {
    uint64_t left = end - at, piece = left < PIECE_NBYTES ? left : PIECE_NBYTES;
    if (at == begin || left <= PAGE_NBYTES)
      piece = PAGE_NBYTES;
    else if (piece == left)
      piece -= PAGE_NBYTES;
    moved = move_piece(fd, begin, at, piece);
    at += piece;
  }
  if (moved || fd < 0)
    return fd;
  close(fd);
  return -1;
}

/* Make the memory private again, so that it can be registered anew, and a child has its own copy. */
static void move_back(uint64_t begin, uint64_t end) {
  if (look(begin, end) != MEMORY_MOVED) /* the program has unmapped it */
    return;
  for (uint64_t at = begin; at < end; at += PIECE_NBYTES) {
    uint64_t nbytes = end - at < PIECE_NBYTES ? end - at : PIECE_NBYTES;
    void *copy = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
      return; /* shared memory does */
    memcpy(copy, (const void *)(uintptr_t)at, nbytes);
    if (mremap(copy, nbytes, nbytes, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)(uintptr_t)at) == MAP_FAILED)
      munmap(copy, nbytes);
  }
}

static CUresult refuse(const char *why) {
  vgs_log(VGS_LOG_ERROR, "cuMemHostRegister: CUDA_ERROR_NOT_SUPPORTED: %s", why);
  return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult map_for_device(struct vgs_range *range, uint64_t begin, uint64_t end, enum memory memory) {
  if (!vgs_session_has_pinned_fd())
    return refuse("memory of the program's own cannot be mapped for the device on this channel");
  if (memory != MEMORY_PRIVATE)
    return refuse("only private anonymous memory can be mapped for the device");
  int fd = move(begin, end);
  if (fd < 0)
    return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t address;
  CUresult result = vgs_host_map_file(end - begin, fd, &address);
  close(fd);
  if (!result)
    range->device_address = address + (range->base - begin);
  return result;
}

CUresult vgs_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags) {
  uint64_t begin = (uintptr_t)p & ~(uint64_t)(PAGE_NBYTES - 1), end;
  if (!p || !bytesize || Flags & ~(unsigned)FLAGS || __builtin_add_overflow((uintptr_t)p, bytesize, &end) ||
      end > UINT64_MAX - PAGE_NBYTES)
    return CUDA_ERROR_INVALID_VALUE;
  end = (end + PAGE_NBYTES - 1) & ~(uint64_t)(PAGE_NBYTES - 1);
  enum memory memory = look(begin, end);
  if (memory == MEMORY_NONE)
    return CUDA_ERROR_INVALID_VALUE;
  if (Flags & (IO_MEMORY | READ_ONLY)) /* CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED is 0 */
    return refuse("memory of devices and read-only registration are not offered");
  if (memory == MEMORY_CONSTANT)
    return CUDA_ERROR_INVALID_VALUE;
  struct vgs_range range = {.base = (uintptr_t)p, .nbytes = bytesize, .kind = VGS_RANGE_REGISTERED, .flags = Flags};
  CUresult result = vgs_range_add(&range);
  if (result || !(Flags & MAPPED))
    return result;
  result = map_for_device(&range, begin, end, memory);
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
  if (!range.device_address)
    return vgs_wait_context(); /* the program may unmap the memory as soon as this returns */
  CUresult result = vgs_send_vgpuHostUnmap(range.device_address & ~(uint64_t)(PAGE_NBYTES - 1)); /* waits, too */
  move_back(range.base & ~(uint64_t)(PAGE_NBYTES - 1),
            (range.base + range.nbytes + PAGE_NBYTES - 1) & ~(uint64_t)(PAGE_NBYTES - 1));
  return result;
}
