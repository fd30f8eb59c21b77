/* One session: vgx_serve in a thread, with the calling thread as its client. */
#define _GNU_SOURCE
#include "vgt_fuzz.h"
#include "vgt_fuzz_desks.h"
#include "vgt_fuzz_driver.h"
#include "vgt_fuzz_faults.h"
#include "vgw_clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "vgw_ledger.h"
#include "vgw_records.h"
#include "vgw_wire.h"
#include "vgx_backend.h"
#include "vgx_host_quota.h"
#include "vgx_meter.h"
#include "vgx_serve.h"
#include "vgx_sim.h"

enum {
  HAS_FD = 2,
  WANT_REPLY = 1,
  DRAIN_MS = 3000,
  END_MS = 200000,
  RING_OPEN = VGW_OP_vgpuRingOpen,
  FILE_NBYTES = 64 << 10
};
enum { ANSWER_TURNS = 8, ANSWERS = 20 };
enum { POLL_US = 200, LEDGER_ROW = 3, QUOTA = 16 }; /* the opening makes 12 objects of a kind at most */

void vgt_install(void);

static const struct vgx_backend *backend;

static void must(bool true_now, const char *what) {
  if (!true_now) {
    perror(what);
    abort();
  }
}

void vgt_session_init(void) {
  static struct vgx_sim_device_properties properties = {.memory_nbytes = 4ull << 30, .context_nbytes = 1 << 20};
  static const int32_t known[][2] = {{1, 1024},   {2, 1024},  {3, 1024},   {4, 64},   {5, INT32_MAX}, {6, 65535},
                                     {7, 65535},  {8, 49152}, {10, 32},    {16, 132}, {39, 2048},     {75, 9},
                                     {81, 49152}, {95, 1},    {97, 49152}, {106, 32}, {111, 1024}};
  for (int i = 0; i < (int)VGX_SIM_ATTRIBUTES_MAX; i++)
    properties.attributes[i] = INT32_MIN;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    properties.attributes[known[i][0]] = known[i][1];
  properties.attributes[76] = 0;
  for (int i = 0; i < (int)VGX_SIM_LIMITS_MAX; i++)
    properties.limits[i] = i < 3 ? (uint64_t[]){1024, 4096, 8 << 20}[i] : UINT64_MAX;
  properties.priority_greatest = -5;
  must(!vgx_sim_configure(0, &properties), "simulator");
  vgx_sim_set_threads(2);
  vgx_sim_set_watchdog(2000);
  vgt_install();
  vgt_desks_open();
  backend = vgt_driver(vgx_sim_backend());
}

static void quiet(int level, const char *line) {
  (void)level;
  if (getenv("VGT_LOG"))
    fprintf(stderr, "%s\n", line);
}
static void quiet_line(const char *line) { (void)line; }

static struct vgx_serve_options options;

static int zeroes(size_t nbytes) {
  int file = memfd_create("vgt-zeroes", MFD_CLOEXEC);
  must(file >= 0 && ftruncate(file, (off_t)nbytes) == 0, "file");
  return file;
}

/* What vgpud decides for a session; the input's length chooses it, so that a replay has the same. */
static void choose_options(const struct vgt_input *input) {
  static struct vgw_ledger *ledger;
  if (!ledger) {
    int file = zeroes(sizeof *ledger);
    must((ledger = vgx_ledger_map(file, LEDGER_ROW)) != NULL, "ledger");
    close(file);
    vgx_meter_set(zeroes(sizeof(struct vgx_meter)));
  }
  uint32_t which = input->nbytes / 8 % 4;
  options = (struct vgx_serve_options){.features = VGX_FEATURE_PINNED_FD | VGX_FEATURE_RING | VGX_FEATURE_PROGRESS,
                                       .log = quiet,
                                       .backend = backend,
                                       .host_limit_nbytes = 1 << 30,
                                       .spin_us = which == 1 ? 20 : 0};
  if (which != 2)
    return;
  options.host_limit_nbytes = 64 << 10;
  options.host_limit_of_share = true;
  options.share = "share";
  options.ledger = ledger;
  options.ledger_row = LEDGER_ROW;
  options.calls_per_s = 20000;
  for (uint32_t i = 1; i < VGW_QUOTA_COUNT; i++)
    options.quotas[i] = QUOTA;
  options.quotas[VGW_QUOTA_IMAGE_NBYTES] = 4096;
  options.quotas[VGW_QUOTA_COMPILE_NS] = 1000000;
}

static atomic_bool served;

static void *serve(void *fd) {
  vgx_serve((int)(intptr_t)fd, &options);
  atomic_store(&served, true);
  return NULL;
}

static bool send_all(int fd, const void *data, size_t nbytes, int passed) {
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
  return syscall(SYS_sendmsg, fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)nbytes; /* never made to fail */
}

/* Read a reply; `value`: its first eight bytes, or zero. False: the session is over, or the result is an error. */
static bool reply(int fd, uint64_t *value) {
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
  return header.context == 0; /* in a reply: the result */
}

static struct vgw_ring *open_ring(int fd, uint32_t number) {
  struct {
    struct vgw_header header;
    uint32_t ring, zero;
  } record = {{.length = sizeof record, .opcode = RING_OPEN, .flags = HAS_FD | WANT_REPLY, .sequence = 1}, number, 0};
  uint64_t value;
  int file = memfd_create("vgt-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  must(file >= 0 && ftruncate(file, sizeof(struct vgw_ring)) == 0 &&
           fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0,
       "ring");
  struct vgw_ring *ring = mmap(NULL, sizeof *ring, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  must(ring != MAP_FAILED && send_all(fd, &record, sizeof record, file) && reply(fd, &value), "ring");
  close(file);
  return ring;
}

/* False: the device is lost, as after a kernel of an earlier session that the watchdog ended. */
static bool open_session(int fd) {
  static uint8_t records[64 << 10];
  size_t nbytes = vgt_opening(records, sizeof records), found = 0;
  for (size_t at = 0, sent = 0; at < nbytes;) {
    struct vgw_header header;
    uint64_t value;
    memcpy(&header, records + at, sizeof header);
    if (header.flags & WANT_REPLY) { /* records without a reply travel with the next one that has one */
      must(send_all(fd, records + sent, at + header.length - sent, -1), "opening");
      sent = at + header.length;
      if (!reply(fd, &value))
        return false;
      if (header.opcode == VGW_OP_cuMemAlloc_v2 && found < 4)
        vgt_addresses[found++] = value;
    }
    at += header.length;
  }
  return true;
}

/* An input is smaller than a ring, so the ring never becomes full and never wraps around. */
static void push(struct vgw_ring *ring, uint64_t *tail, const uint8_t *bytes, uint32_t nbytes) {
  memcpy(ring->records + *tail, bytes, nbytes);
  *tail += nbytes;
  atomic_store_explicit(&ring->tail, *tail, memory_order_release);
  atomic_fetch_add(&ring->doorbell, 1);
  if (atomic_load(&ring->worker_waits))
    vgw_futex_wake(&ring->doorbell);
}

/* Send a record; with a descriptor of a client's file, if the record's flags have HAS_FD. */
static void send_one(int fd, const uint8_t *bytes, uint32_t nbytes) {
  struct vgw_header header;
  memcpy(&header, bytes, sizeof header);
  int file = header.flags & HAS_FD ? memfd_create("vgt-file", MFD_CLOEXEC | MFD_ALLOW_SEALING) : -1;
  if (file >= 0 && (ftruncate(file, FILE_NBYTES) || fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)))
    perror("file");
  send_all(fd, bytes, nbytes, file);
  if (file >= 0)
    close(file);
}

/* For VGT_LOG: print the opcode at which each ring stopped. */
static void tell_heads(struct vgw_ring *const *rings, const uint64_t *tails) {
  for (int i = 0; i < VGT_SOCKET; i++) {
    uint64_t head = atomic_load(&rings[i]->head);
    struct vgw_header header = {0};
    if (head < tails[i])
      memcpy(&header, rings[i]->records + head, sizeof header);
    fprintf(stderr, "ring %d at opcode %u\n", i, header.opcode);
  }
}

static int64_t now_ms(void) { return (int64_t)(vgw_now_ns() / 1000000); }

static bool is_over(int fd) {
  char rest[4096];
  struct pollfd state = {.fd = fd, .events = POLLIN | POLLRDHUP};
  while (poll(&state, 1, 0) > 0 && !(state.revents & (POLLRDHUP | POLLHUP | POLLERR)))
    if (recv(fd, rest, sizeof rest, MSG_DONTWAIT) <= 0)
      return true;
  return state.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

/* Ask which function is due, and say that those with the numbers of VGT_SMALL have been called. */
static void answer_callbacks(int fd, uint32_t turn) {
  static const struct vgw_header next = {.length = sizeof next, .opcode = VGW_OP_vgpuNextCallback, .flags = WANT_REPLY};
  struct {
    struct vgw_header header;
    uint32_t callback, zero;
  } done = {.header = {.length = sizeof done, .opcode = VGW_OP_vgpuCallbackDone}};
  if (turn % ANSWER_TURNS || turn >= ANSWERS * ANSWER_TURNS)
    return;
  send_all(fd, &next, sizeof next, -1);
  for (done.callback = 1; done.callback <= 3; done.callback++)
    send_all(fd, &done, sizeof done, -1);
}

static void drain(int fd, struct vgw_ring *const *rings, const uint64_t *tails) {
  int64_t deadline = now_ms() + DRAIN_MS;
  uint32_t turn = 0;
  for (int i = 0; i < VGT_SOCKET; i++)
    while (atomic_load(&rings[i]->head) != tails[i] && !is_over(fd) && now_ms() < deadline)
      usleep(POLL_US), answer_callbacks(fd, turn++);
}

/* Wait for the session's end. A ring's thread that sleeps looks for it every 100 ms, unless it is woken. */
static void join(pthread_t thread, struct vgw_ring *const *rings) {
  while (!atomic_load(&served)) {
    for (int i = 0; i < VGT_SOCKET; i++) {
      atomic_fetch_add(&rings[i]->doorbell, 1);
      vgw_futex_wake(&rings[i]->doorbell);
    }
    usleep(POLL_US);
  }
  pthread_join(thread, NULL); /* ThreadSanitizer does not know pthread_clockjoin_np */
}

/* A real worker's state ends with its process; here the next session runs in the same process. */
static void clear_up(void) {
  CUcontext context;
  if (backend->cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
      backend->cuCtxSetCurrent(context) == CUDA_SUCCESS)
    backend->cuCtxSynchronize();
  backend->cuDevicePrimaryCtxReset_v2(0);
}

uint64_t vgt_session_run(const struct vgt_input *input) {
  int ends[2];
  pthread_t thread;
  uint64_t tails[VGT_SOCKET] = {0}, executed = 0;
  struct vgw_ring *rings[VGT_SOCKET];
  struct timeval patience = {DRAIN_MS / 1000, 0};
  int64_t begun = now_ms();
  vgx_sim_set_log(quiet_line, NULL);
  choose_options(input);
  must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
  setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  atomic_store(&served, false);
  must(pthread_create(&thread, NULL, serve, (void *)(intptr_t)ends[1]) == 0, "thread");
  if (!open_session(ends[0]))
    exit(0); /* the next child process has a working device */
  for (uint32_t i = 0; i < VGT_SOCKET; i++)
    rings[i] = open_ring(ends[0], i);
  int64_t opened = now_ms();
  vgt_faults_arm(true);
  for (uint32_t at = 0, count = 0; at < input->nbytes; count++) {
    const struct vgt_step *step = (const struct vgt_step *)(input->data + at);
    const uint8_t *bytes = (const uint8_t *)(step + 1);
    if (step->channel == VGT_SOCKET)
      send_one(ends[0], bytes, step->nbytes);
    else
      push(rings[step->channel % VGT_SOCKET], &tails[step->channel % VGT_SOCKET], bytes, step->nbytes);
    if (count % 64 == 63 && is_over(ends[0]))
      break;
    at += (uint32_t)sizeof *step + step->nbytes;
  }
  drain(ends[0], rings, tails);
  vgt_faults_arm(false);
  int64_t drained = now_ms();
  shutdown(ends[0], SHUT_WR);
  alarm(END_MS / 1000); /* a session that does not end is a fault, too */
  join(thread, rings);
  alarm(0);
  if (getenv("VGT_LOG"))
    tell_heads(rings, tails);
  if (getenv("VGT_LOG"))
    fprintf(stderr, "ended: %s (%lld ms to open, %lld to execute, %lld to end)\n", vgx_reason_text(),
            (long long)(opened - begun), (long long)(drained - opened), (long long)(now_ms() - drained));
  for (uint32_t i = 0; i < VGT_SOCKET; i++) {
    executed += atomic_load(&rings[i]->executed);
    munmap(rings[i], sizeof *rings[i]);
  }
  vgx_meter_finish();
  close(ends[0]);
  close(ends[1]);
  int64_t ended = now_ms();
  clear_up();
  if (getenv("VGT_LOG"))
    fprintf(stderr, "cleared up in %lld ms\n", (long long)(now_ms() - ended));
  return executed;
}
