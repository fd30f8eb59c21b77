#define _GNU_SOURCE
#include "vgs_region.h"
#include "vgs_log.h"
#include "vgs_stub.h"
#include "vgw_region.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CANDIDATES_MAX = 8 };
static const char devices_directory[] = "/sys/bus/pci/devices";

/* A piece of pinned memory; the list is in order of offsets. */
struct piece {
  uint64_t offset, nbytes, address;
  struct piece *next;
};

static struct {
  int fds[CANDIDATES_MAX]; /* candidates for the region; once it is recognised, it is fds[0] */
  int count;
  uint64_t nbytes; /* of the region */
  uint8_t *base;   /* this session's range, mapped; NULL: none */
  uint64_t range_offset, range_nbytes;
  uint64_t rings_end; /* rings lie in [0, rings_end) of the range, */
  uint64_t pinned;    /* pinned memory from here on */
  pthread_mutex_t lock;
  struct piece *pieces; /* under lock, as is detached */
  bool detached;        /* the session is over: nothing is mapped from the region any more */
} region = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void close_candidates(int kept) {
  while (region.count > kept)
    close(region.fds[--region.count]);
}

static void open_candidate(const char *path) {
  int fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY);
  if (fd >= 0)
    region.fds[region.count++] = fd;
  else
    vgs_log(VGS_LOG_INFO, "no memory shared with the host: %s: %s; calls and copies travel on the socket", path,
            strerror(errno));
}

static void open_devices(void) {
  int directory = open(devices_directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *devices = directory < 0 ? NULL : fdopendir(directory);
  if (!devices) {
    if (directory >= 0)
      close(directory);
    return;
  }
  bool found = false;
  struct dirent *entry;
  while (region.count < CANDIDATES_MAX && (entry = readdir(devices))) {
    char path[300];
    if (entry->d_name[0] == '.' || !vgs_pci_begins(directory, entry->d_name, "vendor", "0x1af4") ||
        !vgs_pci_begins(directory, entry->d_name, "device", "0x1110"))
      continue;
    found = true;
    snprintf(path, sizeof path, "%s/%s/resource2", devices_directory, entry->d_name); /* BAR 2: the memory */
    open_candidate(path);
  }
  closedir(devices);
  if (!found)
    vgs_log(VGS_LOG_INFO, "no memory shared with the host: this machine has no ivshmem device");
}

bool vgs_region_look(const char *configured) {
  close_candidates(0);
  if (!strcmp(configured, "off"))
    return false;
  if (*configured)
    open_candidate(configured);
  else
    open_devices();
  return region.count;
}

static bool begins_with(int fd, const uint8_t cookie[16], uint64_t nbytes) {
  struct stat st;
  if (fstat(fd, &st) || (st.st_size && (uint64_t)st.st_size < nbytes)) /* 0: a character device has no size */
    return false;
  void *page = mmap(NULL, VGW_REGION_HEADER_NBYTES, PROT_READ, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED)
    return false;
  struct vgw_region_header header;
  memcpy(&header, page, sizeof header);
  munmap(page, VGW_REGION_HEADER_NBYTES);
  return !memcmp(header.magic, VGW_REGION_MAGIC, sizeof header.magic) && !memcmp(header.cookie, cookie, 16) &&
         header.nbytes == nbytes;
}

bool vgs_region_recognise(const uint8_t cookie[16], uint64_t nbytes) {
  for (int i = 0; i < region.count; i++)
    if (begins_with(region.fds[i], cookie, nbytes)) {
      int found = region.fds[i];
      region.fds[i] = region.fds[0];
      region.fds[0] = found;
      region.nbytes = nbytes;
      close_candidates(1);
      return true;
    }
  close_candidates(0);
  vgs_log(VGS_LOG_INFO, "no memory shared with the host: what is here is not the memory vgpud knows");
  return false;
}

bool vgs_region_map(uint64_t offset, uint64_t nbytes) {
  const uint64_t page = VGW_REGION_PAGE_NBYTES;
  if (region.count != 1 || offset % page || nbytes % page || offset < VGW_REGION_HEADER_NBYTES || !nbytes ||
      offset > region.nbytes || nbytes > region.nbytes - offset)
    return false;
  void *mapped = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, region.fds[0], (off_t)offset);
  if (mapped == MAP_FAILED) {
    vgs_log(VGS_LOG_INFO, "no memory shared with the host: %s", strerror(errno));
    return false;
  }
  madvise(mapped, nbytes, MADV_DONTFORK);
  region.base = mapped;
  region.detached = false;
  region.range_offset = offset;
  region.range_nbytes = nbytes;
  region.rings_end = 0;
  region.pinned = nbytes / 2 / page * page;
  vgs_log(VGS_LOG_INFO, "shared memory with the host: %llu MiB for this session's rings and pinned memory",
          (unsigned long long)(nbytes >> 20));
  return true;
}

bool vgs_region_mapped(void) { return region.base; }

void *vgs_region_reserve_ring(uint64_t nbytes, uint64_t *offset) {
  pthread_mutex_lock(&region.lock);
  uint8_t *ring = NULL;
  if (region.base && nbytes <= region.pinned - region.rings_end) {
    ring = region.base + region.rings_end;
    *offset = region.rings_end;
    region.rings_end += nbytes;
    memset(ring, 0, VGW_REGION_PAGE_NBYTES);
  }
  pthread_mutex_unlock(&region.lock);
  return ring;
}

/* The first gap that is large enough; under lock. */
static struct piece **find_gap(uint64_t nbytes, uint64_t *offset) {
  struct piece **link = &region.pieces;
  uint64_t begin = region.pinned;
  for (; *link; link = &(*link)->next) {
    if ((*link)->offset - begin >= nbytes)
      break;
    begin = (*link)->offset + (*link)->nbytes;
  }
  if (!*link && region.range_nbytes - begin < nbytes)
    return NULL;
  *offset = begin;
  return link;
}

int vgs_region_map_pinned(uint64_t address, uint64_t nbytes, uint64_t *offset) {
  struct piece *piece = malloc(sizeof *piece);
  if (!piece)
    return -ENOMEM;
  pthread_mutex_lock(&region.lock);
  struct piece **link = region.base && !region.detached ? find_gap(nbytes, offset) : NULL;
  int error = link ? 0 : ENOSPC;
  if (link) {
    void *mapped = mmap((void *)(uintptr_t)address, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE,
                        region.fds[0], (off_t)(region.range_offset + *offset));
    if (mapped == MAP_FAILED) {
      error = errno;
    } else if ((uintptr_t)mapped != address) { /* before Linux 4.17 */
      munmap(mapped, nbytes);
      error = EEXIST;
    }
  }
  if (!error) {
    *piece = (struct piece){.offset = *offset, .nbytes = nbytes, .address = address, .next = *link};
    *link = piece;
  }
  pthread_mutex_unlock(&region.lock);
  if (error)
    free(piece);
  return -error;
}

bool vgs_region_can_spare(uint64_t nbytes) {
  pthread_mutex_lock(&region.lock);
  uint64_t pinned = region.base && !region.detached ? region.range_nbytes - region.pinned : 0, used = 0;
  for (struct piece *piece = region.pieces; piece; piece = piece->next)
    used += piece->nbytes;
  pthread_mutex_unlock(&region.lock);
  return nbytes <= pinned / 3 && used <= pinned - nbytes;
}

void vgs_region_free_pinned(uint64_t address) {
  pthread_mutex_lock(&region.lock);
  struct piece **link = &region.pieces, *found;
  while (*link && (*link)->address != address)
    link = &(*link)->next;
  if ((found = *link))
    *link = found->next;
  pthread_mutex_unlock(&region.lock);
  free(found);
}

/* Replace memory of the region by private zero pages, in one system call: other threads may be reading there. */
static void replace(void *at, uint64_t nbytes) {
  mmap(at, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

void vgs_region_detach(void) {
  pthread_mutex_lock(&region.lock);
  if (region.base && !region.detached) {
    replace(region.base, region.range_nbytes);
    for (struct piece *piece = region.pieces; piece; piece = piece->next)
      replace((void *)(uintptr_t)piece->address, piece->nbytes);
    region.detached = true;
  }
  pthread_mutex_unlock(&region.lock);
}

void vgs_region_end(void) {
  pthread_mutex_lock(&region.lock);
  if (region.base)
    munmap(region.base, region.range_nbytes);
  region.base = NULL;
  close_candidates(0);
  struct piece *piece = region.pieces;
  region.pieces = NULL;
  pthread_mutex_unlock(&region.lock);
  for (struct piece *next; piece; piece = next) {
    next = piece->next;
    free(piece);
  }
}

void vgs_region_abandon(void) {
  static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
  region.lock = unlocked; /* another thread of the parent may have held it */
  region.base = NULL;     /* MADV_DONTFORK: the child has no mapping */
  close_candidates(0);
}
