#define _GNU_SOURCE
#include "vgs_host_mirror.h"
#include "vgs_api.h"
#include "vgs_enter.h"
#include "vgs_host_map.h"
#include "vgs_log.h"
#include "vgs_session.h"
#include "vgw_pinned.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PAGE_NBYTES = 4096, BLOCK_NBYTES = 64 << 10, RANGES_MAX = 4096 };

struct mirror {
  uint64_t host, device, nbytes;
  uint16_t epoch;  /* of the session that has the copy */
  bool registered; /* memory of the program's own, which it may unmap without a word: */
  bool gone;       /* it has */
  bool read_only;
  unsigned char *shadow; /* what program and copy had in common last */
  struct mirror *next;
};

/* `adding`, taken first, is held while the worker makes a copy: that may wait for a stream, which may wait for a host
 * function, whose thread takes `lock`. */
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
static struct mirror *mirrors; /* `lock` protects this and the next lines; whether there are any is read without it */
static bool unordered;         /* bytes were written that launches in rings could overtake */
static unsigned char *fetched; /* VGW_PIECE_NBYTES; then RANGES_MAX of struct vgw_host_pages */
static uint64_t window_next = VGW_PINNED_BEGIN + VGW_PINNED_NBYTES / 2; /* atomic; shared memory begins at the start */

static bool has_any(void) { return __atomic_load_n(&mirrors, __ATOMIC_ACQUIRE); }
static bool is_of_session(const struct mirror *m) { return m->epoch == vgs_session_epoch(); }
static bool is_live(const struct mirror *m) { return !m->gone && is_of_session(m); }

bool vgs_host_mirror_map(uint64_t nbytes, void **memory) {
  enum { TRIES = 4 };
  uint64_t aligned = (nbytes + (2 << 20) - 1) & ~((2ull << 20) - 1);
  for (int i = 0; i < TRIES; i++) {
    uint64_t address = __atomic_fetch_add(&window_next, aligned, __ATOMIC_RELAXED);
    if (aligned > VGW_PINNED_NBYTES || address > VGW_PINNED_BEGIN + VGW_PINNED_NBYTES - aligned)
      return false;
    void *wanted = (void *)(uintptr_t)address;
    void *got = mmap(wanted, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == wanted) {
      *memory = got;
      vgs_divert(VGS_MIRRORING, true);
      return true;
    }
    if (got != MAP_FAILED) /* a kernel that does not know the flag */
      munmap(got, nbytes);
  }
  return false;
}

/* Read or write the program's memory. False: it is no longer mapped. */
static bool read_host(const struct mirror *m, uint64_t offset, void *to, uint64_t nbytes) {
  void *at = (void *)(uintptr_t)(m->host + offset);
  struct iovec local = {to, nbytes}, remote = {at, nbytes};
  ssize_t got = m->registered ? process_vm_readv(getpid(), &local, 1, &remote, 1, 0) : -1;
  if (m->registered && got < 0 && errno == EFAULT)
    return false;
  if (got < 0) /* the system does not permit the call */
    memcpy(to, at, nbytes);
  return got < 0 || (uint64_t)got == nbytes;
}

/* Writes and fetches travel on the socket (BESIDE): in a ring, a queued call that the driver blocks until a host
 * function ends would hold them up, and with them `lock`, which that function's thread needs. */
static CUresult write_copy(const struct mirror *m, uint64_t offset, const void *from, uint64_t nbytes) {
  unordered |= vgs_session_shares_memory();
  return vgs_send_vgpuHostWrite(m->device + offset, nbytes, from, false);
}

/* Let launches in rings not overtake what was written: wait for a reply that follows it. */
static CUresult order_writes_locked(void) {
  uint64_t filled = 0, next;
  if (!unordered)
    return CUDA_SUCCESS;
  unordered = false;
  return vgs_send_vgpuHostChanges(0, 0, &filled, 0, &filled, &filled, &next);
}

/* Write exactly the bytes that have changed: kernels may be writing to the others. */
static CUresult write_runs(struct mirror *m, uint64_t offset, const unsigned char *now, uint64_t nbytes) {
  unsigned char *shadow = m->shadow + offset;
  CUresult result = CUDA_SUCCESS;
  for (uint64_t i = 0; i < nbytes && !result;) {
    if (now[i] == shadow[i]) {
      i++;
      continue;
    }
    uint64_t begin = i;
    for (; i < nbytes && now[i] != shadow[i]; i++)
      shadow[i] = now[i];
    result = write_copy(m, offset + begin, now + begin, i - begin);
  }
  return result;
}

static CUresult write_span(struct mirror *m, uint64_t offset, const unsigned char *now, uint64_t nbytes) {
  unsigned char *shadow = m->shadow + offset;
  uint64_t begin = 0, end = nbytes;
  while (begin < end && now[begin] == shadow[begin])
    begin++;
  while (end > begin && now[end - 1] == shadow[end - 1])
    end--;
  if (begin == end)
    return CUDA_SUCCESS;
  memcpy(shadow + begin, now + begin, end - begin);
  return write_copy(m, offset + begin, now + begin, end - begin);
}

/* Registered memory is read in blocks, as each read is a system call. */
static CUresult push_locked(struct mirror *m, bool quiet) {
  static unsigned char now[BLOCK_NBYTES];
  CUresult result = CUDA_SUCCESS;
  for (uint64_t block = 0; block < m->nbytes && !result; block += BLOCK_NBYTES) {
    uint64_t nbytes = m->nbytes - block < BLOCK_NBYTES ? m->nbytes - block : BLOCK_NBYTES;
    unsigned char *shadow = m->shadow + block;
    if (!m->registered && !memcmp((void *)(uintptr_t)(m->host + block), shadow, nbytes))
      continue;
    if (!read_host(m, block, now, nbytes)) {
      m->gone = true;
      return CUDA_SUCCESS;
    }
    if (m->registered && !memcmp(now, shadow, nbytes))
      continue;
    for (uint64_t page = 0; page < nbytes && !result; page += PAGE_NBYTES) {
      uint64_t length = nbytes - page < PAGE_NBYTES ? nbytes - page : PAGE_NBYTES;
      if (memcmp(now + page, shadow + page, length))
        result =
            quiet ? write_span(m, block + page, now + page, length) : write_runs(m, block + page, now + page, length);
    }
  }
  return result;
}

CUresult vgs_host_mirror_push(bool quiet) {
  CUresult result = CUDA_SUCCESS;
  if (!has_any())
    return result;
  pthread_mutex_lock(&lock);
  for (struct mirror *m = mirrors; m && !result; m = m->next)
    if (is_live(m))
      result = push_locked(m, quiet);
  if (!result)
    result = order_writes_locked();
  pthread_mutex_unlock(&lock);
  return result;
}

/* Store only the bytes that the device has changed: the program may have written to the others meanwhile. */
static void store_changes(struct mirror *m, uint64_t offset, const unsigned char *changed, uint64_t nbytes) {
  for (uint64_t page = 0; page < nbytes; page += PAGE_NBYTES) {
    uint64_t length = nbytes - page < PAGE_NBYTES ? nbytes - page : PAGE_NBYTES;
    unsigned char *shadow = m->shadow + offset + page, now;
    const unsigned char *from = changed + page;
    if (!memcmp(from, shadow, length))
      continue;
    if (m->registered && !read_host(m, offset + page, &now, 1)) {
      m->gone = true;
      return;
    }
    unsigned char *host = (unsigned char *)(uintptr_t)(m->host + offset + page);
    for (uint64_t i = 0; i < length; i++)
      if (from[i] != shadow[i])
        host[i] = shadow[i] = from[i];
  }
}

/* The whole pages in the worker that hold the copy. */
static struct vgw_host_pages pages_of(const struct mirror *m) {
  uint64_t begin = m->device & ~(uint64_t)(PAGE_NBYTES - 1);
  return (struct vgw_host_pages){begin,
                                 (m->device + m->nbytes - begin + PAGE_NBYTES - 1) & ~(uint64_t)(PAGE_NBYTES - 1)};
}

/* Store runs of pages that the worker has sent. False: they are not what was asked for. */
static bool store_runs(uint64_t filled) {
  struct vgw_host_pages run;
  for (uint64_t at = 0; at < filled; at += run.nbytes) {
    if (filled - at < sizeof run)
      return false;
    memcpy(&run, fetched + at, sizeof run);
    at += sizeof run;
    struct mirror *m = mirrors;
    while (m && (!is_of_session(m) || run.address - pages_of(m).address >= pages_of(m).nbytes))
      m = m->next;
    if (!m || m->read_only || run.nbytes > filled - at ||
        run.nbytes > pages_of(m).address + pages_of(m).nbytes - run.address)
      return false;
    uint64_t begin = run.address < m->device ? m->device : run.address, end = run.address + run.nbytes;
    end = end < m->device + m->nbytes ? end : m->device + m->nbytes;
    if (begin < end && !m->gone)
      store_changes(m, begin - m->device, fetched + at + (begin - run.address), end - begin);
  }
  return true;
}

/* Fetch what kernels have changed of the pages of `count` mirrors. */
static CUresult fetch_changes(const struct vgw_host_pages *pages, uint32_t count) {
  uint64_t begin = 0, filled, next;
  do {
    CUresult result = vgs_send_vgpuHostChanges(begin, count * (uint32_t)sizeof *pages, pages, VGW_PIECE_NBYTES, fetched,
                                               &filled, &next);
    if (result)
      return result;
    if (filled > VGW_PIECE_NBYTES || !store_runs(filled) || (next && next <= begin)) {
      vgs_log(VGS_LOG_REASON, "vgpud's worker returned pages of host memory that were not asked for");
      return CUDA_ERROR_UNKNOWN;
    }
    begin = next;
  } while (begin);
  return CUDA_SUCCESS;
}

CUresult vgs_host_mirror_fetch(void) {
  CUresult result = CUDA_SUCCESS;
  if (!has_any())
    return result;
  pthread_mutex_lock(&lock);
  if (!fetched && !(fetched = malloc(VGW_PIECE_NBYTES + RANGES_MAX * sizeof(struct vgw_host_pages)))) {
    pthread_mutex_unlock(&lock);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  struct vgw_host_pages *pages = (struct vgw_host_pages *)(fetched + VGW_PIECE_NBYTES);
  uint32_t count = 0;
  for (struct mirror *m = mirrors; m && !result; m = m->next) {
    if (is_live(m) && !m->read_only)
      pages[count++] = pages_of(m);
    if (count == RANGES_MAX || (count && !m->next)) {
      result = fetch_changes(pages, count);
      count = 0;
    }
  }
  pthread_mutex_unlock(&lock);
  return result;
}

static struct mirror *find_locked(uint64_t host) {
  struct mirror *m = mirrors;
  while (m && (m->host != host || !is_of_session(m)))
    m = m->next;
  return m;
}

static void unlink_locked(struct mirror *m) {
  struct mirror **link = &mirrors;
  while (*link != m)
    link = &(*link)->next;
  __atomic_store_n(link, m->next, __ATOMIC_RELEASE);
}

static void destroy(struct mirror *m) {
  if (m->shadow)
    munmap(m->shadow, m->nbytes);
  free(m);
}

/* Memory that ends without a call for it, such as a destroyed context's. */
static void forget(const struct vgs_range *range) {
  pthread_mutex_lock(&lock);
  struct mirror *m = find_locked(range->base);
  if (m) {
    unlink_locked(m);
    destroy(m);
  }
  pthread_mutex_unlock(&lock);
}

/* Have the worker make the copy. */
static CUresult reserve(struct mirror *m) {
  uint64_t begin = m->host & ~(uint64_t)(PAGE_NBYTES - 1), device = begin;
  uint64_t nbytes = (m->host + m->nbytes + PAGE_NBYTES - 1 - begin) & ~(uint64_t)(PAGE_NBYTES - 1);
  CUresult result = m->registered ? vgs_host_reserve(nbytes, &device) : vgs_send_vgpuHostReserve(begin, nbytes);
  m->device = device + (m->host - begin);
  if (!result || vgs_session_error())
    return result;
  vgs_log(VGS_LOG_REASON,
          "%llu bytes of host memory that a kernel may reach have no copy in vgpud's worker: CUDA_ERROR_OUT_OF_MEMORY",
          (unsigned long long)nbytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult add(struct vgs_range *range) {
  struct mirror *m = calloc(1, sizeof *m);
  if (!m)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *m = (struct mirror){.host = range->base,
                       .nbytes = range->nbytes,
                       .epoch = vgs_session_epoch(),
                       .registered = range->kind == VGS_RANGE_REGISTERED,
                       .read_only = range->kind == VGS_RANGE_REGISTERED && range->flags & CU_MEMHOSTREGISTER_READ_ONLY};
  void *shadow = mmap(NULL, m->nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  m->shadow = shadow == MAP_FAILED ? NULL : shadow;
  CUresult result = m->shadow ? reserve(m) : CUDA_ERROR_OUT_OF_MEMORY;
  if (result) {
    destroy(m);
    return result;
  }
  pthread_mutex_lock(&lock);
  range->device_address = m->device;
  m->next = mirrors;
  __atomic_store_n(&mirrors, m, __ATOMIC_RELEASE);
  __atomic_store_n(&vgs_range_ended, forget, __ATOMIC_RELEASE);
  vgs_divert(VGS_MIRRORING, true);
  if (!(result = push_locked(m, true)))
    result = order_writes_locked();
  if (result) { /* the session is lost; the caller unmaps the memory */
    unlink_locked(m);
    destroy(m);
  }
  pthread_mutex_unlock(&lock);
  return result;
}

CUresult vgs_host_mirror_add(struct vgs_range *range) {
  pthread_mutex_lock(&adding);
  pthread_mutex_lock(&lock);
  const struct mirror *known = find_locked(range->base);
  if (known)
    range->device_address = known->device;
  pthread_mutex_unlock(&lock);
  CUresult result = known ? CUDA_SUCCESS : add(range);
  pthread_mutex_unlock(&adding);
  return result;
}

CUresult vgs_host_mirror_expose(uint64_t address) {
  struct vgs_range range;
  if (address - VGW_PINNED_BEGIN >= VGW_PINNED_NBYTES || !vgs_range_find(address, &range) ||
      range.kind != VGS_RANGE_PINNED || range.shared || !range.device_address)
    return CUDA_SUCCESS;
  return vgs_host_mirror_add(&range);
}

CUresult vgs_host_mirror_expose_words(const void *data, uint64_t nbytes) {
  CUresult result = CUDA_SUCCESS;
  for (uint64_t i = 0, word; i + sizeof word <= nbytes && !result; i += sizeof word) {
    memcpy(&word, (const char *)data + i, sizeof word);
    if (word - VGW_PINNED_BEGIN < VGW_PINNED_NBYTES)
      result = vgs_host_mirror_expose(word);
  }
  return result;
}

bool vgs_host_mirror_has(uint64_t address, uint64_t nbytes) {
  if (!has_any())
    return false;
  pthread_mutex_lock(&lock);
  const struct mirror *m = mirrors;
  while (m && (address + nbytes <= m->host || address >= m->host + m->nbytes || !is_live(m)))
    m = m->next;
  pthread_mutex_unlock(&lock);
  return m;
}

uint64_t vgs_host_mirror_host_address(uint64_t address) {
  if (!has_any() || address - VGW_PINNED_BEGIN >= VGW_PINNED_NBYTES)
    return address;
  pthread_mutex_lock(&lock);
  const struct mirror *m = mirrors;
  while (m && (address - m->device >= m->nbytes || !is_live(m)))
    m = m->next;
  if (m)
    address = m->host + (address - m->device);
  pthread_mutex_unlock(&lock);
  return address;
}

bool vgs_host_mirror_remove(uint64_t base, CUresult *result) {
  if (!has_any())
    return false;
  pthread_mutex_lock(&lock);
  struct mirror *m = find_locked(base);
  if (m)
    unlink_locked(m);
  pthread_mutex_unlock(&lock);
  if (!m)
    return false;
  *result = vgs_send_vgpuHostUnmap(m->device & ~(uint64_t)(PAGE_NBYTES - 1)); /* this call waits, too */
  destroy(m);
  return true;
}

void vgs_host_mirror_fini(void) {
  for (struct mirror *next; mirrors; mirrors = next) {
    next = mirrors->next;
    free(mirrors); /* the process's end unmaps the shadows */
  }
  free(fetched);
}
