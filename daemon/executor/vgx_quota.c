#include "vgx_quota.h"

#include <errno.h>
#include <time.h>

#include "vgw_clock.h"
#include "vgw_ledger.h"
#include "vgx_meter.h"
#include "vgx_reason.h"
#include "vgx_session.h"

_Static_assert(VGW_LEDGER_QUOTA + VGW_QUOTA_COUNT <= VGW_LEDGER_COLUMNS, "every quota has a column");
_Static_assert(VGW_QUOTA_COUNT <= VGX_METER_QUOTAS, "every quota has a counter");

static struct vgx_session *session; /* the process's one */

void vgx_quota_start(struct vgx_session *s) { session = s; }

static void write_locked(struct vgx_session *s, enum vgw_quota quota) {
  struct vgw_ledger *ledger = s->options->ledger;
  if (ledger)
    __atomic_store_n(&ledger->used[s->options->ledger_row][VGW_LEDGER_QUOTA + quota], s->quota_used[quota],
                     __ATOMIC_SEQ_CST);
}

static uint64_t used_locked(struct vgx_session *s, enum vgw_quota quota) {
  int64_t used = vgw_ledger_capped(s->quota_used[quota]);
  if (s->options->ledger)
    vgw_ledger_sum(s->options->ledger, VGW_LEDGER_QUOTA + quota, s->options->ledger_row, &used);
  return (uint64_t)used;
}

void vgx_quota_add_locked(struct vgx_session *s, enum vgw_quota quota, uint64_t amount) {
  s->quota_used[quota] += amount;
  write_locked(s, quota);
}

void vgx_quota_release_locked(struct vgx_session *s, enum vgw_quota quota, uint64_t amount) {
  if (!quota || !amount)
    return;
  s->quota_used[quota] -= amount;
  write_locked(s, quota);
}

bool vgx_quota_reserve_locked(struct vgx_session *s, enum vgw_quota quota, uint64_t amount) {
  uint64_t limit = s->options->quotas[quota];
  if (!quota)
    return true;
  /* added before the sum is read: of two sessions that count at the same time, at least one sees the other's count */
  vgx_quota_add_locked(s, quota, amount);
  if (!limit || used_locked(s, quota) <= limit)
    return true;
  vgx_quota_release_locked(s, quota, amount);
  return false;
}

/* --- reasons for the client --- */

enum { CALLS = VGW_QUOTA_NONE }; /* the index of calls_per_s; no kind of object has this quota */

static bool is_first(struct vgx_session *s, uint32_t quota) {
  return !(atomic_fetch_or(&s->quotas_told, 1u << quota) & 1u << quota);
}

void vgx_quota_tell(struct vgx_session *s, enum vgw_quota quota) {
  static const struct {
    const char *key, *of;
    uint64_t unit;
  } words[VGW_QUOTA_COUNT] = {
      [VGW_QUOTA_CONTEXTS] = {"contexts", "contexts", 1},
      [VGW_QUOTA_STREAMS] = {"streams", "streams", 1},
      [VGW_QUOTA_EVENTS] = {"events", "events", 1},
      [VGW_QUOTA_MODULES] = {"modules", "modules and libraries", 1},
      [VGW_QUOTA_GRAPHS] = {"graphs", "graphs and executable graphs", 1},
      [VGW_QUOTA_ARRAYS] = {"arrays", "arrays", 1},
      [VGW_QUOTA_POOLS] = {"pools", "memory pools", 1},
      [VGW_QUOTA_IMAGE_NBYTES] = {"image_mib", "MiB of program images", 1 << 20},
      [VGW_QUOTA_COMPILE_NS] = {"compile_s", "s of compiling", 1000000000},
  };
  atomic_fetch_add_explicit(&vgx_meter->refused[quota], 1, memory_order_relaxed);
  if (is_first(s, quota))
    vgx_reason(s, quota == VGW_QUOTA_COMPILE_NS ? CUDA_ERROR_JIT_COMPILATION_DISABLED : CUDA_ERROR_OUT_OF_MEMORY,
               "a tenant's sessions together may have %llu %s here, and have them (%s in share %s of vgpud's "
               "configuration)",
               (unsigned long long)(s->options->quotas[quota] / words[quota].unit), words[quota].of, words[quota].key,
               s->options->share ? s->options->share : "-");
}

/* --- compiling --- */

CUresult vgx_compile_begin(uint64_t *begun_ns) {
  struct vgx_session *s = session;
  uint64_t limit = s->options->quotas[VGW_QUOTA_COMPILE_NS];
  pthread_mutex_lock(&s->table_lock);
  bool fits = !limit || used_locked(s, VGW_QUOTA_COMPILE_NS) < limit;
  pthread_mutex_unlock(&s->table_lock);
  *begun_ns = vgw_clock_ns(CLOCK_THREAD_CPUTIME_ID);
  if (fits)
    return CUDA_SUCCESS;
  vgx_quota_tell(s, VGW_QUOTA_COMPILE_NS);
  return CUDA_ERROR_JIT_COMPILATION_DISABLED;
}

void vgx_compile_end(uint64_t begun_ns) {
  struct vgx_session *s = session;
  uint64_t ns = vgw_clock_ns(CLOCK_THREAD_CPUTIME_ID) - begun_ns;
  pthread_mutex_lock(&s->table_lock);
  vgx_quota_add_locked(s, VGW_QUOTA_COMPILE_NS, ns);
  pthread_mutex_unlock(&s->table_lock);
}

/* --- calls in a second --- */

/* The number of calls before the clock is read again is that of a tenth of a second. The tenant's calls per second are
 * divided equally among those of its sessions that have made calls within the last CALLING_MS. */
enum { CALLING_MS = 1000, BATCHES_S = 10 };

static uint64_t calling(struct vgx_session *s, uint64_t now_ms) {
  struct vgw_ledger *ledger = s->options->ledger;
  uint64_t rows, tenant, calling = 0;
  if (!ledger)
    return 1;
  __atomic_store_n(&ledger->used[s->options->ledger_row][VGW_LEDGER_QUOTA], now_ms + CALLING_MS, __ATOMIC_SEQ_CST);
  rows = __atomic_load_n(&ledger->row_count, __ATOMIC_SEQ_CST);
  tenant = __atomic_load_n(&ledger->tenant[s->options->ledger_row], __ATOMIC_SEQ_CST);
  for (uint64_t i = 0; i < rows && i < VGW_LEDGER_ROWS; i++)
    calling += __atomic_load_n(&ledger->tenant[i], __ATOMIC_SEQ_CST) == tenant &&
               __atomic_load_n(&ledger->used[i][VGW_LEDGER_QUOTA], __ATOMIC_SEQ_CST) >= now_ms;
  return calling ? calling : 1;
}

static void sleep_until(uint64_t ns) {
  struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
  }
}

static void next_batch_locked(struct vgx_session *s) {
  uint64_t per_s = s->options->calls_per_s, now = vgw_now_ns(), due = s->paced_until_ns;
  if (due > now) {
    if (is_first(s, CALLS))
      vgx_reason(s, CUDA_SUCCESS,
                 "calls are held back: a tenant's sessions together may make %llu in a second (calls_per_s in share %s "
                 "of vgpud's configuration)",
                 (unsigned long long)per_s, s->options->share ? s->options->share : "-");
    sleep_until(due);
    atomic_fetch_add_explicit(&vgx_meter->held_ns, vgw_now_ns() - now, memory_order_relaxed);
    now = due;
  }
  uint64_t mine = per_s / calling(s, now / 1000000), batch = mine / BATCHES_S;
  mine = mine ? mine : 1;
  batch = batch ? batch : 1;
  s->paced_until_ns = now + 1000000000u * batch / mine;
  atomic_store_explicit(&s->calls_left, (int64_t)batch, memory_order_relaxed);
}

void vgx_pace(struct vgx_session *s) {
  while (atomic_fetch_sub_explicit(&s->calls_left, 1, memory_order_relaxed) <= 0 && !atomic_load(&s->ended)) {
    pthread_mutex_lock(&s->pace_lock);
    if (atomic_load_explicit(&s->calls_left, memory_order_relaxed) <= 0)
      next_batch_locked(s);
    pthread_mutex_unlock(&s->pace_lock);
  }
}
