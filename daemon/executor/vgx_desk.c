#include "vgx_desk.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* After MISSED_MAX questions without an answer, vgpud has probably crashed and lost one of them: from then on each
 * answer would be counted as a late one, and each question would wait for the whole timeout. */
enum { TIMEOUT_S = 2, LATE_MAX = 4, MISSED_MAX = 8 };

union control {
  struct cmsghdr header;
  char space[CMSG_SPACE(sizeof(int))];
};

void vgx_desk_open(struct vgx_desk *desk, int fd) {
  struct timeval timeout = {TIMEOUT_S, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  desk->fd = fd;
}

/* Receive one packet. Returns its size, 0 if the socket is closed, or a negative number; `*fd`: its descriptor or -1.
 */
static ssize_t receive(int from, void *packet, size_t nbytes, int *fd, int flags) {
  union control control = {0};
  struct iovec iov = {packet, nbytes};
  struct msghdr message = {
      .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.space};
  ssize_t got;
  do
    got = recvmsg(from, &message, MSG_CMSG_CLOEXEC | flags);
  while (got < 0 && errno == EINTR);
  struct cmsghdr *c = got >= 0 ? CMSG_FIRSTHDR(&message) : NULL;
  *fd = -1;
  if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof *fd))
    memcpy(fd, CMSG_DATA(c), sizeof *fd);
  return got;
}

/* Drop late answers that have come. */
static void drop_late(struct vgx_desk *desk) {
  char packet[1];
  int fd;
  while (desk->late && receive(desk->fd, packet, sizeof packet, &fd, MSG_DONTWAIT) > 0) {
    if (fd >= 0)
      close(fd);
    desk->late--;
  }
}

bool vgx_desk_send(struct vgx_desk *desk, const void *question, size_t nbytes, int fd) {
  union control control = {0};
  struct iovec iov = {(void *)question, nbytes};
  struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
  if (fd >= 0) {
    message.msg_control = &control;
    message.msg_controllen = sizeof control.space;
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
  }
  drop_late(desk);
  return !desk->failed && desk->late < LATE_MAX &&
         sendmsg(desk->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)nbytes;
}

bool vgx_desk_receive(struct vgx_desk *desk, void *answer, size_t nbytes, int *fd) {
  for (;;) {
    ssize_t got = receive(desk->fd, answer, nbytes, fd, 0);
    if (got == (ssize_t)nbytes && !desk->late) {
      desk->missed = 0;
      return true;
    }
    if (*fd >= 0)
      close(*fd);
    *fd = -1;
    if (got != (ssize_t)nbytes) {
      bool timed_out = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
      desk->late += timed_out;
      desk->failed = !timed_out || ++desk->missed == MISSED_MAX;
      return false;
    }
    desk->late--;
  }
}
