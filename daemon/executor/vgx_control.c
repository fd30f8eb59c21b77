/* See vgx_control.h. */
#define _GNU_SOURCE
#include "vgx_control.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DEVICES_MAX = 64, STACK_NBYTES = 128 << 10 };

static struct {
  pthread_mutex_t lock;
  int fd;
  uint64_t (*used)(uint32_t device);
  uint32_t device_count;
} control = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Write {"type": "memory", "nbytes": [...] or nil} as msgpack; returns its length. */
static size_t write_answer(uint8_t *to) {
  static const char head[] = "\x82\xa4type\xa6memory\xa6nbytes";
  size_t length = sizeof head - 1;
  memcpy(to, head, length);
  if (!control.used) {
    to[length++] = 0xc0;
    return length;
  }
  to[length++] = 0xdc; /* msgpack: array 16 */
  to[length++] = 0;
  to[length++] = (uint8_t)control.device_count;
  for (uint32_t i = 0; i < control.device_count; i++) {
    uint64_t nbytes = control.used(i);
    to[length++] = 0xcf; /* uint 64, big-endian */
    for (int shift = 56; shift >= 0; shift -= 8)
      to[length++] = (uint8_t)(nbytes >> shift);
  }
  return length;
}

static void *watch(void *unused) {
  for (;;) {
    uint8_t packet[32 + 9 * DEVICES_MAX];
    ssize_t nbytes = recv(control.fd, packet, sizeof packet, 0);
    if (nbytes < 0 && errno == EINTR)
      continue;
    if (nbytes <= 0)
      _exit(0);
    pthread_mutex_lock(&control.lock);
    size_t length = write_answer(packet); /* memory is the only question that vgpud asks */
    pthread_mutex_unlock(&control.lock);
    send(control.fd, packet, length, MSG_NOSIGNAL); /* if vgpud has gone, the next recv says so */
  }
  return unused;
}

int vgx_control_start(int fd, uint64_t (*used)(uint32_t), uint32_t device_count) {
  pthread_attr_t attributes;
  pthread_t thread;
  control.fd = fd;
  control.used = used;
  control.device_count = device_count < DEVICES_MAX ? device_count : DEVICES_MAX;
  int error = pthread_attr_init(&attributes);
  if (error)
    return error;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, STACK_NBYTES);
  error = pthread_create(&thread, &attributes, watch, NULL);
  pthread_attr_destroy(&attributes);
  return error;
}

void vgx_control_lock(void) { pthread_mutex_lock(&control.lock); }
void vgx_control_unlock(void) { pthread_mutex_unlock(&control.lock); }
