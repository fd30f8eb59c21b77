/* A TCP relay on loopback that delays data: `delay TARGET_PORT ONE_WAY_US`. Prints the port that it listens on, then,
 * for each line on standard input, the totals so far: turns, bytes from the client, bytes to the client. A turn is data
 * from the client that follows data from the server: N waiting calls in sequence are N turns, queued calls are none.
 * The relay ends at the end of standard input.
 *
 * One thread for each direction of a connection reads data, holds it for the delay and writes it. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PIECE_NBYTES = 1 << 18, HELD_MAX = 1 << 10, SPIN_NS = 60000 };

static int target;
static int64_t one_way_ns;
static atomic_ullong turns, nbytes[2]; /* bytes from the client, bytes to the client */

struct piece {
  int64_t due;
  size_t nbytes;
  struct piece *next;
  char data[];
};

struct direction {
  int from, to;
  bool down;
  atomic_bool *answered; /* the last data came from the server; shared by both directions */
};

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void count(const struct direction *d, size_t length) {
  nbytes[d->down] += length;
  if (d->down)
    *d->answered = true;
  else if (atomic_exchange(d->answered, false))
    turns++;
}

static bool write_all(int fd, const char *data, size_t length) {
  while (length) {
    ssize_t done = write(fd, data, length);
    if (done < 0 && errno == EINTR)
      continue;
    if (done <= 0)
      return false;
    data += done;
    length -= (size_t)done;
  }
  return true;
}

/* Sleep until `from` is readable or `due` is near; near `due`, only poll: timers are late by tens of microseconds. */
static bool wait_for_either(int from, bool may_read, int64_t due) {
  struct pollfd fd = {may_read ? from : -1, POLLIN, 0};
  int64_t left = due ? due - now() : -1;
  if (due && left < SPIN_NS)
    return may_read && poll(&fd, 1, 0) > 0;
  left -= SPIN_NS;
  struct timespec timeout = {left / 1000000000, left % 1000000000};
  return ppoll(&fd, 1, due ? &timeout : NULL, NULL) > 0;
}

static void *relay(void *argument) {
  struct direction *d = argument;
  struct piece *head = NULL, **tail = &head;
  int held = 0;
  bool open = true;
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  while (open || head) {
    if (wait_for_either(d->from, open && held < HELD_MAX, head ? head->due : 0)) {
      struct piece *piece = malloc(sizeof *piece + PIECE_NBYTES);
      ssize_t got = piece ? read(d->from, piece->data, PIECE_NBYTES) : 0;
      if (got <= 0) {
        open = false;
        free(piece);
        continue;
      }
      count(d, (size_t)got);
      struct piece *fitting = realloc(piece, sizeof *piece + (size_t)got);
      piece = fitting ? fitting : piece;
      *piece = (struct piece){.due = now() + one_way_ns, .nbytes = (size_t)got};
      *tail = piece;
      tail = &piece->next;
      held++;
    }
    while (head && now() >= head->due) {
      struct piece *first = head;
      head = first->next;
      if (!head)
        tail = &head;
      held--;
      if (!write_all(d->to, first->data, first->nbytes))
        open = false;
      free(first);
    }
  }
  shutdown(d->to, SHUT_WR);
  free(d);
  return NULL;
}

static void start(int from, int to, bool down, atomic_bool *answered) {
  struct direction *d = malloc(sizeof *d);
  pthread_t thread;
  if (!d)
    abort();
  *d = (struct direction){from, to, down, answered};
  if (pthread_create(&thread, NULL, relay, d))
    abort();
  pthread_detach(thread);
}

static void *listen_for_clients(void *argument) {
  int listener = *(int *)argument, one = 1;
  for (;;) {
    struct sockaddr_in address = {AF_INET, htons((uint16_t)target), {htonl(INADDR_LOOPBACK)}, {0}};
    int client = accept(listener, NULL, NULL), server = socket(AF_INET, SOCK_STREAM, 0);
    atomic_bool *answered = calloc(1, sizeof *answered); /* never freed: there are few connections */
    if (client < 0 || server < 0 || !answered || connect(server, (void *)&address, sizeof address)) {
      close(client);
      close(server);
      free(answered);
      continue;
    }
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    start(client, server, false, answered);
    start(server, client, true, answered);
  }
  return NULL;
}

int main(int argc, char **argv) {
  struct sockaddr_in address = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {0}};
  socklen_t length = sizeof address;
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  pthread_t thread;
  if (argc != 3)
    return 2;
  target = atoi(argv[1]);
  one_way_ns = (int64_t)(atof(argv[2]) * 1000);
  if (bind(listener, (void *)&address, sizeof address) || listen(listener, 64) ||
      getsockname(listener, (void *)&address, &length) || pthread_create(&thread, NULL, listen_for_clients, &listener))
    return 1;
  printf("%d\n", ntohs(address.sin_port));
  fflush(stdout);
  while (getchar() == '\n') {
    printf("%llu %llu %llu\n", turns, nbytes[0], nbytes[1]);
    fflush(stdout);
  }
  return 0;
}
