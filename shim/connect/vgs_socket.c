#include "vgs_socket.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "vgw_clock.h"

int64_t vgs_now_ms(void) { return (int64_t)(vgw_now_ns() / 1000000); }

int vgs_socket_wait(int fd, short events, int64_t deadline_ms) {
  for (;;) {
    int64_t left_ms = deadline_ms == VGS_NO_DEADLINE ? -1 : deadline_ms - vgs_now_ms();
    if (deadline_ms != VGS_NO_DEADLINE && left_ms < 0)
      return -ETIMEDOUT;
    struct pollfd poll_fd = {.fd = fd, .events = events};
    int ready = poll(&poll_fd, 1, (int)left_ms);
    if (ready > 0)
      return 0;
    if (ready < 0 && errno != EINTR)
      return -errno;
  }
}

int vgs_socket_send(int fd, struct iovec *iov, int count, int pass_fd) {
  union {
    struct cmsghdr header; /* for its alignment */
    char bytes[CMSG_SPACE(sizeof(int))];
  } control;
  while (count) {
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)count};
    if (pass_fd >= 0) {
      memset(&control, 0, sizeof control);
      message.msg_control = control.bytes;
      message.msg_controllen = sizeof control.bytes;
      struct cmsghdr *header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      memcpy(CMSG_DATA(header), &pass_fd, sizeof pass_fd);
    }
    ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR)
      continue;
    if (sent < 0)
      return -errno;
    pass_fd = -1;
    while (count && (size_t)sent >= iov->iov_len) {
      sent -= (ssize_t)iov->iov_len;
      iov++;
      count--;
    }
    if (count) {
      iov->iov_base = (char *)iov->iov_base + sent;
      iov->iov_len -= (size_t)sent;
    }
  }
  return 0;
}

ssize_t vgs_socket_receive(int fd, void *into, size_t nbytes, int64_t deadline_ms) {
  for (;;) {
    if (deadline_ms != VGS_NO_DEADLINE) {
      int ready = vgs_socket_wait(fd, POLLIN, deadline_ms);
      if (ready < 0)
        return ready;
    }
    ssize_t got = recv(fd, into, nbytes, 0);
    if (got >= 0)
      return got;
    if (errno != EINTR)
      return -errno;
  }
}

int vgs_socket_receive_all(int fd, void *into, size_t nbytes, int64_t deadline_ms) {
  char *next = into;
  while (nbytes) {
    ssize_t got = vgs_socket_receive(fd, next, nbytes, deadline_ms);
    if (got <= 0)
      return got ? (int)got : -ECONNRESET;
    next += got;
    nbytes -= (size_t)got;
  }
  return 0;
}
