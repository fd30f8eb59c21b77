#define _GNU_SOURCE
#include "vgs_record_stream.h"
#include "vgs_log.h"
#include "vgs_region.h"
#include "vgs_session.h"
#include "vgs_socket.h"
#include "vgw_progress.h"
#include "vgw_records.h"
#include "vgw_wire.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RECEIVE_NBYTES = 16384, PROGRESS_NBYTES = 1024 };

/* Once there are host functions, the worker reads records ahead of those that it executes (vgx_ahead.h). It has to keep
 * them, and would have to stop reading at some number of bytes; then it could not read that a host function is done,
 * for which the call that it executes may wait. So with more bytes under way, a call waits for its reply. */
#define UNDER_WAY_NBYTES (16u << 20)
enum { KEEPING_NBYTES = 64 }; /* what the worker needs to keep a record besides, and more */

/* A call whose reply a thread sleeps for; lies on that thread's stack. */
struct waiter {
  struct vgs_call *call;
  uint32_t sequence;
  uint64_t sent_nbytes; /* of all records up to this one that are executed in turn */
  bool done, sleeps;
  uint16_t notices; /* VGW_*_PENDING */
  CUresult result;
  pthread_cond_t *wake; /* the thread's: all of its waiters have the same */
  struct waiter *next;
};

/* Lock order: send, then wait. Whoever reads the socket (`reading`) owns the receive buffer and holds no lock
 * meanwhile. */
static struct {
  int fd; /* -1: none */
  uint32_t record_nbytes;
  int error;          /* atomic; CUresult */
  int in_calls;       /* atomic; threads that hold a reference */
  int attached;       /* atomic; a worker is at the other end */
  void (*lose)(void); /* the session's: called before and after `error` is set */
  pthread_mutex_t send;
  uint32_t sequence;       /* under send */
  uint64_t sent_nbytes;    /* atomic, written under send; what records take that are executed in turn */
  uint64_t taken_nbytes;   /* atomic, written under wait; of those that the worker keeps no longer */
  bool has_host_functions; /* atomic */
  pthread_mutex_t wait;
  struct waiter *waiters; /* under wait, as is reading */
  bool reading;
  size_t begin, end; /* unread bytes of buffer */
  uint8_t buffer[RECEIVE_NBYTES];
} stream = {.fd = -1, .send = PTHREAD_MUTEX_INITIALIZER, .wait = PTHREAD_MUTEX_INITIALIZER};

void vgs_stream_start(int fd, uint32_t record_nbytes, void (*lose)(void)) {
  stream.fd = fd;
  stream.lose = lose;
  stream.record_nbytes = record_nbytes;
  stream.begin = stream.end = 0;
  stream.sequence = 0;
  stream.sent_nbytes = stream.taken_nbytes = 0;
  stream.has_host_functions = false;
  __atomic_store_n(&stream.attached, 0, __ATOMIC_RELEASE);
  __atomic_store_n(&stream.error, 0, __ATOMIC_RELEASE);
}

int vgs_stream_fd(void) { return stream.fd; }
void vgs_stream_set_attached(void) { __atomic_store_n(&stream.attached, 1, __ATOMIC_RELEASE); }
bool vgs_stream_attached(void) { return __atomic_load_n(&stream.attached, __ATOMIC_ACQUIRE); }
CUresult vgs_stream_error(void) { return __atomic_load_n(&stream.error, __ATOMIC_ACQUIRE); }

/* Set the sticky error once and wake all waiters. */
static bool set_error(CUresult error) {
  int none = 0;
  if (stream.lose)
    stream.lose();
  if (!__atomic_compare_exchange_n(&stream.error, &none, error, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    return false;
  if (stream.lose)
    stream.lose(); /* once more: vgs_session_reopen may have changed the session's state in between */
  if (stream.fd >= 0)
    shutdown(stream.fd, SHUT_RDWR); /* wakes threads that read or send */
  pthread_mutex_lock(&stream.wait);
  for (struct waiter *waiter = stream.waiters; waiter; waiter = waiter->next)
    pthread_cond_signal(waiter->wake);
  pthread_mutex_unlock(&stream.wait);
  return true;
}

void vgs_stream_fail(CUresult error, const char *reason) {
  if (!set_error(error))
    return;
  vgs_region_detach();
  vgs_log(VGS_LOG_REASON, "session lost: %s. Every call returns %d until the primary context is reset", reason, error);
}

bool vgs_stream_peer_gone(void) {
  char byte;
  if (stream.fd < 0)
    return true;
  ssize_t got = recv(stream.fd, &byte, 1,
                     MSG_PEEK | MSG_DONTWAIT); /* fails if the peer closed with unread bytes of this process */
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

void vgs_stream_shutdown(void) { set_error(CUDA_ERROR_DEINITIALIZED); }

void vgs_stream_ref(void) { __atomic_fetch_add(&stream.in_calls, 1, __ATOMIC_ACQ_REL); }
void vgs_stream_unref(void) { __atomic_fetch_sub(&stream.in_calls, 1, __ATOMIC_ACQ_REL); }
bool vgs_stream_is_used(void) { return __atomic_load_n(&stream.in_calls, __ATOMIC_ACQUIRE); }

void vgs_stream_close(void) {
  vgs_region_end();
  if (stream.fd >= 0)
    close(stream.fd);
  stream.fd = -1;
}

void vgs_stream_abandon(void) {
  vgs_region_abandon();
  if (stream.fd >= 0)
    close(stream.fd);
  stream.fd = -1;
}

/* --- replies --- */

/* Exactly `nbytes` from the stream, through the buffer for small ones. 0 or -errno. */
static int receive(void *into, size_t nbytes) {
  uint8_t *next = into;
  while (nbytes) {
    size_t held = stream.end - stream.begin;
    if (!held && nbytes >= RECEIVE_NBYTES)
      return vgs_socket_receive_all(stream.fd, next, nbytes, VGS_NO_DEADLINE);
    if (!held) {
      ssize_t got = vgs_socket_receive(stream.fd, stream.buffer, sizeof stream.buffer, VGS_NO_DEADLINE);
      if (got <= 0)
        return got ? (int)got : -ECONNRESET;
      stream.begin = 0;
      stream.end = held = (size_t)got;
    }
    size_t taken = held < nbytes ? held : nbytes;
    memcpy(next, stream.buffer + stream.begin, taken);
    stream.begin += taken;
    next += taken;
    nbytes -= taken;
  }
  return 0;
}

/* The body of a reply goes straight into the waiting call's buffers. 0, -EPROTO, or -errno. */
static int receive_body(struct vgs_call *call, uint64_t body_nbytes) {
  uint8_t padding[8];
  uint64_t fixed_nbytes = vgw_pad8(call->reply_fixed_nbytes);
  if (body_nbytes < fixed_nbytes)
    return -EPROTO;
  uint64_t part_nbytes = body_nbytes - fixed_nbytes;
  if (part_nbytes > vgw_pad8(call->reply_part_capacity))
    return -EPROTO;
  int error = receive(call->reply_fixed, call->reply_fixed_nbytes);
  if (!error)
    error = receive(padding, fixed_nbytes - call->reply_fixed_nbytes);
  call->reply_part_nbytes = part_nbytes < call->reply_part_capacity ? part_nbytes : call->reply_part_capacity;
  if (!error)
    error = receive(call->reply_part, call->reply_part_nbytes);
  return error ? error : receive(padding, part_nbytes - call->reply_part_nbytes);
}

static struct waiter *find_waiter(uint32_t sequence) {
  pthread_mutex_lock(&stream.wait);
  struct waiter *waiter = stream.waiters;
  while (waiter && (waiter->sequence != sequence || waiter->done))
    waiter = waiter->next;
  pthread_mutex_unlock(&stream.wait);
  return waiter; /* the waiter stays valid: its thread sleeps until `done` */
}

/* A record that answers no call: a report of the host's progress. 0, -EPROTO, or -errno. */
static int receive_progress(const struct vgw_header *header) {
  char text[PROGRESS_NBYTES + 1] = "";
  if (header->length <= sizeof *header || header->length - sizeof *header > PROGRESS_NBYTES)
    return -EPROTO;
  int error = receive(text, header->length - sizeof *header);
  if (!error && header->flags & VGW_LAST_LINE)
    vgs_log(VGS_LOG_REASON, "%s", text);
  else if (!error)
    vgs_log_progress(text);
  return error;
}

/* Read one reply and hand it to its waiter; on failure the session is over. */
static void read_reply(void) {
  struct vgw_header header;
  int error = receive(&header, sizeof header);
  bool is_progress = !error && !header.opcode && !header.sequence;
  if (is_progress)
    error = receive_progress(&header);
  if (error) {
    vgs_stream_fail(CUDA_ERROR_DEVICE_UNAVAILABLE, error == -ECONNRESET ? "the worker closed the connection"
                                                   : error == -EPROTO   ? "a reply that fits no call"
                                                                        : strerror(-error));
    return;
  }
  if (is_progress)
    return;
  struct waiter *waiter = find_waiter(header.sequence);
  bool sound = header.length >= sizeof header && header.length <= stream.record_nbytes && header.length % 8 == 0 &&
               waiter && waiter->call->opcode == header.opcode;
  uint64_t body_nbytes = header.length - sizeof header;
  CUresult result = (CUresult)header.context;
  if (sound && result)
    sound = body_nbytes == 0;
  if (sound && !result) {
    error = receive_body(waiter->call, body_nbytes);
    sound = error != -EPROTO;
  }
  if (!sound) {
    vgs_stream_fail(CUDA_ERROR_DEVICE_UNAVAILABLE, "a reply that fits no call");
    return;
  }
  if (error) {
    vgs_stream_fail(CUDA_ERROR_DEVICE_UNAVAILABLE, "the worker died in the middle of a reply");
    return;
  }
  pthread_mutex_lock(&stream.wait);
  waiter->result = result;
  waiter->notices = header.flags;
  waiter->done = true;
  if (waiter->sent_nbytes > stream.taken_nbytes)
    __atomic_store_n(&stream.taken_nbytes, waiter->sent_nbytes, __ATOMIC_RELEASE);
  pthread_cond_signal(waiter->wake);
  pthread_mutex_unlock(&stream.wait);
}

/* No thread reads: wake one waiter to do it, or all of them to return if the session has failed. A waiter that does not
 * sleep is still sending its record, which may take until somebody reads. */
static void wake_reader_locked(void) {
  for (struct waiter *other = stream.waiters; other; other = other->next)
    if (other->sleeps && (!other->done || vgs_stream_error())) {
      pthread_cond_signal(other->wake);
      if (!vgs_stream_error())
        break;
    }
}

void vgs_stream_read_arrived(void) {
  char byte;
  pthread_mutex_lock(&stream.wait);
  bool busy = stream.reading;
  stream.reading = true;
  pthread_mutex_unlock(&stream.wait);
  if (busy)
    return;
  if (stream.end > stream.begin || recv(stream.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0)
    read_reply();
  pthread_mutex_lock(&stream.wait);
  stream.reading = false;
  wake_reader_locked();
  pthread_mutex_unlock(&stream.wait);
}

static void sleep_locked(struct waiter *waiter) {
  waiter->sleeps = true;
  pthread_cond_wait(waiter->wake, &stream.wait);
  waiter->sleeps = false;
}

/* Sleep until the reply has arrived. One of the waiting threads reads for all; after its own reply it hands over the
 * reader role, so no thread ever waits for another thread's call. */
static void wait_for_reply(struct waiter *waiter) {
  pthread_mutex_lock(&stream.wait);
  while (!waiter->done && !vgs_stream_error()) {
    if (stream.reading) {
      sleep_locked(waiter);
      continue;
    }
    stream.reading = true;
    pthread_mutex_unlock(&stream.wait);
    read_reply();
    pthread_mutex_lock(&stream.wait);
    stream.reading = false;
  }
  /* A reader may be filling this call's buffers although the session has failed: wait until it has stopped. */
  while (!waiter->done && stream.reading)
    sleep_locked(waiter);
  struct waiter **link = &stream.waiters;
  while (*link != waiter)
    link = &(*link)->next;
  *link = waiter->next;
  if (!stream.reading)
    wake_reader_locked();
  pthread_mutex_unlock(&stream.wait);
}

/* --- requests --- */

/* Whether the worker executes such a record after those that came before it. */
static bool is_in_turn(uint16_t opcode) { return vgw_turn_of(opcode) == VGW_IN_TURN; }

static bool is_too_far_ahead(void) {
  return __atomic_load_n(&stream.has_host_functions, __ATOMIC_ACQUIRE) &&
         __atomic_load_n(&stream.sent_nbytes, __ATOMIC_ACQUIRE) >
             __atomic_load_n(&stream.taken_nbytes, __ATOMIC_ACQUIRE) + UNDER_WAY_NBYTES;
}

/* Write one record. The lock keeps records whole and in the order in which calls began. */
static CUresult send_record(struct vgs_call *call, struct waiter *waiter, void (*sent)(const struct vgs_call *, bool)) {
  static const uint8_t zeros[8];
  struct vgw_header header = {.opcode = call->opcode, .context = vgs_thread_context_id};
  struct iovec iov[4 + 2 * 4];
  int count = 0;
  uint64_t length = sizeof header;
  iov[count++] = (struct iovec){&header, sizeof header};
  if (vgs_thread_correlation) {
    iov[count++] = (struct iovec){&vgs_thread_correlation, sizeof vgs_thread_correlation};
    length += sizeof vgs_thread_correlation;
  }
  for (uint32_t i = 0; i <= call->part_count; i++) {
    struct iovec part = i ? call->parts[i - 1] : (struct iovec){(void *)call->fixed, call->fixed_nbytes};
    if (part.iov_len > stream.record_nbytes)
      return CUDA_ERROR_INVALID_VALUE;
    uint64_t padded = vgw_pad8(part.iov_len);
    if (part.iov_len)
      iov[count++] = part;
    if (padded != part.iov_len)
      iov[count++] = (struct iovec){(void *)zeros, padded - part.iov_len};
    length += padded;
  }
  if (length > stream.record_nbytes)
    return CUDA_ERROR_INVALID_VALUE; /* callers split long data; what cannot be split (a huge name) is refused */
  header.length = (uint32_t)length;
  header.flags = (uint16_t)((waiter ? VGW_WANT_REPLY : 0) | (call->fd >= 0 ? VGW_HAS_FD : 0) |
                            (vgs_thread_correlation ? VGW_CORRELATED : 0));
  pthread_mutex_lock(&stream.send);
  header.sequence = ++stream.sequence;
  if (is_in_turn(call->opcode))
    __atomic_store_n(&stream.sent_nbytes, stream.sent_nbytes + length + KEEPING_NBYTES, __ATOMIC_RELEASE);
  if (call->opcode == VGW_OP_vgpuHostCallback || call->opcode == VGW_OP_vgpuNextCallback)
    __atomic_store_n(&stream.has_host_functions, true, __ATOMIC_RELEASE);
  if (waiter) {
    waiter->sent_nbytes = is_in_turn(call->opcode) ? stream.sent_nbytes : 0;
    waiter->sequence = header.sequence;
    pthread_mutex_lock(&stream.wait);
    waiter->next = stream.waiters;
    stream.waiters = waiter;
    pthread_mutex_unlock(&stream.wait);
  }
  int error = vgs_stream_error() ? 0 : vgs_socket_send(stream.fd, iov, count, call->fd);
  if (sent)
    sent(call, waiter);
  pthread_mutex_unlock(&stream.send);
  if (error)
    vgs_stream_fail(CUDA_ERROR_DEVICE_UNAVAILABLE, strerror(-error));
  return CUDA_SUCCESS;
}

CUresult vgs_stream_call(struct vgs_call *call, bool wait, void (*sent)(const struct vgs_call *, bool),
                         uint16_t *notices) {
  if (wait || (is_in_turn(call->opcode) && !vgs_thread_serves && is_too_far_ahead()))
    return vgs_stream_call_all(call, 1, sent, notices);
  CUresult result = send_record(call, NULL, sent);
  return result ? result : vgs_stream_error();
}

/* Wait for a reply. *first: the first error of several calls. */
static void collect(struct waiter *waiter, CUresult *first, uint16_t *notices) {
  wait_for_reply(waiter);
  *notices |= waiter->done ? waiter->notices : 0;
  if (!*first)
    *first = waiter->done ? waiter->result : vgs_stream_error();
}

CUresult vgs_stream_call_all(struct vgs_call *calls, uint32_t count, void (*sent)(const struct vgs_call *, bool),
                             uint16_t *notices) {
  pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
  struct waiter waiters[VGS_AHEAD];
  CUresult result = CUDA_SUCCESS;
  CUresult first = CUDA_SUCCESS;
  uint32_t registered = 0, over = 0;
  *notices = 0;
  while (registered < count && !result) {
    while (over < registered && is_too_far_ahead())
      collect(&waiters[over++], &first, notices);
    waiters[registered] = (struct waiter){.call = &calls[registered], .wake = &wake};
    result = send_record(&calls[registered], &waiters[registered], sent);
    registered += !result; /* a refused record was not registered */
  }
  while (over < registered) /* each is waited for: replies are written to its call's buffers */
    collect(&waiters[over++], &first, notices);
  return first ? first : result;
}
