/* The command stream of one session: read, check, execute, reply. See vgx_session.h for who may do what when. */
#define _GNU_SOURCE
#include "vgx_serve.h"
#include "vgw_clock.h"
#include "vgw_progress.h"
#include "vgw_records.h"
#include "vgx_activity.h"
#include "vgx_ahead.h"
#include "vgx_execute.h"
#include "vgx_image.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "vgx_ipc.h"
#include "vgx_ipc_event.h"
#include "vgx_session.h"
#include "vgx_template.h"

#define INPUT_NBYTES (VGW_RECORD_NBYTES + (64u << 10))
#define READ_NBYTES (64u << 10)
#define SEND_TIMEOUT_S 30
#ifndef VGX_EXIT_TIMEOUT_S /* tests that serve one session after another in one process wait longer */
#define VGX_EXIT_TIMEOUT_S 1
#endif
#define HANGUP_TIMEOUT_S 1
/* longest line, and lines per session: not every client reads them */
enum { PROGRESS_NBYTES = 1000, PROGRESS_MAX = 32 };

static struct vgx_session session;

/* Receive at least one more byte. False ends the session. */
static bool receive(struct vgx_session *s, size_t want) {
  size_t room = INPUT_NBYTES - s->end;
  if (room < want) {
    memmove(s->input, s->input + s->begin, s->end - s->begin);
    s->end -= s->begin;
    s->begin = 0;
    room = INPUT_NBYTES - s->end;
  }
  union {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof(int) * VGX_MAX_FDS)];
  } control;
  struct iovec iov = {s->input + s->end, want > READ_NBYTES ? want : room < READ_NBYTES ? room : READ_NBYTES};
  struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  ssize_t n;
  do
    n = recvmsg(s->fd, &message, MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  for (struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&message) : NULL; c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
      continue;
    size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int fd;
      memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      pthread_mutex_lock(&s->ahead.lock);
      bool fits = s->fd_count < VGX_MAX_FDS && (s->options->features & VGX_FEATURE_PINNED_FD);
      if (fits)
        s->fds[s->fd_count++] = fd;
      pthread_mutex_unlock(&s->ahead.lock);
      if (!fits) {
        close(fd);
        vgx_violation(s, "unexpected file descriptors");
      }
    }
  }
  if (n == 0)
    vgx_end(s, VGX_ENDED_BY_CLIENT, s->end == s->begin ? "client closed" : "client closed within a record");
  if (n < 0)
    vgx_end(s, VGX_ENDED_BY_CHANNEL, strerror(errno));
  if (n <= 0 || atomic_load(&s->ended))
    return false;
  s->end += (size_t)n;
  return true;
}

/* The next whole record, in the input buffer; NULL when the session has ended. */
static const struct vgw_header *next_record(struct vgx_session *s) {
  for (;;) {
    size_t have = s->end - s->begin;
    size_t need = sizeof(struct vgw_header);
    if (have >= need) {
      const struct vgw_header *h = (const struct vgw_header *)(s->input + s->begin);
      if (h->length < sizeof *h || h->length > VGW_RECORD_NBYTES || h->length % 8) {
        vgx_violation(s, "record length out of range");
        return NULL;
      }
      need = h->length;
      if (have >= need) {
        s->begin += need;
        return h;
      }
    } else if (have == 0) {
      s->begin = s->end = 0;
    }
    if (!receive(s, need - have))
      return NULL;
  }
}

static void send_all(struct vgx_session *s, const uint8_t *data, size_t nbytes) {
  pthread_mutex_lock(&s->sending);
  while (nbytes && !atomic_load(&s->ended)) {
    ssize_t n = send(s->fd, data, nbytes, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0) {
      vgx_end(s, VGX_ENDED_BY_CHANNEL, errno == EAGAIN ? "the client does not take its replies" : strerror(errno));
      break;
    }
    data += n;
    nbytes -= (size_t)n;
  }
  pthread_mutex_unlock(&s->sending);
}

static void answer_socket(struct executor_thread *t, const struct vgw_header *reply, const struct vgx_reply *out) {
  memcpy(out->record, reply, sizeof *reply);
  send_all(t->s, out->record, reply->length);
}

void vgx_progress(const char *line, bool ends) {
  struct vgx_session *s = &session;
  size_t nbytes = strnlen(line, PROGRESS_NBYTES);
  struct {
    struct vgw_header header;
    char text[PROGRESS_NBYTES + 8];
  } record = {.header.length = (uint32_t)(sizeof record.header + vgw_pad8(nbytes + 1)),
              .header.flags = ends ? VGW_LAST_LINE : 0};
  memcpy(record.text, line, nbytes);
  if (s->options->features & VGX_FEATURE_PROGRESS && (atomic_fetch_add(&s->progress_lines, 1) < PROGRESS_MAX || ends))
    send_all(s, (const uint8_t *)&record, record.header.length);
}

static void *run(void *argument);

/* Whether another thread reads on while this operation is executed. A driver may wait for streams in almost any call,
 * as when it loads a kernel at its first launch, and a stream waits for a host function, whose end has to be read. */
static bool passes_on(struct vgx_session *s, const struct vgw_header *h, const struct vgx_operation *op) {
  bool may_wait = op->flags & VGX_BLOCKS ||
                  (atomic_load(&s->has_callbacks) && !(op->flags & (VGX_ABOUT_CHANNEL | VGX_NOT_IN_RING)));
  return may_wait && h->flags & VGW_WANT_REPLY &&
         (atomic_load(&s->idle_count) > 0 || vgx_thread_start(s, run, NULL, answer_socket));
}

/* Whether the client has closed the socket, or it has failed, and no record of it is left. Waits until one of the two
 * is known. */
static bool is_at_end(const struct vgx_session *s) {
  char next;
  ssize_t n = 1;
  while (s->begin == s->end && (n = recv(s->fd, &next, 1, MSG_PEEK)) < 0 && errno == EINTR)
    continue;
  return n <= 0;
}

static void execute(struct executor_thread *t, const struct vgw_header *h) {
  struct vgw_cursor in = {.cur = (const uint8_t *)(h + 1), .end = (const uint8_t *)h + h->length};
  vgx_execute(t, h, &in, &vgx_operations[h->opcode]);
}

/* Answer the client when host functions are due. */
static void *answer_questions(void *argument) {
  struct executor_thread *t = argument;
  const struct vgw_header *h;
  while (!atomic_load(&t->s->ended) && (h = vgx_ahead_pop(t, &t->s->ahead.questions)))
    execute(t, h);
  vgx_thread_end(t);
  return NULL;
}

/* Read ahead until the session ends. What was read earlier is executed even if the client has closed the socket. */
static void *read_ahead(void *argument) {
  struct executor_thread *t = argument;
  struct vgx_session *s = t->s;
  const struct vgw_header *h;
  bool answers = vgx_thread_start(s, answer_questions, NULL, answer_socket), goes_on = true;
  while (goes_on && !atomic_load(&s->ended) && !is_at_end(s) && (h = next_record(s))) {
    enum vgw_turn turn = vgw_turn_of(h->opcode);
    if (turn == VGW_OVERTAKES)
      execute(t, h);
    else
      goes_on = vgx_ahead_push(s, answers && turn == VGW_ASKS ? &s->ahead.questions : &s->ahead.in_turn, h);
  }
  vgx_ahead_end(s);
  vgx_thread_end(t);
  return NULL;
}

/* The next record that a thread executes which takes its turn; `reading` is held. From the first host function on
 * another thread reads: it is started before the record that was just read is executed, unless that is one which a
 * later one must not overtake: two writes of the same bytes keep their order. */
static const struct vgw_header *next_in_turn(struct executor_thread *t) {
  struct vgx_session *s = t->s;
  const struct vgw_header *h = s->ahead.started ? vgx_ahead_pop(t, &s->ahead.in_turn) : NULL;
  if (h || atomic_load(&s->ended))
    return h;
  h = next_record(s);
  if (!h || s->ahead.started || !vgx_ahead_is_due(s) || vgw_turn_of(h->opcode) == VGW_OVERTAKES)
    return h;
  h = memcpy(t->record, h, h->length);
  s->ahead.started = vgx_thread_start(s, read_ahead, NULL, answer_socket);
  return h;
}

/* Take turns at reading until the session ends. */
static void *run(void *argument) {
  struct executor_thread *t = argument;
  struct vgx_session *s = t->s;
  bool leading = false;
  while (!atomic_load(&s->ended)) {
    if (!leading) {
      atomic_fetch_add(&s->idle_count, 1);
      pthread_mutex_lock(&s->reading);
      atomic_fetch_sub(&s->idle_count, 1);
      leading = true;
    }
    const struct vgw_header *h = atomic_load(&s->ended) ? NULL : next_in_turn(t);
    if (!h)
      break;
    const struct vgx_operation *op = h->opcode < VGW_OP_COUNT ? &vgx_operations[h->opcode] : NULL;
    if (!op || !op->dispatch) {
      vgx_violation(s, "unknown opcode");
      break;
    }
    /* A thread that waits for `reading` continues with the next record; without one, this thread executes the record
     * itself. */
    if (passes_on(s, h, op)) {
      if ((const void *)h != t->record)
        memcpy(t->record, h, h->length);
      h = (const struct vgw_header *)t->record;
      pthread_mutex_unlock(&s->reading);
      leading = false;
    }
    execute(t, h);
  }
  if (leading)
    pthread_mutex_unlock(&s->reading);
  vgx_thread_end(t);
  return NULL;
}

/* Wait until the session has ended. The threads that take turns at reading find the peer's end of file, unless all of
 * them are inside calls that may never return (an endless kernel, a fence on something that never happens): so this
 * thread checks for it, too. After the peer is gone, its last records are executed for up to HANGUP_TIMEOUT_S. */
static void wait_for_end(struct vgx_session *s) {
  while (!atomic_load(&s->ended)) {
    struct pollfd channel = {.fd = s->fd, .events = POLLRDHUP};
    if (poll(&channel, 1, -1) <= 0 || atomic_load(&s->ended))
      continue;
    struct timespec deadline = vgw_deadline(HANGUP_TIMEOUT_S);
    pthread_mutex_lock(&s->exit_lock);
    for (int late = 0; !atomic_load(&s->ended) && !late;)
      late = pthread_cond_clockwait(&s->exit_signal, &s->exit_lock, CLOCK_MONOTONIC, &deadline);
    pthread_mutex_unlock(&s->exit_lock);
    vgx_end(s, VGX_ENDED_BY_CLIENT, "client closed while its calls were being executed");
  }
}

int vgx_serve(int fd, const struct vgx_serve_options *options) {
  static struct vgx_serve_options kept; /* the caller's may be folded (vgx_fold.h) */
  struct vgx_session *s = &session;
  /* only after an earlier session of this process: writing zeros to untouched pages would allocate them */
  if (s->options)
    memset(s, 0, sizeof *s);
  vgx_reasons_clear();
  vgx_activities_clear();
  if (options->backend->set_reason)
    options->backend->set_reason(vgx_reason_add);
  if (options->backend->set_compiling)
    options->backend->set_compiling(vgx_compile_begin, vgx_compile_end);
  if (options->backend->end_waits)
    options->backend->end_waits(false);
  s->backend = options->backend;
  kept = *options;
  s->options = &kept;
  s->fd = fd;
  vgx_quota_start(s);
  pthread_mutex_init(&s->reading, NULL);
  vgx_ahead_init(s);
  pthread_mutex_init(&s->sending, NULL);
  pthread_mutex_init(&s->alone_lock, NULL);
  pthread_mutex_init(&s->table_lock, NULL);
  pthread_mutex_init(&s->pace_lock, NULL);
  pthread_mutex_init(&s->export_lock, NULL);
  pthread_mutex_init(&s->ipc_lock, NULL);
  pthread_mutex_init(&s->callback_lock, NULL);
  pthread_mutex_init(&s->exit_lock, NULL);
  pthread_cond_init(&s->callback_due, NULL);
  pthread_cond_init(&s->callback_done, NULL);
  pthread_cond_init(&s->exit_signal, NULL);
  struct timeval timeout = {SEND_TIMEOUT_S, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  vgx_template_release();
  s->input = vgx_buffer_map(INPUT_NBYTES);
  if (!s->input || !vgx_thread_start(s, run, NULL, answer_socket)) {
    vgx_end(s, VGX_ENDED_BY_RESOURCES, "no memory or threads");
    return VGX_ENDED_BY_RESOURCES;
  }
  wait_for_end(s);
  pthread_mutex_lock(&s->exit_lock);
  /* Threads inside the backend may take their time; the worker's exit ends them. Only a clean end frees the session. */
  struct timespec deadline = vgw_deadline(VGX_EXIT_TIMEOUT_S);
  int late = 0;
  while (atomic_load(&s->thread_count) && !late)
    late = pthread_cond_clockwait(&s->exit_signal, &s->exit_lock, CLOCK_MONOTONIC, &deadline);
  pthread_mutex_unlock(&s->exit_lock);
  if (!late) {
    while (s->fd_count)
      close(vgx_pop_fd(s));
    munmap(s->input, INPUT_NBYTES);
    vgx_ahead_fini(s);
    vgx_handles_free(s);
    vgx_images_free(s);
    vgx_ipc_free(s);
    vgx_ipc_events_free(s);
    pthread_mutex_lock(&s->table_lock); /* the backend's threads may still write a flag */
    for (uint32_t i = 0; i < s->mapping_count; i++)
      free(s->mappings[i].pages);
    free(s->mappings);
    s->mappings = NULL;
    free(s->graph_ranges);
    s->graph_ranges = NULL;
    s->graph_range_count = 0;
    s->mapping_count = 0;
    pthread_mutex_unlock(&s->table_lock);
  }
  return atomic_load(&s->reason);
}

const char *vgx_reason_text(void) { return session.reason_text; }

void vgx_stop(void) {
  if (session.options)
    vgx_end(&session, VGX_ENDED_BY_STOP, "stopped");
}
