/* See vgt_fuzz_channel.h. */
#define _GNU_SOURCE
#include "vgt_fuzz_channel.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "vgt_fuzz.h"
#include "vgt_fuzz_must.h"
#include "vgw_records.h"

enum { FILE_NBYTES = 64 << 10 };

static bool send_with(int fd, const void *data, size_t nbytes, int passed, int flags) {
  union {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
  } control;
  struct iovec part = {(void *)(uintptr_t)data, nbytes};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  if (passed >= 0) {
    memset(&control, 0, sizeof control);
    message.msg_control = &control;
    message.msg_controllen = sizeof control.bytes;
    *CMSG_FIRSTHDR(&message) = (struct cmsghdr){CMSG_LEN(sizeof passed), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &passed, sizeof passed);
  }
  return syscall(SYS_sendmsg, fd, &message, MSG_NOSIGNAL | flags) == (ssize_t)nbytes; /* never made to fail */
}

bool vgt_send_with(int fd, const void *record, size_t nbytes, int passed) {
  return send_with(fd, record, nbytes, passed, 0);
}

bool vgt_send_now(int fd, const void *record, size_t nbytes, int passed) {
  return send_with(fd, record, nbytes, passed, MSG_DONTWAIT);
}

bool vgt_reply(int fd, uint64_t *value) {
  struct vgw_header header;
  uint8_t body[4096];
  *value = 0;
  if (recv(fd, &header, sizeof header, MSG_WAITALL) != sizeof header || header.length < sizeof header ||
      header.length - sizeof header > sizeof body)
    return false;
  size_t nbytes = header.length - sizeof header;
  if (nbytes && recv(fd, body, nbytes, MSG_WAITALL) != (ssize_t)nbytes)
    return false;
  if (nbytes >= sizeof *value)
    memcpy(value, body, sizeof *value);
  if (header.context && getenv("VGT_LOG"))
    fprintf(stderr, "result %u\n", header.context);
  return header.context == 0; /* in a reply: the result */
}

bool vgt_is_over(int fd) {
  char rest[4096];
  struct pollfd state = {.fd = fd, .events = POLLIN | POLLRDHUP};
  while (poll(&state, 1, 0) > 0 && !(state.revents & (POLLRDHUP | POLLHUP | POLLERR)))
    if (recv(fd, rest, sizeof rest, MSG_DONTWAIT) <= 0)
      return true;
  return state.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

struct vgw_ring *vgt_ring_open(int fd, uint32_t number) {
  struct {
    struct vgw_header header;
    uint32_t ring, zero;
  } record = {
      {.length = sizeof record, .opcode = VGW_OP_vgpuRingOpen, .flags = VGW_HAS_FD | VGW_WANT_REPLY, .sequence = 1},
      number,
      0};
  uint64_t value;
  int file = memfd_create("vgt-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  vgt_must(file >= 0 && ftruncate(file, sizeof(struct vgw_ring)) == 0 &&
               fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0,
           "ring");
  struct vgw_ring *ring = mmap(NULL, sizeof *ring, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  vgt_must(ring != MAP_FAILED && vgt_send_now(fd, &record, sizeof record, file) && vgt_reply(fd, &value), "ring");
  close(file);
  return ring;
}

struct vgw_ring *vgt_ring_open_at(int fd, uint32_t number, int region_fd) {
  struct {
    struct vgw_header header;
    struct vgw_req_vgpuRingOpenAt request;
  } record = {{.length = sizeof record, .opcode = VGW_OP_vgpuRingOpenAt, .flags = VGW_WANT_REPLY, .sequence = 1},
              {.offset = 0, .ring = number}};
  uint64_t value;
  struct vgw_ring *ring = mmap(NULL, sizeof *ring, PROT_READ | PROT_WRITE, MAP_SHARED, region_fd, 0);
  vgt_must(ring != MAP_FAILED && vgt_send_now(fd, &record, sizeof record, -1) && vgt_reply(fd, &value),
           "ring in a region");
  return ring;
}

void vgt_ring_wake(int fd, uint32_t number, uint32_t turn) {
  struct {
    struct vgw_header header;
    struct vgw_req_vgpuRingWake request;
  } wake = {{.length = sizeof wake, .opcode = VGW_OP_vgpuRingWake}, {.ring = number}};
  struct {
    struct vgw_header header;
    struct vgw_req_vgpuRingWait request;
  } wait = {{.length = sizeof wait, .opcode = VGW_OP_vgpuRingWait, .flags = VGW_WANT_REPLY}, {.ring = number}};
  if (turn % 8 == 0)
    vgt_send_now(fd, &wake, sizeof wake, -1);
  if (turn == 8)
    vgt_send_now(fd, &wait, sizeof wait, -1);
}

void vgt_send_file(int fd, const uint8_t *bytes, uint32_t nbytes) {
  struct vgw_header header;
  memcpy(&header, bytes, sizeof header);
  int file = header.flags & VGW_HAS_FD ? memfd_create("vgt-file", MFD_CLOEXEC | MFD_ALLOW_SEALING) : -1;
  if (file >= 0 && (ftruncate(file, FILE_NBYTES) || fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)))
    perror("file");
  vgt_send_now(fd, bytes, nbytes, file);
  if (file >= 0)
    close(file);
}

void vgt_send_words(int fd, uint16_t opcode, const uint64_t *words, uint32_t count) {
  struct {
    struct vgw_header header;
    uint64_t words[VGT_WORDS_MAX];
  } record = {{.length = (uint32_t)(sizeof record.header + count * sizeof *words), .opcode = opcode, .context = 1},
              {0}};
  if (count)
    memcpy(record.words, words, count * sizeof *words);
  vgt_send_now(fd, &record, record.header.length, -1);
}

void vgt_ring_push(struct vgw_ring *ring, uint64_t *tail, const uint8_t *bytes, uint32_t nbytes) {
  memcpy(ring->records + *tail, bytes, nbytes);
  if (nbytes <= VGW_SHORT_NBYTES && *tail & 8) { /* half of them also beside the ring's words */
    uint64_t words[VGW_SHORT_NBYTES / 8] = {0};
    memcpy(words, bytes, nbytes);
    for (int i = 0; i < VGW_SHORT_NBYTES / 8; i++)
      atomic_store_explicit(&ring->short_record[i], words[i], memory_order_relaxed);
    atomic_store_explicit(&ring->short_at, *tail + 1, memory_order_release);
  }
  *tail += nbytes;
  atomic_store_explicit(&ring->tail, *tail, memory_order_release);
  atomic_fetch_add(&ring->doorbell, 1);
  if (atomic_load(&ring->worker_waits))
    vgw_futex_wake(&ring->doorbell);
}

void vgt_rings_tell(struct vgw_ring *const *rings, const uint64_t *tails) {
  for (int i = 0; i < VGT_SOCKET; i++) {
    uint64_t head = atomic_load(&rings[i]->head);
    struct vgw_header header = {0};
    if (head < tails[i])
      memcpy(&header, rings[i]->records + head, sizeof header);
    fprintf(stderr, "ring %d at opcode %u\n", i, header.opcode);
  }
}
