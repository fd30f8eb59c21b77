#define _GNU_SOURCE
#include "vgs_mirror.h"
#include "vgs_api.h"
#include "vgs_capture.h"
#include "vgs_claim.h"
#include "vgs_context.h"
#include "vgs_enter.h"
#include "vgs_event.h"
#include "vgs_host_mirror.h"
#include "vgs_log.h"
#include "vgs_order.h"
#include "vgs_range.h"
#include "vgs_stream.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE_NBYTES = 4096, DEVICE_INVALID = -2 };

struct mirror {
  uint64_t base, nbytes;
  uint32_t library;                /* id; 0: it is gone, and the pages stay */
  uint16_t epoch;                  /* epoch of the library's session */
  unsigned char *shadow, *fetched; /* the device's value when it was last fetched; a buffer for the current one */
  uint32_t sent_in;                /* stream of the last copy to the device */
  uint64_t sent_at;                /* the stream's entry after that copy; 0: it is over */
  struct mirror *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mirror *mirrors; /* `lock` protects this and the next lines */

/* How many launches have begun, and been submitted; `fetched_at`: how many had when the work of all streams was fetched
 * last; `fetched_of`: of single streams, which share the slots. While a launch is between the two, `UNKNOWN` is how
 * many there were before a wait. */
static uint64_t begun, submitted, fetched_at;
static uint32_t launched_in;          /* the context of the last launch */
static bool contexts_mixed;           /* launches since `fetched_at` were in several contexts */
static _Thread_local bool begun_here; /* the thread's last launch has begun and is not counted as submitted */
enum { STREAMS = 64, CONTEXTS = 8 };
static CUstream own_streams[CONTEXTS];
static unsigned next_own;
#define UNKNOWN UINT64_MAX
static struct {
  uint64_t at;
  uint32_t stream;
} fetched_of[STREAMS];

static bool is_live(const struct mirror *m) { return m->library && m->epoch == vgs_session_epoch(); }

static bool has_page_locked(uint64_t page) {
  const struct mirror *m = mirrors;
  while (m && (page + PAGE_NBYTES <= m->base || page >= m->base + m->nbytes))
    m = m->next;
  return m;
}

/* Map memory over the claim. Nothing to do if it is mapped: a page may hold several variables. */
static bool map_pages_locked(uint64_t base, uint64_t nbytes) {
  for (uint64_t page = base & ~(uint64_t)(PAGE_NBYTES - 1); page < base + nbytes; page += PAGE_NBYTES) {
    if (has_page_locked(page))
      continue;
    void *wanted = (void *)(uintptr_t)page;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *got = mmap(wanted, PAGE_NBYTES, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == MAP_FAILED && errno == EEXIST) /* the claim, which has no memory behind it */
      got = mmap(wanted, PAGE_NBYTES, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0);
    if (got != wanted)
      return false;
  }
  return true;
}

static CUresult add_locked(struct mirror *m) {
  if (!vgs_claim(m->base, m->nbytes) || !map_pages_locked(m->base, m->nbytes)) {
    vgs_log(VGS_LOG_REASON, "a managed variable at %#llx lies over memory of this process: CUDA_ERROR_OUT_OF_MEMORY",
            (unsigned long long)m->base);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUresult result = vgs_send_cuMemcpyDtoHAsync_v2(m->shadow, m->base, m->nbytes, 0);
  if (result)
    return result;
  memcpy((void *)(uintptr_t)m->base, m->shadow, m->nbytes);
  struct vgs_range range = {.base = m->base,
                            .nbytes = m->nbytes,
                            .kind = VGS_RANGE_MANAGED,
                            .device_address = m->base,
                            .preferred = DEVICE_INVALID,
                            .prefetched = DEVICE_INVALID};
  result = vgs_range_add_mapping(&range, vgs_context_primary(vgs_context_entered->device));
  if (result)
    return result;
  m->next = mirrors;
  mirrors = m;
  vgs_divert(VGS_MIRRORING, true);
  return CUDA_SUCCESS;
}

CUresult vgs_mirror_add(uint64_t address, uint64_t nbytes, uint32_t library) {
  struct mirror *m = nbytes ? calloc(1, sizeof *m + 2 * nbytes) : NULL;
  CUresult result = CUDA_SUCCESS;
  if (!m)
    return nbytes ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
  m->base = address;
  m->nbytes = nbytes;
  m->library = library;
  m->epoch = vgs_session_epoch();
  m->shadow = (unsigned char *)(m + 1);
  m->fetched = m->shadow + nbytes;
  pthread_mutex_lock(&lock);
  const struct mirror *known = mirrors;
  while (known && (known->base != address || !is_live(known)))
    known = known->next;
  if (!known)
    result = add_locked(m);
  pthread_mutex_unlock(&lock);
  if (known || result)
    free(m);
  return result;
}

void vgs_mirror_remove(uint32_t library) {
  struct vgs_range range;
  pthread_mutex_lock(&lock);
  for (struct mirror *m = mirrors; m; m = m->next)
    if (is_live(m) && m->library == library) {
      m->library = 0;
      vgs_range_remove(m->base, true, &range);
    }
  pthread_mutex_unlock(&lock);
}

/* A launch that could not be submitted counts as submitted from the thread's next launch on. */
static void submitted_locked(void) {
  submitted += begun_here;
  begun_here = false;
}

static void begun_locked(uint32_t stream) {
  const struct vgs_object *on = stream ? vgs_object_at(VGW_KIND_STREAM, stream) : NULL;
  uint32_t context = on ? on->context_id : vgs_thread_context_id;
  submitted_locked();
  contexts_mixed = begun != fetched_at && (contexts_mixed || launched_in != context);
  launched_in = context;
  begun++;
  begun_here = true;
}

CUresult vgs_mirror_flush(uint32_t stream) {
  pthread_mutex_lock(&lock);
  CUresult result = vgs_host_mirror_push(begun == fetched_at);
  for (struct mirror *m = mirrors; m && !result; m = m->next) {
    const unsigned char *now = (const unsigned char *)(uintptr_t)m->base;
    if (!is_live(m) || !memcmp(now, m->shadow, m->nbytes))
      continue;
    memcpy(m->shadow, now, m->nbytes);
    for (uint64_t done = 0; done < m->nbytes && !result; done += VGW_PIECE_NBYTES) {
      uint64_t piece = m->nbytes - done < VGW_PIECE_NBYTES ? m->nbytes - done : VGW_PIECE_NBYTES;
      result = vgs_send_cuMemcpyHtoDAsync_v2(m->base + done, m->shadow + done, piece, stream, false);
    }
    m->sent_in = stream;
    m->sent_at = vgs_touch_entry(VGW_KIND_STREAM, stream);
  }
  begun_locked(stream);
  pthread_mutex_unlock(&lock);
  return result;
}

CUresult vgs_mirror_flush_host(void) {
  if (!vgs_diverted(VGS_MIRRORING))
    return CUDA_SUCCESS;
  pthread_mutex_lock(&lock);
  CUresult result = vgs_host_mirror_push(begun == fetched_at);
  begun_locked(0);
  pthread_mutex_unlock(&lock);
  return result;
}

void vgs_mirror_submitted(void) {
  if (!begun_here)
    return;
  pthread_mutex_lock(&lock);
  submitted_locked();
  pthread_mutex_unlock(&lock);
}

/* A stream of the current context in which nothing else runs: in the program's streams a fetch would wait for work
 * that is later than what the program has waited for. It blocks with no other, and ends with its context. */
static CUresult own_stream_locked(uint32_t *id) {
  const struct vgs_stream *known = NULL;
  unsigned i = 0;
  while (i < CONTEXTS && !((known = vgs_object_find(VGW_KIND_STREAM, own_streams[i])) &&
                           known->object.context_id == vgs_thread_context_id))
    i++;
  CUresult result = CUDA_SUCCESS;
  if (i == CONTEXTS) {
    CUstream *place = &own_streams[next_own];
    next_own = (next_own + 1) % CONTEXTS;
    if (vgs_object_find(VGW_KIND_STREAM, *place))
      vgs_cuStreamDestroy_v2(*place);
    *place = NULL;
    result = vgs_cuStreamCreate(place, CU_STREAM_NON_BLOCKING);
    known = result ? NULL : vgs_object_find(VGW_KIND_STREAM, *place);
  }
  if (known)
    *id = known->object.id;
  return result;
}

static bool can_read_in(uint32_t stream) {
  const struct vgs_stream *found = vgs_object_at(VGW_KIND_STREAM, stream);
  return found && !vgs_capture_status(found->capture);
}

/* The stream in which to read a variable: behind what the program has changed before a launch, if that may still be on
 * its way. Where the tenant may have no stream more, it is the one that was waited for: the read then waits for what
 * another thread has put behind that, but it does not fail. None of them captures (vgs_mirror_before_capture). */
static CUresult read_in_locked(struct mirror *m, uint32_t waited, uint32_t *stream) {
  if (m->sent_at && vgs_touch_is_done(m->sent_in, m->sent_at))
    m->sent_at = 0;
  bool sent = m->sent_at && (!m->sent_in || vgs_object_at(VGW_KIND_STREAM, m->sent_in));
  *stream = sent ? m->sent_in : 0; /* what a destroyed stream had to do goes on */
  if (m->sent_at)
    return CUDA_SUCCESS;
  CUresult result = own_stream_locked(stream);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    *stream = can_read_in(waited) ? waited : 0;
    result = CUDA_SUCCESS;
  }
  return result;
}

/* Copy only bytes that the device has changed: the program may have written to the others meanwhile. */
static CUresult fetch_locked(uint32_t waited) {
  CUresult result = vgs_host_mirror_fetch();
  for (struct mirror *m = mirrors; m && !result; m = m->next) {
    unsigned char *now = (unsigned char *)(uintptr_t)m->base;
    if (!is_live(m))
      continue;
    uint32_t stream;
    result = read_in_locked(m, waited, &stream);
    if (!result)
      result = vgs_send_cuMemcpyDtoHAsync_v2(m->fetched, m->base, m->nbytes, stream);
    if (!result)
      m->sent_at = 0;
    for (uint64_t i = 0; i < m->nbytes && !result; i++)
      if (m->fetched[i] != m->shadow[i])
        now[i] = m->shadow[i] = m->fetched[i];
  }
  return result;
}

static uint64_t launches_locked(void) { return begun == submitted ? begun : UNKNOWN; }

/* Before a wait: what the program has written reaches kernels that wait for it. Returns the number of launches. */
static uint64_t before_wait(void) {
  pthread_mutex_lock(&lock);
  vgs_host_mirror_push(begun == fetched_at); /* an error is the wait's, too */
  uint64_t before = launches_locked();
  pthread_mutex_unlock(&lock);
  return before;
}

/* Fetch after a wait before which there were `before` launches, unless that was done since the last one. */
static CUresult after_wait(uint32_t stream, uint64_t before, bool whole_stream, bool all) {
  pthread_mutex_lock(&lock);
  unsigned slot = stream % STREAMS;
  bool fresh =
      begun == before && (before == fetched_at || (fetched_of[slot].stream == stream && fetched_of[slot].at == before));
  CUresult result = fresh ? CUDA_SUCCESS : fetch_locked(stream);
  /* A wait for a context, or for its legacy stream, is for all launches only if they all were in that context. */
  bool in_one = !contexts_mixed && launched_in == vgs_thread_context_id;
  if (!result && whole_stream && before != UNKNOWN && (stream || in_one)) {
    fetched_of[slot].stream = stream;
    fetched_of[slot].at = before;
  }
  if (!result && all && in_one && before != UNKNOWN && before > fetched_at)
    fetched_at = before;
  pthread_mutex_unlock(&lock);
  return result;
}

CUresult vgs_mirror_wait_stream(uint32_t stream) {
  if (!vgs_diverted(VGS_MIRRORING))
    return vgs_wait_stream(stream);
  uint64_t before = before_wait();
  CUresult result = vgs_wait_stream(stream);
  return result ? result : after_wait(stream, before, true, false);
}

CUresult vgs_mirror_wait_context(void) {
  if (!vgs_diverted(VGS_MIRRORING))
    return vgs_wait_context();
  uint64_t before = before_wait();
  CUresult result = vgs_wait_context();
  return result ? result : after_wait(0, before, false, true);
}

CUresult vgs_mirror_before_wait(void) {
  if (vgs_diverted(VGS_MIRRORING))
    before_wait();
  return CUDA_SUCCESS;
}

CUresult vgs_mirror_after(CUresult waited, uint32_t stream) {
  if (waited || !vgs_diverted(VGS_MIRRORING))
    return waited;
  pthread_mutex_lock(&lock);
  uint64_t before = launches_locked();
  pthread_mutex_unlock(&lock);
  return after_wait(stream, before, false, false);
}

CUresult vgs_mirror_after_event(CUresult waited, struct vgs_event *event, uint64_t entry) {
  if (waited || !vgs_diverted(VGS_MIRRORING))
    return waited;
  uint32_t stream = event->stream;
  /* The stream is that of the entry only if no other thread has recorded the event again meanwhile. */
  if (entry && entry == vgs_event_entry(event) && !vgs_touch_is_done(stream, entry))
    vgs_wait_set_done(stream, entry);
  return vgs_mirror_after(waited, stream);
}

/* Have the stream `own` wait for another one. False: that is of another context, or the tenant may have no event more.
 */
static bool follow(CUstream stream, uint32_t own) {
  CUevent event;
  if (vgs_cuEventCreate(&event, CU_EVENT_DISABLE_TIMING))
    return false;
  bool follows = !vgs_cuEventRecord(event, stream) &&
                 !vgs_cuStreamWaitEvent(vgs_object_handle(vgs_object_at(VGW_KIND_STREAM, own)), event, 0);
  vgs_cuEventDestroy_v2(event);
  return follows;
}

/* The legacy stream is of no use while a stream captures that blocks with it. */
CUresult vgs_mirror_before_capture(const struct vgs_stream *stream) {
  bool readable = true; /* in another stream */
  bool blocks = !(stream->flags & CU_STREAM_NON_BLOCKING);
  uint32_t own;
  if (!vgs_diverted(VGS_MIRRORING))
    return CUDA_SUCCESS;
  pthread_mutex_lock(&lock);
  for (struct mirror *m = mirrors; m && readable; m = m->next) {
    if (!is_live(m))
      continue;
    readable = !own_stream_locked(&own);
    bool ends = m->sent_in == stream->object.id || (!m->sent_in && blocks);
    if (!readable || !m->sent_at || !ends || vgs_touch_is_done(m->sent_in, m->sent_at))
      continue;
    readable = (m->sent_in || !vgs_capture_ask_legacy()) && follow(m->sent_in ? vgs_object_handle(stream) : NULL, own);
    if (readable) {
      m->sent_in = own;
      m->sent_at = vgs_touch_entry(VGW_KIND_STREAM, own);
    }
  }
  pthread_mutex_unlock(&lock);
  return readable ? CUDA_SUCCESS : vgs_mirror_wait_stream(stream->object.id);
}

CUresult vgs_mirror_before_copy(uint64_t address, uint64_t nbytes, uint32_t stream) {
  bool found = vgs_host_mirror_has(address, nbytes);
  pthread_mutex_lock(&lock);
  for (const struct mirror *m = mirrors; m && !found; m = m->next)
    found = address + nbytes > m->base && address < m->base + m->nbytes;
  pthread_mutex_unlock(&lock);
  return found ? vgs_mirror_wait_stream(stream) : CUDA_SUCCESS;
}

void vgs_mirror_fini(void) {
  for (struct mirror *next; mirrors; mirrors = next) {
    next = mirrors->next;
    free(mirrors);
  }
  vgs_host_mirror_fini();
}
