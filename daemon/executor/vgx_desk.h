/* The worker's end of a socket to vgpud on which it asks questions: one SOCK_SEQPACKET packet a message, each with at
 * most one descriptor (daemon/vgpud/services/desk.py is the other end). */
#ifndef VGX_DESK_H
#define VGX_DESK_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct vgx_desk {
  pthread_mutex_t lock; /* held for the length of one request and its answer */
  int fd;               /* -1: there is none */
  unsigned late;        /* questions whose answers are late: these arrive before the next question's answer */
  unsigned missed;      /* consecutive questions without an answer in time */
  bool failed;          /* the socket is closed, sent a packet of another size, or has lost an answer: it is unusable */
};
#define VGX_DESK_NONE {PTHREAD_MUTEX_INITIALIZER, -1, 0, 0, false}

void vgx_desk_open(struct vgx_desk *desk, int fd);

/* Send without blocking, since vgpud may not keep up; `fd` -1: no descriptor. Also fails while the answers to several
 * questions are late. */
bool vgx_desk_send(struct vgx_desk *desk, const void *question, size_t nbytes, int fd);

/* Receive the answer, within two seconds, and its descriptor or -1; the caller owns the descriptor. */
bool vgx_desk_receive(struct vgx_desk *desk, void *answer, size_t nbytes, int *fd);

#endif
