/* The command stream of one session: read, check, execute, reply. See vgx_session.h for who may do what when. */
#define _GNU_SOURCE
#include "vgx_serve.h"

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
#include "vgx_session.h"

#define INPUT_NBYTES (VGW_RECORD_NBYTES + (64u << 10))
#define READ_NBYTES (64u << 10)
#define SEND_TIMEOUT_S 30
#define EXIT_TIMEOUT_S 1
#define HANGUP_TIMEOUT_S 1
#define MAX_LOGGED 50 /* lines a session may write to the log */

static struct vgx_session session;
static atomic_uint logged;

void vgx_log(struct vgx_session *s, int level, const char *format, ...) {
  if (!s->options->log || atomic_fetch_add(&logged, 1) >= MAX_LOGGED)
    return;
  char line[512];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  s->options->log(level, line);
}

void vgx_end(struct vgx_session *s, enum vgx_reason reason, const char *text) {
  if (atomic_exchange(&s->ending, true))
    return;
  atomic_store(&s->reason, reason);
  snprintf(s->reason_text, sizeof s->reason_text, "%s", text);
  atomic_store(&s->ended, true);
  shutdown(s->fd, SHUT_RDWR);
  vgx_callbacks_wake(s);
}

CUresult vgx_violation(struct vgx_session *s, const char *what) {
  char text[200];
  snprintf(text, sizeof text, "protocol violation: %s", what);
  vgx_end(s, VGX_ENDED_BY_VIOLATION, text);
  return CUDA_ERROR_UNKNOWN;
}

CUresult vgx_not_offered(struct vgx_session *s, const char *name) {
  vgx_log(s, 4, "%s is not offered by the %s backend", name, s->backend->name);
  return CUDA_ERROR_NOT_SUPPORTED;
}

bool vgx_text(char *to, const char *from, uint64_t nbytes) {
  if (nbytes >= VGX_TEXT_NBYTES || memchr(from, 0, nbytes))
    return false;
  memcpy(to, from, nbytes);
  to[nbytes] = 0;
  return true;
}

/* From this size on a ring's variable result is written where the client reads it. Such results are only ever written.
 */
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

int vgx_take_fd(struct vgx_session *s) {
  if (!s->fd_count)
    return -1;
  int fd = s->fds[0];
  s->fd_count--;
  memmove(s->fds, s->fds + 1, s->fd_count * sizeof s->fds[0]);
  return fd;
}

/* Receive at least one byte more; false ends the session. */
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
      if (s->fd_count < VGX_MAX_FDS && (s->options->features & VGX_FEATURE_PINNED_FD)) {
        s->fds[s->fd_count++] = fd;
      } else {
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

static CUresult enter_context(struct executor_thread *t, uint32_t id, void *context) {
  if (t->context == id)
    return CUDA_SUCCESS;
  CUresult result = t->s->backend->cuCtxSetCurrent(context);
  t->context = result == CUDA_SUCCESS ? id : 0;
  return result;
}

/* Take the fixed fields, hold what they name, make the context current; then the rest is the operation's. */
static CUresult run_operation(struct executor_thread *t, uint32_t context_id, struct vgw_cursor *in,
                              const struct vgx_operation *op, struct vgx_reply *out) {
  void *context, *objects[VGX_HANDLES_MAX];
  const void *fixed = op->fixed_nbytes ? vgw_take(in, op->fixed_nbytes) : in->cur;
  if (!fixed)
    return vgx_violation(t->s, "short record");
  if ((op->flags & (VGX_ABOUT_CHANNEL | VGX_NEEDS_CONTEXT)) == VGX_ABOUT_CHANNEL)
    context_id = 0;
  t->flags = op->flags;
  CUresult result = vgx_hold(t, op, context_id, fixed, &context, objects);
  if (result == CUDA_SUCCESS && context)
    result = enter_context(t, context_id, context);
  if (result == CUDA_SUCCESS)
    result = op->dispatch(t->s, fixed, objects, in, out);
  vgx_release(t);
  return result;
}

static void answer_socket(struct executor_thread *t, const struct vgw_header *reply, const struct vgx_reply *out) {
  memcpy(out->record, reply, sizeof *reply);
  send_all(t->s, out->record, reply->length);
}

/* The error of a queued call. Its notice goes; another failure meanwhile puts it up again. */
static CUresult take_deferred(struct vgx_session *s) {
  CUresult result = atomic_exchange(&s->deferred, CUDA_SUCCESS);
  vgx_notice(s, VGW_NOTICE_FAILED, false);
  if (atomic_load(&s->deferred))
    vgx_notice(s, VGW_NOTICE_FAILED, true);
  return result;
}

bool vgx_defer(struct vgx_session *s, CUresult result) {
  int none = CUDA_SUCCESS;
  if (!atomic_compare_exchange_strong(&s->deferred, &none, result))
    return false;
  vgx_notice(s, VGW_NOTICE_FAILED, true);
  return true;
}

void vgx_execute(struct executor_thread *t, const struct vgw_header *h, struct vgw_cursor *in,
                 const struct vgx_operation *op) {
  struct vgx_session *s = t->s;
  struct vgx_reply out = {.record = t->output, .shared = t->ring ? vgx_ring_reply_bytes(t->ring) : NULL};
  CUresult result = run_operation(t, h->context, in, op, &out);
  if (atomic_load(&s->ended))
    return;
  if (!(h->flags & VGW_WANT_REPLY)) {
    if (result != CUDA_SUCCESS && vgx_defer(s, result))
      vgx_log(s, 6, "queued %s failed with %d; told at the next blocking call", op->name, result);
    return;
  }
  if (result == CUDA_SUCCESS && (op->flags & (VGX_BLOCKS | VGX_ABOUT_CHANNEL)) == VGX_BLOCKS &&
      atomic_load(&s->deferred))
    result = take_deferred(s);
  if (result != CUDA_SUCCESS)
    out.length = out.private_nbytes = 0;
  struct vgw_header reply = {
      .length = out.length ? out.length : sizeof reply,
      .opcode = h->opcode,
      .flags = s->backend->output_pending && s->backend->output_pending() ? VGW_OUTPUT_PENDING : 0,
      .sequence = h->sequence,
      .context = (uint32_t)result,
  };
  t->answer(t, &reply, &out);
}

static void *run(void *argument);

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
    const struct vgw_header *h = atomic_load(&s->ended) ? NULL : next_record(s);
    if (!h)
      break;
    const struct vgx_operation *op = h->opcode < VGW_OP_COUNT ? &vgx_operations[h->opcode] : NULL;
    if (!op || !op->dispatch) {
      vgx_violation(s, "unknown opcode");
      break;
    }
    /* Whoever waits for `reading` goes on with the next record; without such a thread this one executes in its turn. */
    bool pass_on = (op->flags & VGX_BLOCKS) && (h->flags & VGW_WANT_REPLY) &&
                   (atomic_load(&s->idle_count) > 0 || vgx_thread_start(s, run, NULL, answer_socket));
    if (pass_on) {
      memcpy(t->record, h, h->length);
      h = (const struct vgw_header *)t->record;
      pthread_mutex_unlock(&s->reading);
      leading = false;
    }
    struct vgw_cursor in = {.cur = (const uint8_t *)(h + 1), .end = (const uint8_t *)h + h->length};
    vgx_execute(t, h, &in, op);
  }
  if (leading)
    pthread_mutex_unlock(&s->reading);
  vgx_thread_end(t);
  return NULL;
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

static void *map_buffer(size_t nbytes) {
  void *p = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? NULL : p;
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
                                .record = map_buffer(VGW_RECORD_NBYTES),
                                .output = map_buffer(VGW_RECORD_NBYTES)};
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

/* Until the session has ended. The threads that take turns at reading find the peer's end of file, unless each of them
 * is inside a call that may last for ever (an endless kernel, a fence on what never comes): so this one looks for it,
 * too. A peer that is gone has its last records executed for as long as HANGUP_TIMEOUT_S. */
static void wait_for_end(struct vgx_session *s) {
  while (!atomic_load(&s->ended)) {
    struct pollfd channel = {.fd = s->fd, .events = POLLRDHUP};
    if (poll(&channel, 1, -1) <= 0 || atomic_load(&s->ended))
      continue;
    struct timespec deadline;
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += HANGUP_TIMEOUT_S;
    pthread_mutex_lock(&s->exit_lock);
    for (int late = 0; !atomic_load(&s->ended) && !late;)
      late = pthread_cond_clockwait(&s->exit_signal, &s->exit_lock, CLOCK_MONOTONIC, &deadline);
    pthread_mutex_unlock(&s->exit_lock);
    vgx_end(s, VGX_ENDED_BY_CLIENT, "client closed while its calls were being executed");
  }
}

int vgx_serve(int fd, const struct vgx_serve_options *options) {
  struct vgx_session *s = &session;
  memset(s, 0, sizeof *s);
  atomic_store(&logged, 0);
  s->backend = options->backend;
  s->options = options;
  s->fd = fd;
  pthread_mutex_init(&s->reading, NULL);
  pthread_mutex_init(&s->sending, NULL);
  pthread_mutex_init(&s->table_lock, NULL);
  pthread_mutex_init(&s->ipc_lock, NULL);
  pthread_mutex_init(&s->callback_lock, NULL);
  pthread_mutex_init(&s->exit_lock, NULL);
  pthread_cond_init(&s->callback_due, NULL);
  pthread_cond_init(&s->callback_done, NULL);
  pthread_cond_init(&s->exit_signal, NULL);
  struct timeval timeout = {SEND_TIMEOUT_S, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  s->input = map_buffer(INPUT_NBYTES);
  if (!s->input || !vgx_thread_start(s, run, NULL, answer_socket)) {
    vgx_end(s, VGX_ENDED_BY_RESOURCES, "no memory or threads");
    return VGX_ENDED_BY_RESOURCES;
  }
  wait_for_end(s);
  pthread_mutex_lock(&s->exit_lock);
  /* Threads inside the backend may take their time; the worker's exit ends them. Only a clean end frees the session. */
  struct timespec deadline;
  clock_gettime(CLOCK_MONOTONIC, &deadline);
  deadline.tv_sec += EXIT_TIMEOUT_S;
  int late = 0;
  while (atomic_load(&s->thread_count) && !late)
    late = pthread_cond_clockwait(&s->exit_signal, &s->exit_lock, CLOCK_MONOTONIC, &deadline);
  pthread_mutex_unlock(&s->exit_lock);
  if (!late) {
    while (s->fd_count)
      close(vgx_take_fd(s));
    munmap(s->input, INPUT_NBYTES);
    vgx_handles_free(s);
    vgx_images_free(s);
    vgx_ipc_free(s);
    pthread_mutex_lock(&s->table_lock); /* the backend's threads may still come to a flag */
    free(s->mappings);
    s->mappings = NULL;
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
