/* See vgx_recording.h. A call's data in a ring are read here once more, so a client that changes them meanwhile is
 * recorded with other bytes than those that were used. */
#include "vgx_recording.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/uio.h>
#include <unistd.h>

#include "vgx_session.h"

enum { PIECES_MAX = 5 };

bool vgx_recording_on;

static struct {
  pthread_mutex_t lock; /* entries are written whole, in the order of their calls' numbers */
  int fd;
  uint64_t left, calls;
} recording = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

void vgx_recording_set(int fd, uint64_t limit_nbytes) {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); /* of this end of the pipe alone */
  recording.fd = fd;
  recording.left = limit_nbytes;
  recording.calls = 0;
  vgx_recording_on = true;
}

/* Whether the pipe has room again, or has failed, in time. */
static bool wait_for_room(void) {
  struct pollfd pipe = {.fd = recording.fd, .events = POLLOUT};
  int ready;
  do
    ready = poll(&pipe, 1, VGX_RECORDING_TIMEOUT_MS);
  while (ready < 0 && errno == EINTR);
  return ready > 0;
}

/* Write all pieces, or nothing more for ever: a file that ends within an entry ends with the one before. */
static void write_locked(struct vgx_session *s, struct iovec *piece, int count) {
  while (count) {
    ssize_t written = writev(recording.fd, piece, count);
    if (written < 0 && (errno == EINTR || (errno == EAGAIN && wait_for_room())))
      continue;
    if (written <= 0) {
      if (written < 0 && errno == EAGAIN)
        vgx_log(s, 4, "the recording stops: what it wrote was not read for %d ms", VGX_RECORDING_TIMEOUT_MS);
      recording.left = 0;
      return;
    }
    for (; count && (size_t)written >= piece->iov_len; count--, piece++)
      written -= (ssize_t)piece->iov_len;
    if (count) {
      piece->iov_base = (char *)piece->iov_base + written;
      piece->iov_len -= (size_t)written;
    }
  }
}

/* `pieces`: an entry's bytes, in at most three parts. */
static void put_locked(struct vgx_session *s, enum vgx_recorded kind, uint64_t call, const struct iovec *pieces,
                       int count) {
  static const uint64_t zero;
  struct vgx_recorded_entry entry = {.kind = kind, .call = call};
  struct iovec all[PIECES_MAX] = {{&entry, sizeof entry}};
  uint64_t nbytes = 0;
  for (int i = 0; i < count; i++) {
    all[i + 1] = pieces[i];
    nbytes += pieces[i].iov_len;
  }
  if (!recording.left)
    return;
  uint64_t taken = sizeof entry + vgw_pad8(nbytes);
  bool full = taken >= recording.left;
  if (full) {
    entry.kind = VGX_RECORDED_FULL;
    count = 0;
    nbytes = 0;
  }
  entry.nbytes = (uint32_t)nbytes;
  recording.left -= full ? recording.left : taken;
  all[count + 1] = (struct iovec){(void *)(uintptr_t)&zero, vgw_pad8(nbytes) - nbytes};
  write_locked(s, all, count + 2);
}

uint64_t vgx_recording_call(struct vgx_session *s, const struct vgw_header *header, const struct vgw_cursor *in) {
  struct iovec pieces[] = {{(void *)(uintptr_t)header, sizeof *header},
                           {(void *)(uintptr_t)in->cur, (size_t)(in->end - in->cur)},
                           {(void *)(uintptr_t)in->more, in->more ? (size_t)(in->more_end - in->more) : 0}};
  pthread_mutex_lock(&recording.lock);
  uint64_t call = ++recording.calls;
  put_locked(s, VGX_RECORDED_CALL, call, pieces, sizeof pieces / sizeof *pieces);
  pthread_mutex_unlock(&recording.lock);
  return call;
}

void vgx_recording_answer(struct vgx_session *s, uint64_t call, const struct vgw_header *reply,
                          const struct vgx_reply *out) {
  size_t after = reply->length - sizeof *reply; /* the header is not in the buffers yet */
  size_t own = after < out->private_nbytes ? after : out->private_nbytes;
  struct iovec pieces[] = {{(void *)(uintptr_t)reply, sizeof *reply}, {out->record + sizeof *reply, own}, {NULL, 0}};
  if (after > own)
    pieces[2] = (struct iovec){(out->direct ? out->shared : out->record) + sizeof *reply + own, after - own};
  pthread_mutex_lock(&recording.lock);
  put_locked(s, VGX_RECORDED_ANSWER, call, pieces, sizeof pieces / sizeof *pieces);
  pthread_mutex_unlock(&recording.lock);
}
