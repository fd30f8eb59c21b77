/* See vgx_fold.h. */
#define _GNU_SOURCE
#include "vgx_fold.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { PAGE_NBYTES = 4096, WORDS = PAGE_NBYTES / sizeof(uint64_t), RANGES_MAX = 64 };
enum { LATE_MAX = 1024 }; /* more than a session has threads */

/* The notes: for each page one of these, and for each word that differs its place, then its value. */
struct note {
  uint32_t page, count; /* the page's number in its range */
};
enum { NOTE_MAX = sizeof(struct note) + WORDS * (sizeof(uint64_t) + sizeof(uint16_t)) };

static struct {
  uint8_t *notes;
  size_t capacity, used, noted; /* `noted`: up to where they belong to ranges that are folded */
  struct folded {
    uint8_t *address, *copy; /* `copy`: a mapping of the same part of the file, which will take the place */
    size_t nbytes, notes, end;
  } ranges[RANGES_MAX];
  uint32_t count;
  _Atomic(int) state;
  atomic_uint late; /* faults that were handled after the ranges had their contents */
  struct sigaction before;
} fold;
enum { FOLDED, UNFOLDING, UNFOLDED };

/* Write the words that differ to the mapping that will take the range's place. */
static void apply(const struct folded *range) {
  for (size_t at = range->notes; at < range->end;) {
    struct note note;
    memcpy(&note, fold.notes + at, sizeof note);
    const uint8_t *places = fold.notes + at + sizeof note, *values = places + note.count * sizeof(uint16_t);
    uint8_t *page = range->copy + (size_t)note.page * PAGE_NBYTES;
    for (uint32_t i = 0; i < note.count; i++) {
      uint16_t place;
      memcpy(&place, places + i * sizeof place, sizeof place);
      memcpy(page + place * sizeof(uint64_t), values + i * sizeof(uint64_t), sizeof(uint64_t));
    }
    at += sizeof note + note.count * (sizeof(uint16_t) + sizeof(uint64_t));
  }
}

/* Each range is replaced at once, so no thread sees it half made. */
static bool unfold(void) {
  for (uint32_t i = 0; i < fold.count; i++) {
    const struct folded *range = &fold.ranges[i];
    apply(range);
    if (mremap(range->copy, range->nbytes, range->nbytes, MREMAP_MAYMOVE | MREMAP_FIXED, range->address) == MAP_FAILED)
      return false;
  }
  munmap(fold.notes, fold.capacity);
  return true;
}

static bool is_folded(uintptr_t address) {
  for (uint32_t i = 0; i < fold.count; i++)
    if (address - (uintptr_t)fold.ranges[i].address < fold.ranges[i].nbytes)
      return true;
  return false;
}

/* Whether the instruction itself could not be read: such memory holds data, so that would fault again and again. */
static bool is_jump(const siginfo_t *info, const void *context) {
#if defined(__x86_64__)
  return (uintptr_t)info->si_addr == (uintptr_t)((const ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
  return (uintptr_t)info->si_addr == (uintptr_t)((const ucontext_t *)context)->uc_mcontext.pc;
#else
  (void)info, (void)context;
  return false;
#endif
}

static void on_fault(int signal, siginfo_t *info, void *context) {
  int error = errno, expected = FOLDED;
  bool done = info->si_code > 0 && is_folded((uintptr_t)info->si_addr) && !is_jump(info, context);
  if (done && atomic_compare_exchange_strong(&fold.state, &expected, UNFOLDING)) {
    done = unfold();
    if (done)
      atomic_store(&fold.state, UNFOLDED);
  } else if (done) {
    while (atomic_load(&fold.state) == UNFOLDING) /* another thread is at it */
      sched_yield();
    done = atomic_fetch_add(&fold.late, 1) < LATE_MAX; /* later the addresses may be another mapping's */
  }
  errno = error;
  if (done)
    return;
  if (fold.before.sa_flags & SA_SIGINFO)
    fold.before.sa_sigaction(signal, info, context);
  else
    sigaction(signal, &fold.before, NULL); /* the instruction faults again */
}

bool vgx_fold_begin(size_t pages) {
  fold.capacity = (pages * NOTE_MAX + PAGE_NBYTES - 1) / PAGE_NBYTES * PAGE_NBYTES;
  fold.notes = mmap(NULL, fold.capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
  action.sa_sigaction = on_fault;
  sigemptyset(&action.sa_mask);
  return fold.notes != MAP_FAILED && sigaction(SIGSEGV, &action, &fold.before) == 0;
}

void vgx_fold_add(const struct vgx_fold_range *range, size_t page) {
  struct note note = {.page = (uint32_t)page};
  uint16_t places[WORDS];
  uint64_t values[WORDS];
  const uint8_t *ours = range->address + page * PAGE_NBYTES, *file = range->file + page * PAGE_NBYTES;
  for (uint32_t i = 0; i < WORDS; i++) {
    uint64_t word, before;
    memcpy(&word, ours + i * sizeof word, sizeof word);
    memcpy(&before, file + i * sizeof before, sizeof before);
    if (word != before) {
      places[note.count] = (uint16_t)i;
      values[note.count++] = word;
    }
  }
  uint8_t *out = fold.notes + fold.used;
  memcpy(out, &note, sizeof note);
  memcpy(out + sizeof note, places, note.count * sizeof *places);
  memcpy(out + sizeof note + note.count * sizeof *places, values, note.count * sizeof *values);
  fold.used += sizeof note + note.count * (sizeof *places + sizeof *values);
}

bool vgx_fold(const struct vgx_fold_range *range) {
  struct folded *folded = &fold.ranges[fold.count];
  size_t begin = fold.noted;
  if (fold.count < RANGES_MAX) {
    void *copy = mmap(NULL, range->nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, range->fd, range->offset);
    if (copy != MAP_FAILED) {
      *folded = (struct folded){range->address, copy, range->nbytes, begin, fold.used};
      fold.count++; /* before the range is inaccessible: the handler needs it */
      if (mmap(range->address, range->nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
               0) != MAP_FAILED) {
        fold.noted = fold.used;
        return true;
      }
      fold.count--;
      munmap(copy, range->nbytes);
    }
  }
  vgx_fold_clear();
  return false;
}

void vgx_fold_clear(void) { fold.used = fold.noted; }

void vgx_fold_end(void) {
  size_t used = (fold.used + PAGE_NBYTES - 1) / PAGE_NBYTES * PAGE_NBYTES;
  if (used == fold.capacity)
    return;
  munmap(fold.notes + used, fold.capacity - used);
  fold.capacity = used;
}
