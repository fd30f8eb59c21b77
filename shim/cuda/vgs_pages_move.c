/* Moves private pages into a file and back while other threads may use them. A userfaultfd blocks those threads: one
 * that touches the pages sleeps until the descriptor is closed, and then uses the new mapping. A process with one
 * thread needs none. */
#define _GNU_SOURCE
#include "vgs_pages_move.h"
#include "vgs_memfd.h"
#include "vgs_pages.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Newer than the headers of the oldest system this is built on. */
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
enum { MAPPINGS_MAX = 64 };
#define FEATURE_WRITE_PROTECTS_SHARED (1ull << 12) /* UFFD_FEATURE_WP_HUGETLBFS_SHMEM */

static bool is_alone(void) {
  DIR *folder = opendir("/proc/self/task");
  int count = 0;
  for (struct dirent *entry; folder && (entry = readdir(folder));)
    count += entry->d_name[0] != '.';
  if (folder)
    closedir(folder);
  return count == 1;
}

/* Whether this thread needs the pages itself: its stack or its errno is there. */
static bool is_own(uint64_t begin, uint64_t end) {
  uint64_t places[] = {(uintptr_t)__builtin_frame_address(0), (uintptr_t)&errno};
  for (unsigned i = 0; i < 2; i++)
    if (places[i] + VGS_PAGE_NBYTES > begin && places[i] - VGS_PAGE_NBYTES < end)
      return true;
  return false;
}

/* A userfaultfd for the pages; -1: not available. Without the right to block the kernel's own accesses, a system call
 * of another thread on these pages fails with EFAULT meanwhile; loads and stores wait in either case. */
static int hold(uint64_t begin, uint64_t nbytes, uint64_t mode, uint64_t features) {
  struct uffdio_api api = {.api = UFFD_API, .features = features};
  struct uffdio_register range = {.range = {begin, nbytes}, .mode = mode};
  int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
  if (fd < 0)
    fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
  if (fd >= 0 && (ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &range))) {
    close(fd);
    fd = -1;
  }
  return fd;
}

static bool write_all(int fd, const char *from, uint64_t nbytes) {
  for (uint64_t at = 0; at < nbytes;) {
    ssize_t done = pwrite(fd, from + at, nbytes - at, (off_t)at);
    if (done < 0 && errno == EINTR)
      continue;
    if (done <= 0)
      return false;
    at += (uint64_t)done;
  }
  return true;
}

/* Move pages, whose mappings end at `ends`, to another address: each mapping by itself, as older kernels demand. The
 * old address stays mapped, without pages. Returns the new address, of which the first *moved bytes were moved; NULL:
 * nothing was. */
static char *take_away(uint64_t begin, const uint64_t *ends, unsigned count, uint64_t *moved) {
  uint64_t nbytes = ends[count - 1] - begin, from = begin;
  char *to = mmap(NULL, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (to == MAP_FAILED)
    return NULL;
  for (unsigned i = 0; i < count; from = ends[i++]) {
    uint64_t part = ends[i] - from;
    if (mremap((void *)(uintptr_t)from, part, part, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
               to + (from - begin)) == MAP_FAILED)
      break;
  }
  *moved = from - begin;
  return to;
}

/* Move the pages back to their old address. */
static void put_back(uint64_t begin, const uint64_t *ends, char *from, uint64_t moved) {
  for (uint64_t at = 0, i = 0; at < moved; i++) {
    uint64_t part = ends[i] - begin - at;
    mremap(from + at, part, part, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)(uintptr_t)(begin + at));
    at += part;
  }
}

int vgs_pages_move(uint64_t begin, uint64_t end) {
  uint64_t nbytes = end - begin;
  void *at = (void *)(uintptr_t)begin;
  if (!nbytes || is_own(begin, end))
    return -EDEADLK;
  int fd = vgs_memfd_create(VGS_PAGES_MOVED, nbytes);
  if (fd < 0)
    return -ENOMEM;
  bool alone = is_alone();
  int held = alone ? -1 : hold(begin, nbytes, UFFDIO_REGISTER_MODE_MISSING, 0);
  uint64_t ends[MAPPINGS_MAX], moved = 0;
  unsigned count = alone || held < 0 ? 0 : vgs_pages_mappings(begin, end, ends, MAPPINGS_MAX);
  if (!alone && !count) {
    if (held >= 0)
      close(held);
    close(fd);
    return -EBUSY;
  }
  /* From here on the old address has no pages, and nothing but system calls is made: a blocked thread may hold a lock
   * of the C library. */
  char *old = alone ? at : take_away(begin, ends, count, &moved);
  bool done = (alone || (old && moved == nbytes)) && write_all(fd, old, nbytes) &&
              mmap(at, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
  if (!alone && old && done)
    munmap(old, nbytes);
  else if (!alone && old) {
    put_back(begin, ends, old, moved);
    munmap(old + moved, nbytes - moved);
  }
  if (held >= 0)
    close(held);
  if (done)
    return fd;
  close(fd);
  return -ENOMEM;
}

void vgs_pages_move_back(uint64_t begin, uint64_t end) {
  uint64_t nbytes = end - begin;
  void *at = (void *)(uintptr_t)begin;
  int held = -1;
  if (!is_alone()) {
    struct uffdio_writeprotect protect = {.range = {begin, nbytes}, .mode = UFFDIO_WRITEPROTECT_MODE_WP};
    held = hold(begin, nbytes, UFFDIO_REGISTER_MODE_WP, UFFD_FEATURE_PAGEFAULT_FLAG_WP | FEATURE_WRITE_PROTECTS_SHARED);
    if (held < 0)
      return; /* the pages may stay shared */
    if (ioctl(held, UFFDIO_WRITEPROTECT, &protect)) {
      close(held);
      return;
    }
  }
  void *copy = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy != MAP_FAILED) {
    memcpy(copy, at, nbytes);
    if (mremap(copy, nbytes, nbytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED)
      munmap(copy, nbytes);
  }
  if (held >= 0)
    close(held);
}
