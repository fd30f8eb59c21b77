/* The parts of a session that every file of the executor uses: its end, its log, its replies, its threads. */
#define _GNU_SOURCE
#include "vgx_session.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum { MAX_LOGGED = 50 }; /* lines a session may write to the log */

void vgx_log(struct vgx_session *s, int level, const char *format, ...) {
  if (!s->options->log || atomic_fetch_add(&s->logged, 1) >= MAX_LOGGED)
    return;
  char line[512];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  s->options->log(level, line);
}

void vgx_callbacks_wake(struct vgx_session *s) {
  /* Takes callback_lock, so vgx_end must not be called with it held. */
  pthread_mutex_lock(&s->callback_lock);
  pthread_cond_broadcast(&s->callback_due);
  pthread_cond_broadcast(&s->callback_done);
  pthread_mutex_unlock(&s->callback_lock);
  pthread_mutex_lock(&s->exit_lock);
  pthread_cond_broadcast(&s->exit_signal);
  pthread_mutex_unlock(&s->exit_lock);
}

void vgx_end(struct vgx_session *s, enum vgx_reason reason, const char *text) {
  if (atomic_exchange(&s->ending, true))
    return;
  atomic_store(&s->reason, reason);
  snprintf(s->reason_text, sizeof s->reason_text, "%s", text);
  atomic_store(&s->ended, true);
  shutdown(s->fd, SHUT_RDWR);
  if (s->backend && s->backend->end_waits)
    s->backend->end_waits(true);
  vgx_callbacks_wake(s);
  pthread_mutex_lock(&s->ahead.lock);
  pthread_cond_broadcast(&s->ahead.changed);
  pthread_mutex_unlock(&s->ahead.lock);
}

CUresult vgx_violation(struct vgx_session *s, const char *what) {
  char text[200];
  snprintf(text, sizeof text, "protocol violation: %s", what);
  vgx_end(s, VGX_ENDED_BY_VIOLATION, text);
  return CUDA_ERROR_UNKNOWN;
}

bool vgx_text(char *to, const char *from, uint64_t nbytes) {
  if (nbytes >= VGX_TEXT_NBYTES || memchr(from, 0, nbytes))
    return false;
  memcpy(to, from, nbytes);
  to[nbytes] = 0;
  return true;
}

/* Variable results of this size or more are written directly into the ring's reply area. They are write-only here. */
#define DIRECT_NBYTES (64u << 10)

void *vgx_reply_part(struct vgx_reply *out, uint64_t nbytes, uint64_t fixed_nbytes) {
  /* every cap in the specification is far below VGW_RECORD_NBYTES and VGW_RING_REPLY_NBYTES (tests/protocol) */
  out->direct = out->shared && nbytes >= DIRECT_NBYTES;
  return (out->direct ? out->shared : out->record) + sizeof(struct vgw_header) + vgw_pad8(fixed_nbytes);
}

void vgx_reply_finish(struct vgx_reply *out, const void *fixed, uint64_t fixed_nbytes, uint64_t part_nbytes) {
  uint8_t *at = out->record + sizeof(struct vgw_header);
  memset(at + fixed_nbytes, 0, vgw_pad8(fixed_nbytes) - fixed_nbytes);
  if (fixed_nbytes)
    memcpy(at, fixed, fixed_nbytes);
  uint8_t *part = (out->direct ? out->shared + sizeof(struct vgw_header) : at) + vgw_pad8(fixed_nbytes);
  memset(part + part_nbytes, 0, vgw_pad8(part_nbytes) - part_nbytes);
  out->length = (uint32_t)(sizeof(struct vgw_header) + vgw_pad8(fixed_nbytes) + vgw_pad8(part_nbytes));
  out->private_nbytes = (uint32_t)(vgw_pad8(fixed_nbytes) + (out->direct ? 0 : vgw_pad8(part_nbytes)));
}

int vgx_pop_fd(struct vgx_session *s) {
  int fd = -1;
  pthread_mutex_lock(&s->ahead.lock);
  if (s->fd_count) {
    fd = s->fds[0];
    s->fd_count--;
    memmove(s->fds, s->fds + 1, s->fd_count * sizeof s->fds[0]);
  }
  pthread_mutex_unlock(&s->ahead.lock);
  return fd;
}

void vgx_notice(struct vgx_session *s, uint32_t bit, bool on) {
  for (uint32_t i = 0; i < VGW_RINGS_MAX; i++) {
    struct vgw_ring *shared = atomic_load(&s->ring_memory[i]);
    if (shared && on)
      atomic_fetch_or(&shared->notice, bit);
    else if (shared)
      atomic_fetch_and(&shared->notice, ~bit);
  }
}

bool vgx_defer(struct vgx_session *s, CUresult result) {
  int none = CUDA_SUCCESS;
  if (!atomic_compare_exchange_strong(&s->deferred, &none, result))
    return false;
  vgx_notice(s, VGW_NOTICE_FAILED, true);
  return true;
}

void *vgx_buffer_map(size_t nbytes) {
  void *p = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

void vgx_thread_end(struct executor_thread *t) {
  struct vgx_session *s = t->s;
  pthread_mutex_lock(&s->table_lock);
  *(t->previous ? &t->previous->next : &s->threads) = t->next;
  if (t->next)
    t->next->previous = t->previous;
  pthread_mutex_unlock(&s->table_lock);
  munmap(t->record, VGW_RECORD_NBYTES);
  munmap(t->output, VGW_RECORD_NBYTES);
  free(t);
  pthread_mutex_lock(&s->exit_lock);
  atomic_fetch_sub(&s->thread_count, 1);
  pthread_cond_signal(&s->exit_signal);
  pthread_mutex_unlock(&s->exit_lock);
}

bool vgx_thread_start(struct vgx_session *s, void *(*body)(void *), struct vgx_ring *ring,
                      void (*answer)(struct executor_thread *, const struct vgw_header *, const struct vgx_reply *)) {
  uint32_t limit = s->options->max_threads ? s->options->max_threads : 512;
  if (atomic_load(&s->thread_count) >= limit)
    return false;
  struct executor_thread *t = calloc(1, sizeof *t);
  if (!t)
    return false;
  *t = (struct executor_thread){.s = s,
                                .ring = ring,
                                .answer = answer,
                                .record = vgx_buffer_map(VGW_RECORD_NBYTES),
                                .output = vgx_buffer_map(VGW_RECORD_NBYTES)};
  pthread_t thread;
  atomic_fetch_add(&s->thread_count, 1);
  pthread_mutex_lock(&s->table_lock);
  bool started = t->record && t->output && pthread_create(&thread, NULL, body, t) == 0;
  if (started) {
    t->next = s->threads;
    if (t->next)
      t->next->previous = t;
    s->threads = t;
  }
  pthread_mutex_unlock(&s->table_lock);
  if (started) {
    pthread_detach(thread);
    return true;
  }
  atomic_fetch_sub(&s->thread_count, 1);
  if (t->record)
    munmap(t->record, VGW_RECORD_NBYTES);
  if (t->output)
    munmap(t->output, VGW_RECORD_NBYTES);
  free(t);
  return false;
}
