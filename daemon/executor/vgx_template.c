/* See vgx_template.h. */
#define _GNU_SOURCE
#include "vgx_template.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vgx_control.h"
#include "vgx_fold.h"

enum { PAGE_NBYTES = 4096, ENTRIES = 512 }; /* on a kernel with other pages nothing is dropped */

/* The kernel writes at any time to a thread's area for restartable sequences, which lies near its thread pointer. */
#define THREAD_NBYTES (64u << 10)

/* An entry of /proc/PID/pagemap (Documentation/admin-guide/mm/pagemap.rst). */
#define PRESENT (1ull << 63)
#define SWAPPED (1ull << 62)
#define OF_FILE (1ull << 61)

static struct {
  struct vgx_range *ranges;
  uint32_t count;
  const uint8_t *file; /* the ranges' contents, one after another */
  int fd;              /* of that file */
  int pagemap;         /* -1: nothing is dropped */
} template = {.fd = -1, .pagemap = -1};

struct place {
  uintptr_t address, end;
};

static int look(struct dl_phdr_info *object, size_t size, void *found) {
  struct place *place = found;
  (void)size;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    uintptr_t begin = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr, nbytes = object->dlpi_phdr[i].p_memsz;
    if (object->dlpi_phdr[i].p_type == PT_LOAD && place->address - begin < nbytes)
      place->end = begin + nbytes;
  }
  return 0;
}

/* Write the ranges to `to`, which has room for twice as many; the zeroed variables of a library, which precede what was
 * mapped above them, become a range of their own, as C uses them at any time. Returns how many there are. */
static uint32_t split(struct vgx_range *to, const struct vgx_range *ranges, uint32_t count) {
  uint32_t made = 0;
  for (uint32_t i = 0; i < count; i++) {
    struct place place = {.address = ranges[i].address};
    dl_iterate_phdr(look, &place);
    size_t head =
        place.end > place.address ? (place.end - place.address + PAGE_NBYTES - 1) / PAGE_NBYTES * PAGE_NBYTES : 0;
    to[made++] = ranges[i];
    if (!ranges[i].folds || head == 0)
      continue;
    to[made - 1].folds = false;
    if (head < ranges[i].nbytes) {
      to[made - 1].nbytes = head;
      to[made++] = (struct vgx_range){ranges[i].address + head, ranges[i].nbytes - head, true};
    }
  }
  return made;
}

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

int vgx_template_make(const struct vgx_range *given, uint32_t count) {
  size_t nbytes = 0;
  for (uint32_t i = 0; i < count; i++)
    nbytes += given[i].nbytes;
  if (nbytes == 0 || sysconf(_SC_PAGESIZE) != PAGE_NBYTES)
    return ENOTSUP;
  int fd = memfd_create("vgpu-template", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  struct vgx_range *ranges = malloc(2 * count * sizeof *ranges);
  void *file = MAP_FAILED;
  if (fd >= 0 && ranges && ftruncate(fd, (off_t)nbytes) == 0)
    file = mmap(NULL, nbytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (file != MAP_FAILED) {
    count = split(ranges, given, count);
    template.ranges = ranges;
    template.count = count;
    template.file = file;
    /* From here on nothing may be written to the ranges, in which this file's variables lie, too. */
    if (fill(fd, ranges, count)) {
      bool mapped = true;
      off_t offset = 0;
      for (uint32_t i = 0; i < count; offset += (off_t)ranges[i++].nbytes)
        mapped &= mmap((void *)ranges[i].address, ranges[i].nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd,
                       offset) != MAP_FAILED;
      template.fd = fd;
      if (!mapped) /* a range that is still anonymous memory would read as zero where a page is dropped */
        template.count = 0;
      return mapped ? 0 : ENOMEM;
    }
  }
  int error = errno ? errno : ENOMEM;
  template.count = 0;
  if (file != MAP_FAILED)
    munmap(file, nbytes);
  free(ranges);
  if (fd >= 0)
    close(fd);
  return error;
}

/* Read the entries of `count` pages; returns how many were read. */
static size_t read_entries(uint64_t *entries, uintptr_t address, size_t count) {
  off_t position = (off_t)(address / PAGE_NBYTES * sizeof *entries);
  ssize_t nbytes = pread(template.pagemap, entries, count * sizeof *entries, position);
  return nbytes > 0 ? (size_t)nbytes / sizeof *entries : 0;
}

static bool is_near_thread(uintptr_t begin, uintptr_t end) {
  uintptr_t thread = (uintptr_t)pthread_self();
  return end + THREAD_NBYTES > thread && begin < thread + THREAD_NBYTES;
}

/* Drop those of `entries` that are copies and equal the file's. */
static size_t drop(uintptr_t address, const uint8_t *file, const uint64_t *entries, size_t count) {
  size_t dropped = 0;
  for (size_t i = 0; i < count; i++, address += PAGE_NBYTES, file += PAGE_NBYTES)
    if ((entries[i] & PRESENT) && !(entries[i] & OF_FILE) && !is_near_thread(address, address) &&
        memcmp((const void *)address, file, PAGE_NBYTES) == 0 &&
        madvise((void *)address, PAGE_NBYTES, MADV_DONTNEED) == 0)
      dropped += PAGE_NBYTES;
  return dropped;
}

static size_t drop_range(const struct vgx_range *range, const uint8_t *file) {
  size_t dropped = 0;
  for (size_t at = 0; at < range->nbytes; at += (size_t)ENTRIES * PAGE_NBYTES) {
    uint64_t entries[ENTRIES];
    size_t left = (range->nbytes - at) / PAGE_NBYTES;
    size_t count = read_entries(entries, range->address + at, left < ENTRIES ? left : ENTRIES);
    dropped += drop(range->address + at, file + at, entries, count);
  }
  return dropped;
}

/* Returns the bytes of this process's copies in the range, or 0 if it stays as it is. */
static size_t fold_range(const struct vgx_range *range, const uint8_t *file) {
  struct vgx_fold_range folded = {(uint8_t *)range->address, range->nbytes, file, template.fd, file - template.file};
  size_t copies = 0;
  for (size_t at = 0; at < range->nbytes; at += (size_t)ENTRIES * PAGE_NBYTES) {
    uint64_t entries[ENTRIES];
    size_t left = (range->nbytes - at) / PAGE_NBYTES, count = left < ENTRIES ? left : ENTRIES;
    if (read_entries(entries, range->address + at, count) != count) {
      vgx_fold_clear();
      return 0;
    }
    for (size_t i = 0; i < count; i++)
      if ((entries[i] & (PRESENT | SWAPPED)) && !(entries[i] & OF_FILE)) {
        vgx_fold_add(&folded, at / PAGE_NBYTES + i);
        copies += PAGE_NBYTES;
      }
  }
  return copies && vgx_fold(&folded) ? copies : 0;
}

void vgx_template_open(void) {
  if (template.count)
    template.pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
}

size_t vgx_template_release(void) {
  if (template.pagemap < 0)
    return 0;
  const uint8_t *file = template.file;
  size_t dropped = 0, pages = 0;
  for (uint32_t i = 0; i < template.count; i++)
    pages += template.ranges[i].folds ? template.ranges[i].nbytes / PAGE_NBYTES : 0;
  bool folds = pages > 0 && vgx_fold_begin(pages);
  vgx_control_lock();
  for (uint32_t i = 0; i < template.count; file += template.ranges[i++].nbytes) {
    const struct vgx_range *range = &template.ranges[i];
    size_t folded = folds && range->folds && !is_near_thread(range->address, range->address + range->nbytes)
                        ? fold_range(range, file)
                        : 0;
    dropped += folded ? folded : drop_range(range, file);
  }
  if (folds)
    vgx_fold_end();
  vgx_control_unlock();
  close(template.pagemap);
  close(template.fd);
  template.pagemap = template.fd = -1;
  return dropped;
}
