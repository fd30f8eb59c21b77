#include "vgx_desk.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { TIMEOUT_S = 2 };

union control {
  struct cmsghdr header;
  char space[CMSG_SPACE(sizeof(int))];
};

void vgx_desk_open(struct vgx_desk *desk, int fd) {
  struct timeval timeout = {TIMEOUT_S, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  desk->fd = fd;
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
  return !desk->failed && sendmsg(desk->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)nbytes;
}

bool vgx_desk_receive(struct vgx_desk *desk, void *answer, size_t nbytes, int *fd) {
  union control control = {0};
  struct iovec iov = {answer, nbytes};
  struct msghdr message = {
      .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.space};
  *fd = -1;
  ssize_t got = recvmsg(desk->fd, &message, MSG_CMSG_CLOEXEC);
  struct cmsghdr *c = got >= 0 ? CMSG_FIRSTHDR(&message) : NULL;
  if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof *fd))
    memcpy(fd, CMSG_DATA(c), sizeof *fd);
  if (got == (ssize_t)nbytes)
    return true;
  desk->failed = true;
  if (*fd >= 0)
    close(*fd);
  *fd = -1;
  return false;
}
