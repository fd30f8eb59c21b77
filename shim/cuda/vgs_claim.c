#define _GNU_SOURCE
#include "vgs_claim.h"
#include "vgs_log.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

enum { PAGE_NBYTES = 4096 };

struct claim {
  uint64_t begin, end;
};

/* Claims in ascending order, with gaps between them. */
static struct {
  pthread_rwlock_t lock;
  struct claim *claims;
  size_t count, capacity;
} claimed = {.lock = PTHREAD_RWLOCK_INITIALIZER};

/* ThreadSanitizer blocks addresses that have no shadow, such as the simulator's; the program uses none of them.
 */
extern void __tsan_init(void) __attribute__((weak));
static bool is_blocked_for_all(void) { return __tsan_init != NULL; }

/* The first claim that ends behind `address`. */
static size_t find(uint64_t address) {
  size_t low = 0, high = claimed.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (claimed.claims[middle].end > address)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

static bool is_claimed(uint64_t begin, uint64_t end) {
  size_t i = find(begin);
  return i < claimed.count && claimed.claims[i].begin <= begin && claimed.claims[i].end >= end;
}

/* The system call, not libc's function: a sanitizer's mmap refuses addresses that the kernel allows. */
static void *map(uint64_t address, uint64_t nbytes) {
  enum { FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE };
  return (void *)syscall(SYS_mmap, address, nbytes, PROT_NONE, FLAGS, -1, 0);
}

static void unmap(void *at, uint64_t nbytes) { syscall(SYS_munmap, at, nbytes); }

/* Map the parts of [begin, end) that have no claim yet. Returns 0, EEXIST, or the error that prevents further mappings;
 * on an error the new mappings are undone. */
static int map_gaps(uint64_t begin, uint64_t end) {
  uint64_t at = begin;
  int error = 0;
  for (size_t i = find(begin); at < end && !error; i++) {
    uint64_t next = i < claimed.count && claimed.claims[i].begin < end ? claimed.claims[i].begin : end;
    if (next > at) {
      void *got = map(at, next - at);
      if (got == MAP_FAILED)
        error = errno;
      else if (got != (void *)(uintptr_t)at) { /* kernels before 4.17 ignore the flag and choose another address */
        unmap(got, next - at);
        error = EEXIST;
      }
    }
    if (!error)
      at = next < end ? claimed.claims[i].end : end;
  }
  if (!error)
    return 0;
  uint64_t undo = begin;
  for (size_t i = find(begin); undo < at; i++) {
    uint64_t next = i < claimed.count && claimed.claims[i].begin < at ? claimed.claims[i].begin : at;
    if (next > undo)
      unmap((void *)(uintptr_t)undo, next - undo);
    undo = next < at ? claimed.claims[i].end : at;
  }
  return error;
}

/* Merge [begin, end) with all claims that touch it. The caller has reserved capacity. */
static void enter(uint64_t begin, uint64_t end) {
  size_t first = find(begin - 1), after = first;
  while (after < claimed.count && claimed.claims[after].begin <= end) {
    begin = claimed.claims[after].begin < begin ? claimed.claims[after].begin : begin;
    end = claimed.claims[after].end > end ? claimed.claims[after].end : end;
    after++;
  }
  memmove(&claimed.claims[first + 1], &claimed.claims[after], (claimed.count - after) * sizeof *claimed.claims);
  claimed.count = claimed.count - after + first + 1;
  claimed.claims[first] = (struct claim){begin, end};
}

static int claim_locked(uint64_t begin, uint64_t end) {
  if (claimed.count == claimed.capacity) {
    size_t capacity = claimed.capacity ? 2 * claimed.capacity : 64;
    struct claim *grown = realloc(claimed.claims, capacity * sizeof *grown);
    if (!grown)
      return ENOMEM;
    claimed.claims = grown;
    claimed.capacity = capacity;
  }
  int error = map_gaps(begin, end);
  if (!error)
    enter(begin, end);
  return error;
}

bool vgs_claim(uint64_t address, uint64_t nbytes) {
  uint64_t begin = address & ~(uint64_t)(PAGE_NBYTES - 1), end;
  if (!VGS_CLAIMS || !begin || __builtin_add_overflow(address, nbytes, &end) ||
      end > UINT64_MAX - VGS_CLAIM_CHUNK_NBYTES)
    return true;
  end = (end + PAGE_NBYTES - 1) & ~(uint64_t)(PAGE_NBYTES - 1);
  pthread_rwlock_rdlock(&claimed.lock);
  bool known = is_claimed(begin, end);
  pthread_rwlock_unlock(&claimed.lock);
  if (known)
    return true;
  uint64_t first = begin & ~(uint64_t)(VGS_CLAIM_CHUNK_NBYTES - 1),
           last = (end + VGS_CLAIM_CHUNK_NBYTES - 1) & ~(uint64_t)(VGS_CLAIM_CHUNK_NBYTES - 1);
  pthread_rwlock_wrlock(&claimed.lock);
  int error = first ? claim_locked(first, last) : EEXIST;
  if (error == EEXIST) /* the whole chunks are partly occupied; the pages themselves may be free */
    error = claim_locked(begin, end);
  pthread_rwlock_unlock(&claimed.lock);
  return error != EEXIST || is_blocked_for_all();
}

bool vgs_claim_only(uint64_t address, uint64_t nbytes, const char *what) {
  bool done = vgs_claim(address, nbytes);
  if (!done)
    vgs_log(VGS_LOG_REASON,
            "%s lies at %#llx, where the host's driver put it and this process has memory of its own: it cannot be "
            "used here. Start the program again",
            what, (unsigned long long)address);
  return done;
}

bool vgs_claim_is_free(uint64_t address, uint64_t nbytes) {
  void *got = map(address, nbytes);
  if (got == MAP_FAILED)
    return errno != EEXIST && errno != EINVAL;
  unmap(got, nbytes);
  return got == (void *)(uintptr_t)address;
}

uint64_t vgs_claim_find_free(uint64_t nbytes) {
  void *got = mmap(NULL, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got == MAP_FAILED)
    return 0;
  unmap(got, nbytes);
  return (uintptr_t)got;
}

void vgs_claim_fini(void) {
  for (size_t i = 0; i < claimed.count; i++)
    unmap((void *)(uintptr_t)claimed.claims[i].begin, claimed.claims[i].end - claimed.claims[i].begin);
  free(claimed.claims);
  claimed.claims = NULL;
  claimed.count = claimed.capacity = 0;
}
