/* The worker's end of the socket to the host's cache of images: one SOCK_SEQPACKET packet a message
 * (daemon/vgpud/image_service.py is the other end). */
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "vgx_session.h"

enum { FIND = 1, STORE = 2, TIMEOUT_S = 2 };

struct question {
  uint32_t kind, zero;
  uint64_t nbytes; /* of the image, without its padding */
  uint64_t digest[4];
};

struct answer {
  uint32_t found, zero; /* 1: the descriptor comes with it */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a question and its answer */
static int cache_fd = -1;
static bool failed; /* an answer that is missing might come for the next question: nothing is asked any more */

void vgx_image_cache_set(int fd) {
  struct timeval timeout = {TIMEOUT_S, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  cache_fd = fd;
}

bool vgx_image_cache_is_there(void) { return cache_fd >= 0; }

/* Send without waiting: a host that does not keep up stores nothing, and finds nothing. */
static bool ask(uint32_t kind, const uint64_t digest[4], uint64_t nbytes, int fd) {
  struct question question = {.kind = kind, .nbytes = nbytes};
  memcpy(question.digest, digest, sizeof question.digest);
  union {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof(int))];
  } control = {0};
  struct iovec iov = {&question, sizeof question};
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
  return sendmsg(cache_fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof question;
}

static int receive(struct answer *answer) {
  union {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof(int))];
  } control = {0};
  struct iovec iov = {answer, sizeof *answer};
  struct msghdr message = {
      .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.space};
  if (recvmsg(cache_fd, &message, MSG_CMSG_CLOEXEC) != sizeof *answer) {
    failed = true;
    return -1;
  }
  int fd = -1;
  struct cmsghdr *c = CMSG_FIRSTHDR(&message);
  if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof fd))
    memcpy(&fd, CMSG_DATA(c), sizeof fd);
  return fd;
}

int vgx_image_cache_find(const uint64_t digest[4], uint64_t nbytes) {
  struct answer answer;
  pthread_mutex_lock(&lock);
  int fd = !failed && ask(FIND, digest, nbytes, -1) ? receive(&answer) : -1;
  pthread_mutex_unlock(&lock);
  return fd;
}

void vgx_image_cache_store(const uint64_t digest[4], uint64_t nbytes, int fd) {
  pthread_mutex_lock(&lock);
  if (!failed)
    ask(STORE, digest, nbytes, fd);
  pthread_mutex_unlock(&lock);
}
