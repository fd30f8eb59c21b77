/* vgpud's services for a worker: they give whoever asks the image that was stored last, every second time, and the
 * object of the kind that was shared last. Of images, two answers come too late. */
#define _GNU_SOURCE
#include "vgt_fuzz_desks.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "vgt_fuzz_tenants.h"
#include "vgx_image_cache.h"
#include "vgx_ipc.h"

/* Questions that get their answer too late, and those that get half of one, after which a worker asks no more. */
enum { LATE = 6, LATE_AGAIN = 12, HALF_IMAGE = 18, HALF = 1500, HALF_NBYTES = 4 };
enum { PATIENCE_US = 100000 }; /* a worker's own is two seconds, in which a search does much */
enum { PUBLISH = 1, FIND = 2, KINDS = 8 };

/* The packets of vgx_ipc.c. */
struct question {
  uint32_t kind, what;
  uint64_t nbytes;
  char token[64], handle[64];
};
struct answer {
  int32_t result;
  uint32_t zero;
  uint64_t nbytes;
  char token_or_handle[64];
};
union control {
  char bytes[CMSG_SPACE(sizeof(int))];
  struct cmsghdr align;
};

bool vgt_descriptor_counts(int fd) {
  static const char physical[] = "/memfd:vgpu-physical";
  char path[32], name[sizeof physical];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(path, name, sizeof physical - 1);
  return length >= 0 && (length != sizeof physical - 1 || memcmp(name, physical, sizeof physical - 1) != 0);
}

static _Atomic int held; /* descriptors that the services have */

int vgt_desks_held(void) { return held; }

static void let_go(int fd) {
  if (fd < 0)
    return;
  held -= vgt_descriptor_counts(fd);
  close(fd);
}

static ssize_t receive(int fd, void *question, size_t nbytes, int *passed) {
  union control control;
  struct iovec part = {question, nbytes};
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.bytes};
  ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
  struct cmsghdr *c = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
  *passed = -1;
  if (c)
    memcpy(passed, CMSG_DATA(c), sizeof *passed);
  held += vgt_descriptor_counts(*passed);
  return got;
}

static bool send_answer(int fd, const void *answer, size_t nbytes, int passed) {
  union control control = {0};
  struct iovec part = {(void *)(uintptr_t)answer, nbytes};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  if (passed >= 0) {
    message.msg_control = &control;
    message.msg_controllen = sizeof control.bytes;
    *CMSG_FIRSTHDR(&message) = (struct cmsghdr){CMSG_LEN(sizeof passed), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &passed, sizeof passed);
  }
  /* the system call, because fault injection wraps sendmsg */
  return syscall(SYS_sendmsg, fd, &message, MSG_NOSIGNAL) == (ssize_t)nbytes;
}

static int images = -1; /* a worker's end */
static bool half_image;
static _Atomic uint32_t images_asked;

bool vgt_desks_late(void) { return images_asked == LATE_AGAIN; }

static void *answer_images(void *argument) {
  int fd = (int)(intptr_t)argument, passed, stored = -1;
  uint64_t question[6];
  while (receive(fd, question, sizeof question, &passed) > 0)
    if (passed >= 0) {
      let_go(stored);
      stored = passed;
    } else {
      uint32_t asked = ++images_asked;
      uint64_t found = stored >= 0 && asked % 2 == 0;
      if (asked == LATE || asked == LATE_AGAIN)
        usleep(VGT_LATE_US);
      if (!send_answer(fd, &found, asked == HALF_IMAGE && half_image ? HALF_NBYTES : sizeof found, found ? stored : -1))
        break;
    }
  return NULL;
}

static void *answer_ipc(void *argument) {
  int fd = (int)(intptr_t)argument, passed;
  struct {
    bool is_there;
    uint64_t nbytes;
    char handle[64];
    int fd;
  } last[KINDS] = {0};
  struct question question;
  uint32_t asked = 0;
  while (receive(fd, &question, sizeof question, &passed) > 0) {
    struct answer answer = {0};
    int of = (int)(question.what % KINDS), given = -1;
    if (question.kind == PUBLISH) {
      if (last[of].is_there)
        let_go(last[of].fd);
      last[of].is_there = true;
      last[of].nbytes = question.nbytes;
      last[of].fd = passed;
      if (question.what == VGX_IPC_EVENT && passed >= 0)
        vgt_tenants_record(passed);
      memcpy(last[of].handle, question.handle, sizeof question.handle);
      answer.token_or_handle[0] = (char)question.what;
    } else if (question.kind == FIND && last[of].is_there) {
      answer.nbytes = last[of].nbytes;
      memcpy(answer.token_or_handle, last[of].handle, sizeof question.handle);
      given = last[of].fd;
    } else if (question.kind == FIND) {
      answer.result = 1; /* CUDA_ERROR_INVALID_VALUE */
    }
    if (!send_answer(fd, &answer, ++asked == HALF ? HALF_NBYTES : sizeof answer, given))
      break;
  }
  return NULL;
}

static int open_desk(void *(*answer)(void *)) {
  int ends[2];
  pthread_t thread;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) ||
      pthread_create(&thread, NULL, answer, (void *)(intptr_t)ends[0])) {
    perror("desk");
    abort();
  }
  pthread_detach(thread);
  return ends[1];
}

void vgt_desks_cache(bool is_there) {
  const struct timeval patience = {0, PATIENCE_US};
  vgx_image_cache_set(is_there ? images : -1);
  if (is_there)
    setsockopt(images, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
}

void vgt_desks_open(bool half) {
  half_image = half;
  images = open_desk(answer_images);
  vgt_desks_cache(true);
  vgx_ipc_set(open_desk(answer_ipc));
}
