/* See vgx_template.h. */
#define _GNU_SOURCE
#include "vgx_template.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vgx_control.h"

enum { PAGE_NBYTES = 4096, ENTRIES = 512 }; /* on a kernel with other pages nothing is dropped */

/* The kernel writes at any time to a thread's area for restartable sequences, which lies near its thread pointer. */
#define THREAD_NBYTES (64u << 10)

/* An entry of /proc/PID/pagemap (Documentation/admin-guide/mm/pagemap.rst). */
#define PRESENT (1ull << 63)
#define OF_FILE (1ull << 61)

static struct {
  struct vgx_range *ranges;
  uint32_t count;
  const uint8_t *file; /* the ranges' contents, one after another */
  int pagemap;         /* -1: nothing is dropped */
} template = {.pagemap = -1};

/* Copy the ranges to the file, and seal it. */
static bool fill(int fd, const struct vgx_range *ranges, uint32_t count) {
  static const uint8_t zeros[PAGE_NBYTES];
  off_t offset = 0;
  for (uint32_t i = 0; i < count; i++)
    for (size_t at = 0; at < ranges[i].nbytes; at += PAGE_NBYTES, offset += PAGE_NBYTES) {
      const void *page = (const void *)(ranges[i].address + at);
      if (memcmp(page, zeros, PAGE_NBYTES) != 0 && pwrite(fd, page, PAGE_NBYTES, offset) != PAGE_NBYTES)
        return false;
    }
  return fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
}

int vgx_template_make(const struct vgx_range *ranges, uint32_t count) {
  size_t nbytes = 0;
  for (uint32_t i = 0; i < count; i++)
    nbytes += ranges[i].nbytes;
  if (nbytes == 0 || sysconf(_SC_PAGESIZE) != PAGE_NBYTES)
    return ENOTSUP;
  int fd = memfd_create("vgpu-template", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  struct vgx_range *copy = malloc(count * sizeof *copy);
  void *file = MAP_FAILED;
  if (fd >= 0 && copy && ftruncate(fd, (off_t)nbytes) == 0)
    file = mmap(NULL, nbytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (file != MAP_FAILED) {
    memcpy(copy, ranges, count * sizeof *copy);
    template.ranges = copy;
    template.count = count;
    template.file = file;
    /* From here on nothing may be written to the ranges, in which this file's variables lie, too. */
    if (fill(fd, ranges, count)) {
      bool mapped = true;
      off_t offset = 0;
      for (uint32_t i = 0; i < count; offset += (off_t)ranges[i++].nbytes)
        mapped &= mmap((void *)ranges[i].address, ranges[i].nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd,
                       offset) != MAP_FAILED;
      close(fd);
      if (!mapped) /* a range that is still anonymous memory would read as zero where a page is dropped */
        template.count = 0;
      return mapped ? 0 : ENOMEM;
    }
  }
  int error = errno ? errno : ENOMEM;
  template.count = 0;
  if (file != MAP_FAILED)
    munmap(file, nbytes);
  free(copy);
  if (fd >= 0)
    close(fd);
  return error;
}

/* Drop those of `entries` that are copies and equal the file's. */
static size_t drop(uintptr_t address, const uint8_t *file, const uint64_t *entries, size_t count) {
  uintptr_t thread = (uintptr_t)pthread_self();
  size_t dropped = 0;
  for (size_t i = 0; i < count; i++, address += PAGE_NBYTES, file += PAGE_NBYTES) {
    bool near = address + THREAD_NBYTES > thread && address < thread + THREAD_NBYTES;
    if ((entries[i] & PRESENT) && !(entries[i] & OF_FILE) && !near &&
        memcmp((const void *)address, file, PAGE_NBYTES) == 0 &&
        madvise((void *)address, PAGE_NBYTES, MADV_DONTNEED) == 0)
      dropped += PAGE_NBYTES;
  }
  return dropped;
}

void vgx_template_open(void) {
  if (template.count)
    template.pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
}

size_t vgx_template_release(void) {
  if (template.pagemap < 0)
    return 0;
  const uint8_t *file = template.file;
  size_t dropped = 0;
  vgx_control_lock();
  for (uint32_t r = 0; r < template.count; r++) {
    struct vgx_range range = template.ranges[r];
    for (size_t at = 0; at < range.nbytes; at += (size_t)ENTRIES * PAGE_NBYTES) {
      uint64_t entries[ENTRIES];
      size_t left = (range.nbytes - at) / PAGE_NBYTES, count = left < ENTRIES ? left : ENTRIES;
      off_t position = (off_t)((range.address + at) / PAGE_NBYTES * sizeof *entries);
      ssize_t nbytes = pread(template.pagemap, entries, count * sizeof *entries, position);
      if (nbytes > 0)
        dropped += drop(range.address + at, file + at, entries, (size_t)nbytes / sizeof *entries);
    }
    file += range.nbytes;
  }
  vgx_control_unlock();
  close(template.pagemap);
  template.pagemap = -1;
  return dropped;
}
