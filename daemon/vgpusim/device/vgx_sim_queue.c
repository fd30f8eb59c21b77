/* Streams' order. Each stream is a FIFO; a bounded set of threads takes the head of any stream whose turn has come.
 *
 * Turn: a stream runs one operation at a time. Every operation gets a ticket, ascending over the whole process. The
 * legacy default stream and the blocking streams of a context order each other by ticket: an operation of one side
 * waits for all of the other side with a lower ticket. Non-blocking streams wait only for their own operations and for
 * the markers of their wait operations.
 *
 * An operation that only waits or records never costs a thread: waiting is a condition of the turn.
 *
 * Locking: the runtime lock guards everything here; operations run without it. `progress` wakes callers. */
#define _GNU_SOURCE
#include "vgx_sim_queue.h"

#include <stdlib.h>
#include <time.h>

#include "vgw_clock.h"
#include "vgx_sim_activity.h"
#include "vgx_sim_capture.h"
#include "vgx_sim_green.h"
#include "vgx_sim_marker.h"
#include "vgx_sim_runtime.h"

/* A host function may block its thread; this many may do so at once before other streams stop. */
#define QUEUE_THREADS_MAX 48u

static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;
static struct CUstream_st *active_first, *active_last;
static uint64_t last_ticket;
static uint32_t thread_count;
/* Threads that look for an operation before they sleep: woken, started, or freeing the one that they ran. No other is
 * woken while there are as many of these as operations whose turn has come. */
static uint32_t coming_count;
static struct idler { /* on the stack of a thread that sleeps; the last one is woken first, its caches are warm */
  pthread_cond_t wakes;
  bool woken; /* it is no longer listed */
  struct idler *next;
} *idlers;
static struct waiter { /* on the stack of who waits for `progress` */
  uint64_t ticket;     /* waits for the end of operations up to this one; 0: for anything */
  struct waiter *next;
} *waiters;
static bool paused; /* no operation starts */

static void activate(CUstream s) {
  if (s->active)
    return;
  s->active = true;
  s->active_next = NULL;
  s->active_previous = active_last;
  *(active_last ? &active_last->active_next : &active_first) = s;
  active_last = s;
}

static void deactivate(CUstream s) {
  *(s->active_previous ? &s->active_previous->active_next : &active_first) = s->active_next;
  *(s->active_next ? &s->active_next->active_previous : &active_last) = s->active_previous;
  s->active = false;
}

static uint64_t oldest_ticket(const struct CUstream_st *s) {
  return s->busy ? s->busy_ticket : s->head ? s->head->ticket : UINT64_MAX;
}

bool vgx_sim_stream_idle_locked(CUstream stream) { return oldest_ticket(stream) == UINT64_MAX; }

/* Whether all that `op`, of the stream `s`, gathers is done. A green context's default stream is its primary one's. */
static bool is_gathered(const struct CUstream_st *s, const struct vgx_sim_op *op, uint64_t ticket) {
  for (struct CUstream_st *t = active_first; t; t = t->active_next)
    if (t->ctx == s->ctx && t != s && oldest_ticket(t) < ticket &&
        (!op->green || t->green == op->green || t == &s->ctx->legacy || t == &s->ctx->per_thread))
      return false;
  return true;
}

/* Whether an operation with `ticket` at the head of `s` may start. */
static bool is_turn(const struct CUstream_st *s, const struct vgx_sim_op *op, uint64_t ticket) {
  if (paused || s->busy || (op->wait && !op->wait->done) || (op->after && !op->after->done) ||
      (op->hold && !op->hold->done) || (op->gathers && !is_gathered(s, op, ticket)))
    return false;
  if (s->flags & CU_STREAM_NON_BLOCKING)
    return true;
  if (s != &s->ctx->legacy)
    return oldest_ticket(&s->ctx->legacy) > ticket;
  for (struct CUstream_st *t = active_first; t; t = t->active_next)
    if (t->ctx == s->ctx && t != s && !(t->flags & CU_STREAM_NON_BLOCKING) && oldest_ticket(t) < ticket)
      return false;
  return true;
}

static struct CUstream_st *next_ready(void) {
  for (struct CUstream_st *s = active_first; s; s = s->active_next)
    if (s->head && is_turn(s, s->head, s->head->ticket))
      return s;
  return NULL;
}

void vgx_sim_notify_locked(void) {
  if (waiters)
    pthread_cond_broadcast(&progress);
}

void vgx_sim_stream_free_unused_locked(CUstream stream) {
  if (!stream->destroyed || stream->waiters || !vgx_sim_stream_idle_locked(stream) || stream->magic == VGX_SIM_DEAD)
    return;
  for (struct CUstream_st **link = &stream->ctx->streams; *link; link = &(*link)->next)
    if (*link == stream) {
      *link = stream->next;
      vgx_sim_captured_clear_locked(&stream->captured);
      stream->magic = VGX_SIM_DEAD;
      free(stream);
      return;
    }
}

/* Complete the marker of an operation that ran or was cancelled, and drop its references to markers. */
static void complete_markers(struct vgx_sim_op *op) {
  if (op->record) {
    op->record->done = true;
    op->record->time_ns = op->record->timed ? vgw_now_ns() : 0;
    vgx_sim_marker_unref_locked(op->record);
  }
  if (op->wait)
    vgx_sim_marker_unref_locked(op->wait);
  if (op->after)
    vgx_sim_marker_unref_locked(op->after);
  if (op->hold)
    vgx_sim_marker_unref_locked(op->hold);
  op->record = op->wait = op->after = op->hold = NULL;
}

/* Set the sticky error; returns the cancelled operations for the caller to destroy once the lock is released. */
static struct vgx_sim_op *fail_locked(CUcontext ctx, CUresult result) {
  struct vgx_sim_op *cancelled = NULL;
  if (ctx->sticky == CUDA_SUCCESS)
    ctx->sticky = result;
  if (ctx->device->sticky == CUDA_SUCCESS)
    ctx->device->sticky = result;
  for (struct CUstream_st *s = active_first, *following; s; s = following) {
    following = s->active_next;
    if (s->ctx != ctx)
      continue;
    for (struct vgx_sim_op *op = s->head, *next; op; op = next) {
      next = op->next;
      complete_markers(op);
      op->result = ctx->sticky;
      op->done = true; /* a waiting submitter may take its operation back at once: it is not touched again */
      if (op->destroy) {
        op->next = cancelled;
        cancelled = op;
      }
    }
    s->head = s->tail = NULL;
    if (!s->busy) {
      deactivate(s);
      vgx_sim_stream_free_unused_locked(s);
    }
  }
  vgx_sim_notify_locked();
  return cancelled;
}

static void destroy_all(struct vgx_sim_op *op) {
  for (struct vgx_sim_op *next; op; op = next) {
    next = op->next;
    op->destroy(op);
  }
}

void vgx_sim_fail_context(CUcontext ctx, CUresult result) {
  vgx_sim_lock();
  struct vgx_sim_op *cancelled = fail_locked(ctx, result);
  vgx_sim_unlock();
  destroy_all(cancelled);
}

static void *queue_thread(void *);

static _Thread_local const struct CUgreenCtx_st *running_green;
static _Thread_local CUstream running_stream;

const struct CUgreenCtx_st *vgx_sim_running_green(void) { return running_green; }

/* Whether more than `count` operations could start now. */
static bool more_ready(uint32_t count) {
  for (struct CUstream_st *s = active_first; s; s = s->active_next)
    if (s->head && is_turn(s, s->head, s->head->ticket) && count-- == 0)
      return true;
  return false;
}

/* Make sure that threads take the operations whose turn has come; `taken`: how many of them the caller takes next. */
static void wake_if_ready(uint32_t taken) {
  if (!active_first || !more_ready(taken + coming_count))
    return;
  if (idlers) {
    struct idler *woken = idlers;
    idlers = woken->next;
    woken->woken = true;
    coming_count++;
    pthread_cond_signal(&woken->wakes);
    return;
  }
  if (thread_count >= QUEUE_THREADS_MAX)
    return; /* a running thread checks again before it sleeps */
  pthread_t thread;
  if (pthread_create(&thread, NULL, queue_thread, NULL) == 0) {
    pthread_detach(thread);
    thread_count++;
    coming_count++;
  } else if (thread_count == 0) {
    vgx_sim_log("simulator: no thread could be started for the streams' work");
  }
}

void vgx_sim_marker_complete_locked(struct vgx_sim_marker *marker) {
  if (marker->done)
    return;
  marker->done = true;
  marker->time_ns = marker->timed ? vgw_now_ns() : 0;
  vgx_sim_notify_locked();
  wake_if_ready(0);
}

/* Wake waiters after an operation of `s` ended. One with a ticket stays asleep while the stream's next operation is
 * among those that it waits for, since a wake-up takes as long as a small kernel. Where no thread could be started,
 * the waiters themselves run operations, so all are woken. */
static void notify_after(const struct CUstream_st *s) {
  bool wake = !s->head || !thread_count;
  for (const struct waiter *w = waiters; w && !wake; w = w->next)
    wake = w->ticket < s->head->ticket;
  if (wake)
    vgx_sim_notify_locked();
}

/* Run `op`, taken from `s` (or never queued), whose turn it is; `taken`: how many operations the caller runs next.
 * Enters and leaves with the lock held. */
static CUresult perform(CUstream s, struct vgx_sim_op *op, uint32_t taken) {
  struct vgx_sim_op *cancelled = NULL;
  CUcontext ctx = s->ctx;
  CUresult result = CUDA_SUCCESS;
  s->busy = true;
  s->busy_ticket = op->ticket;
  s->busy_kind = op->kind;
  activate(s);
  wake_if_ready(0);
  if (op->run) {
    vgx_sim_unlock();
    running_green = op->green;
    running_stream = s;
    result = op->host_stack ? vgx_sim_run_for_stack(op) : op->correlation ? vgx_sim_run_measured(op) : op->run(op);
    running_green = NULL;
    running_stream = NULL;
    vgx_sim_lock();
    s->waits = false; /* a wait may end by a fault */
  }
  complete_markers(op);
  if (result != CUDA_SUCCESS)
    cancelled = fail_locked(ctx, result);
  s->busy = false;
  void (*destroy)(struct vgx_sim_op *) = op->destroy;
  op->result = result;
  op->done = true;
  deactivate(s);
  notify_after(s);
  if (s->head)
    activate(s); /* appended at the end, so that other streams come first */
  else
    vgx_sim_stream_free_unused_locked(s);
  wake_if_ready(taken);
  if (destroy || cancelled) {
    coming_count += taken;
    vgx_sim_unlock();
    if (destroy)
      destroy(op);
    destroy_all(cancelled); /* waits for no operation */
    vgx_sim_lock();
    coming_count -= taken;
  }
  return result;
}

/* Run the next operation whose turn has come; false: there is none. `taken`: as of perform. */
static bool run_next(uint32_t taken) {
  struct CUstream_st *s = next_ready();
  if (!s)
    return false;
  struct vgx_sim_op *op = s->head;
  s->head = op->next;
  if (!s->head)
    s->tail = NULL;
  perform(s, op, taken);
  return true;
}

static void *queue_thread(void *unused) {
  (void)unused;
  vgx_sim_lock();
  coming_count--;
  for (;;)
    if (!run_next(1)) {
      struct idler own = {.wakes = PTHREAD_COND_INITIALIZER, .next = idlers};
      idlers = &own;
      while (!own.woken)
        pthread_cond_wait(&own.wakes, &vgx_sim_runtime_lock);
      coming_count--;
    }
  return NULL;
}

static void join_waiters(struct waiter *own) {
  own->next = waiters;
  waiters = own;
}

static void leave_waiters(struct waiter *own) {
  struct waiter **link = &waiters;
  while (*link != own)
    link = &(*link)->next;
  *link = own->next;
}

/* Sleep until something completes that may end the operations up to `ticket`; 0: until anything does. If no thread
 * could be started, the waiting caller runs the streams' work itself. */
static void wait_for_ticket_locked(uint64_t ticket) {
  struct waiter own = {.ticket = ticket};
  wake_if_ready(0);
  if (thread_count == 0 && run_next(0))
    return;
  join_waiters(&own);
  pthread_cond_wait(&progress, &vgx_sim_runtime_lock);
  leave_waiters(&own);
}

void vgx_sim_wait_progress_locked(void) { wait_for_ticket_locked(0); }

CUresult vgx_sim_submit_unlock(CUstream stream, struct vgx_sim_op *op, enum vgx_sim_submit_mode mode) {
  CUcontext ctx = stream->ctx;
  CUresult result = ctx->destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : ctx->sticky;
  if (result == CUDA_SUCCESS && stream->destroyed)
    result = CUDA_ERROR_INVALID_HANDLE;
  if (result == CUDA_SUCCESS)
    result = vgx_sim_capture_check_legacy_locked(stream);
  bool captures = result == CUDA_SUCCESS && vgx_sim_is_capturing_locked(stream);
  if (captures && mode != VGX_SIM_QUEUE) {
    result = mode == VGX_SIM_TRY ? CUDA_ERROR_NOT_READY
                                 : vgx_sim_capture_lost_locked(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    vgx_sim_unlock();
    return result;
  }
  if (captures && (result = vgx_sim_capture_locked(stream, op)) == CUDA_SUCCESS) {
    vgx_sim_unlock();
    return result;
  }
  if (result != CUDA_SUCCESS) { /* an event, or a graph's next launch, may refer to its markers already */
    complete_markers(op);
    vgx_sim_notify_locked();
    vgx_sim_unlock();
    if (op->destroy)
      op->destroy(op);
    return result;
  }
  op->ticket = ++last_ticket;
  op->correlation = vgx_sim_correlation();
  op->host_stack = vgx_sim_host_stack();
  op->next = NULL;
  CUcontext named = vgx_sim_current_name();
  bool is_default = stream == &ctx->legacy || stream == &ctx->per_thread;
  op->green = stream->green ? stream->green : is_default && named && vgx_sim_current() == ctx ? named->green : NULL;
  struct vgx_sim_marker *held = op->green ? op->green->held : ctx->held;
  bool is_hub = stream == (op->green ? &op->green->hub : &ctx->hub);
  if (held && !held->done && !is_hub) {
    op->hold = held;
    op->hold->refs++;
  }
  if (stream->flags & CU_STREAM_NON_BLOCKING && ctx->copied && !ctx->copied->done) {
    op->after = ctx->copied;
    op->after->refs++;
  }
  if (!stream->head && (mode != VGX_SIM_QUEUE || !op->run) && is_turn(stream, op, op->ticket)) {
    result = perform(stream, op, 0);
    vgx_sim_unlock();
    return mode == VGX_SIM_QUEUE ? CUDA_SUCCESS : result;
  }
  if (mode == VGX_SIM_TRY) {
    if (op->after)
      vgx_sim_marker_unref_locked(op->after);
    if (op->hold)
      vgx_sim_marker_unref_locked(op->hold);
    op->after = op->hold = NULL;
    vgx_sim_unlock();
    return CUDA_ERROR_NOT_READY;
  }
  if (op->holds_back) { /* together with the ticket under one lock, so that no other operation comes between */
    if (ctx->copied)    /* an earlier one in the same stream: it is done before this one */
      vgx_sim_marker_unref_locked(ctx->copied);
    ctx->copied = op->record;
    ctx->copied->refs++;
  }
  *(stream->tail ? &stream->tail->next : &stream->head) = op;
  stream->tail = op;
  activate(stream);
  wake_if_ready(0);
  if (mode == VGX_SIM_WAIT) {
    while (!op->done) /* this wait ends: the operation runs or is cancelled, and the watchdog bounds kernels */
      wait_for_ticket_locked(op->ticket);
    result = op->result;
  }
  vgx_sim_unlock();
  return result;
}

CUresult vgx_sim_submit(CUstream stream, struct vgx_sim_op *op, enum vgx_sim_submit_mode mode) {
  vgx_sim_lock();
  return vgx_sim_submit_unlock(stream, op, mode);
}

/* A host function uses no device memory, and may be waiting for the thread that pauses; so may who writes the word that
 * a stream waits for. */
static bool is_device_busy(void) {
  for (struct CUstream_st *s = active_first; s; s = s->active_next)
    if (s->busy && !s->waits && s->busy_kind != VGX_SIM_OP_HOST)
      return true;
  return false;
}

bool vgx_sim_pause(uint32_t timeout_s) {
  struct timespec deadline = vgw_deadline(timeout_s);
  struct waiter own = {.ticket = 0};
  int late = 0;
  vgx_sim_lock();
  join_waiters(&own);
  while (paused && !late)
    late = pthread_cond_clockwait(&progress, &vgx_sim_runtime_lock, CLOCK_MONOTONIC, &deadline);
  bool ours = !paused;
  paused = true;
  while (ours && is_device_busy() && !late)
    late = pthread_cond_clockwait(&progress, &vgx_sim_runtime_lock, CLOCK_MONOTONIC, &deadline);
  leave_waiters(&own);
  bool idle = ours && !is_device_busy();
  vgx_sim_unlock();
  if (ours && !idle)
    vgx_sim_resume();
  return idle;
}

void vgx_sim_resume(void) {
  vgx_sim_lock();
  paused = false;
  vgx_sim_notify_locked();
  wake_if_ready(0);
  vgx_sim_unlock();
}

void vgx_sim_word_wait_begin(void) {
  vgx_sim_lock();
  if (running_stream)
    running_stream->waits = true;
  vgx_sim_notify_locked();
  vgx_sim_unlock();
}

void vgx_sim_word_wait_end(void) {
  struct waiter own = {.ticket = 0};
  vgx_sim_lock();
  join_waiters(&own);
  while (paused)
    pthread_cond_wait(&progress, &vgx_sim_runtime_lock);
  leave_waiters(&own);
  if (running_stream)
    running_stream->waits = false;
  vgx_sim_unlock();
}

/* Whether the work of `stream` up to `ticket` is done (legacy stream: of all blocking streams; NULL: of `ctx`). */
static bool is_done(CUcontext ctx, CUstream stream, uint64_t ticket) {
  if (stream && stream != &ctx->legacy)
    return oldest_ticket(stream) > ticket;
  for (struct CUstream_st *s = active_first; s; s = s->active_next)
    if (s->ctx == ctx && oldest_ticket(s) <= ticket && (!stream || !(s->flags & CU_STREAM_NON_BLOCKING)))
      return false;
  return true;
}

static CUresult wait_for(CUcontext ctx, CUstream stream) {
  vgx_sim_lock();
  uint64_t ticket = last_ticket;
  if (stream)
    stream->waiters++;
  while (!is_done(ctx, stream, ticket))
    wait_for_ticket_locked(ticket);
  CUresult result = ctx->sticky;
  if (stream) {
    stream->waiters--;
    vgx_sim_stream_free_unused_locked(stream);
  }
  vgx_sim_unlock();
  return result;
}

CUresult vgx_sim_wait_stream(CUstream stream) { return wait_for(stream->ctx, stream); }

CUresult vgx_sim_wait_context(CUcontext ctx) { return wait_for(ctx, NULL); }
