/* One session: vgx_serve in a thread, with the calling thread as its client. */
#define _GNU_SOURCE
#include "vgt_fuzz.h"
#include "vgt_fuzz_desks.h"
#include "vgt_fuzz_directed.h"
#include "vgt_fuzz_driver.h"
#include "vgt_fuzz_faults.h"
#include "vgt_fuzz_tenants.h"
#include "vgt_fuzz_walks.h"
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
#include "vgw_pinned.h"
#include "vgw_records.h"
#include "vgw_wire.h"
#include "vgx_backend.h"
#include "vgx_gate.h"
#include "vgx_host_quota.h"
#include "vgx_limit.h"
#include "vgx_meter.h"
#include "vgx_recording.h"
#include "vgx_serve.h"
#include "vgx_sim.h"
#include "vgx_usage.h"

enum {
  HAS_FD = 2,
  WANT_REPLY = 1,
  OPENING_S = 60, /* a machine at a load of 100 needs more than 3 */
  DRAIN_MS = 3000,
  CLEAR_MS = 5000,
  LIMIT_NBYTES = 1 << 30,
  END_MS = 200000,
  RING_OPEN = VGW_OP_vgpuRingOpen,
  FILE_NBYTES = 64 << 10,
  REGION_NBYTES = sizeof(struct vgw_ring)
};
enum { WORDS_MAX = 128 };
enum { ANSWER_TURNS = 8, ANSWERS = 20, REMOTE = 1 };
enum {
  POLL_US = 200, /* or VGT_POLL_US, as many searches beside each other spend much of their time in polling */
  COMPILE_NS = 100000000,
  QUOTA = 20
}; /* the opening makes 12 objects of a kind at most, and the tenant has others */

void vgt_install(void);

static const struct vgx_backend *backend;

static void must(bool true_now, const char *what) {
  if (!true_now) {
    perror(what);
    abort();
  }
}

void vgt_session_init(unsigned process) {
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
  vgt_desks_open(process % VGT_PROCESSES == VGT_PROCESSES - 2);
  backend = vgt_driver(vgx_sim_backend());
  /* vgt_fuzz_nvml.c stands in for NVML: opened as "", this program itself. It knows the first device only. */
  vgx_usage_init("", process & VGT_SHARED ? "GPU-1,GPU-2" : "GPU-2");
  bool limited = process % VGT_PROCESSES / VGT_LIMITED == 1; /* a quarter of the processes */
  if (limited)
    backend = vgx_limit_backend(backend, vgt_tenants_ledger(), VGT_LIMITED_ROW, LIMIT_NBYTES, (const uint8_t[]){0}, 1);
  if (process & VGT_SHARED)
    vgt_tenants_share();
  if ((process & VGT_SHARED) && limited)
    vgt_walk_record(VGT_RECORDED_NBYTES);
}

static void quiet(int level, const char *line) {
  (void)level;
  if (getenv("VGT_LOG"))
    fprintf(stderr, "%s\n", line);
}
static void quiet_line(const char *line) { (void)line; }
static void quiet_denied(unsigned count, const char *function) { (void)count, (void)function; }

static struct vgx_serve_options options;

/* What vgpud decides for a session; the input's length chooses it, so that a replay has the same. */
static void choose_options(uint32_t chosen) {
  static bool metered;
  struct vgw_ledger *ledger = vgt_tenants_ledger();
  if (!metered)
    vgx_meter_set(vgt_zeroes(sizeof(struct vgx_meter)));
  metered = true;
  uint32_t which = chosen / 8 % 4, more = chosen / 32 % 8;
  vgt_driver_words(more & 1);
  options = (struct vgx_serve_options){.features = VGX_FEATURE_PINNED_FD | VGX_FEATURE_RING | VGX_FEATURE_PROGRESS,
                                       .log = quiet,
                                       .backend = backend,
                                       .host_limit_nbytes = 1 << 30,
                                       .region_fd = -1,
                                       .spin_us = which == 1 ? 20 : 0};
  if (which == 3 && more == 0) { /* a virtual machine, whose memory the second ring is in */
    options.features |= VGX_FEATURE_REGION;
    options.region_fd = vgt_zeroes(REGION_NBYTES);
    options.region_nbytes = REGION_NBYTES;
  }
  if (which == 0 && more == 7)
    options.backend = vgt_driver_of_few();
  if (which != 2)
    return;
  options.host_limit_nbytes = 64 << 10;
  options.host_limit_of_share = more & 2;
  options.share = "share";
  options.ledger = ledger;
  options.ledger_row = VGT_ROW;
  options.calls_per_s = more == 6 ? 500 : 20000;
  options.denied = more == 7 ? 1u << VGW_GROUP_EXPORT | 1u << VGW_GROUP_PEER | 1u << VGW_GROUP_MEMOPS : 0;
  options.on_denied = quiet_denied;
  for (uint32_t i = 1; i < VGW_QUOTA_COUNT; i++)
    options.quotas[i] = QUOTA;
  options.quotas[VGW_QUOTA_IMAGE_NBYTES] = 4096;
  options.quotas[VGW_QUOTA_COMPILE_NS] = COMPILE_NS;
}

static atomic_bool served;
static bool threads_ended; /* of this session: only then does vgx_serve free what the session had */
static bool is_last;

bool vgt_session_is_last(void) { return is_last; }
bool vgt_session_let_go(void) { return threads_ended; }

/* The linker puts it in front of the executor's own (tests/fuzz/in_process.py, ENDED). */
void __real_vgx_handles_free(struct vgx_session *s);
void __wrap_vgx_handles_free(struct vgx_session *s);
void __wrap_vgx_handles_free(struct vgx_session *s) {
  threads_ended = true;
  __real_vgx_handles_free(s);
}

static void *serve(void *fd) {
  threads_ended = false;
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
  if (header.context && getenv("VGT_LOG"))
    fprintf(stderr, "result %u\n", header.context);
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

/* A ring in memory that the client's machine shares with the host. */
static struct vgw_ring *open_remote_ring(int fd, uint32_t number) {
  struct {
    struct vgw_header header;
    struct vgw_req_vgpuRingOpenAt request;
  } record = {{.length = sizeof record, .opcode = VGW_OP_vgpuRingOpenAt, .flags = WANT_REPLY, .sequence = 1},
              {.offset = 0, .ring = number}};
  uint64_t value;
  struct vgw_ring *ring = mmap(NULL, sizeof *ring, PROT_READ | PROT_WRITE, MAP_SHARED, options.region_fd, 0);
  must(ring != MAP_FAILED && send_all(fd, &record, sizeof record, -1) && reply(fd, &value), "ring in a region");
  return ring;
}

/* The worker sleeps on a word of its own for a ring in a region. Every eighth call asks: what is lost is found later.
 */
static void wake_remote(int fd, uint32_t number, uint32_t turn) {
  struct {
    struct vgw_header header;
    struct vgw_req_vgpuRingWake request;
  } wake = {{.length = sizeof wake, .opcode = VGW_OP_vgpuRingWake}, {.ring = number}};
  struct {
    struct vgw_header header;
    struct vgw_req_vgpuRingWait request;
  } wait = {{.length = sizeof wait, .opcode = VGW_OP_vgpuRingWait, .flags = WANT_REPLY}, {.ring = number}};
  if (turn % 8 == 0)
    send_all(fd, &wake, sizeof wake, -1);
  if (turn == 8)
    send_all(fd, &wait, sizeof wait, -1);
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

/* False: the device is lost, as after a kernel of an earlier session that the watchdog ended. */
static bool open_session(int fd) {
  static uint8_t records[64 << 10];
  size_t nbytes = vgt_opening(records, sizeof records), found = 0, conditions = 0;
  for (size_t at = 0, sent = 0; at < nbytes;) {
    struct vgw_header header;
    uint64_t value;
    memcpy(&header, records + at, sizeof header);
    if (header.opcode == VGW_OP_cuGraphAddBatchMemOpNode) /* the word that its operation writes */
      memcpy(records + at + sizeof header + sizeof(struct vgw_req_cuGraphAddBatchMemOpNode) + sizeof(uint64_t),
             &vgt_addresses[0], sizeof vgt_addresses[0]);
    if (header.opcode == VGW_OP_vgpuHostMap) /* its place differs under ThreadSanitizer */
      memcpy(records + at + sizeof header, &(uint64_t){VGW_PINNED_BEGIN + VGT_RESERVED_PAGE * VGT_PAGE},
             sizeof(uint64_t));
    if (header.opcode == VGW_OP_vgpuHostReserve)
      memcpy(records + at + sizeof header, &(uint64_t){VGW_PINNED_BEGIN}, sizeof(uint64_t));
    if (header.flags & WANT_REPLY) { /* records without a reply travel with the next one that has one */
      must(at == sent || send_all(fd, records + sent, at - sent, -1), "opening");
      send_one(fd, records + at, header.length);
      sent = at + header.length;
      if (!reply(fd, &value)) {
        if (getenv("VGT_LOG"))
          fprintf(stderr, "the opening failed at opcode %u\n", header.opcode);
        return false;
      }
      if ((header.opcode == VGW_OP_cuMemAlloc_v2 || header.opcode == VGW_OP_cuMemAllocFromPoolAsync) && found < 4)
        vgt_addresses[found++] = value;
      if (header.opcode == VGW_OP_cuGraphConditionalHandleCreate && conditions < 2)
        vgt_conditions[conditions++] = value;
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
  static const uint32_t marks[] = {0, VGW_CALLBACK_OF_GRAPH,
                                   VGW_CALLBACK_OF_GRAPH | VGW_CALLBACK_INTERNAL | VGW_CALLBACK_WHOLE_COPY};
  for (uint32_t number = 1; number <= 3; number++)
    for (uint32_t mark = 0; mark < 3; mark++) {
      done.callback = number | marks[mark];
      send_all(fd, &done, sizeof done, -1);
    }
}

/* Send a record of the harness, of which `words` are the fields. */
static void send_words(int fd, uint16_t opcode, const uint64_t *words, uint32_t count) {
  struct {
    struct vgw_header header;
    uint64_t words[WORDS_MAX];
  } record = {{.length = (uint32_t)(sizeof record.header + count * sizeof *words), .opcode = opcode, .context = 1},
              {0}};
  if (count)
    memcpy(record.words, words, count * sizeof *words);
  send_all(fd, &record, record.header.length, -1);
}

/* A profiler observes some launches, and reads what was measured. */
static void begin_measuring(int fd) {
  union {
    struct vgw_req_cuLaunchKernel request;
    uint64_t words[6];
  } launch = {{.kind = VGW_KIND_FUNCTION,
               .object = 1,
               .gridDimX = 1,
               .gridDimY = 1,
               .gridDimZ = 1,
               .blockDimX = 1,
               .blockDimY = 1,
               .blockDimZ = 1}};
  _Static_assert(sizeof launch == sizeof launch.request, "the words are the request");
  send_words(fd, VGW_OP_vgpuActivityStart, (uint64_t[]){1}, 1);
  for (int i = 0; i < 3; i++)
    send_words(fd, VGW_OP_cuLaunchKernel, launch.words, 6);
}

static void end_measuring(int fd) {
  send_words(fd, VGW_OP_cuCtxSynchronize, NULL, 0);
  send_words(fd, VGW_OP_vgpuActivityTake, (uint64_t[]){64}, 1);
  send_words(fd, VGW_OP_vgpuActivityName, (uint64_t[]){64, 1}, 2);
}

/* Misuse a ring or a tensor map, so that the session ends: at a place that the input's length chooses. */
static void misuse(int fd, struct vgw_ring *ring, uint32_t how) {
  enum { FAR = 1 << 30, UNOPENED = 5 };
  struct {
    struct vgw_req_vgpuTensorMap request;
    struct vgw_tensor_map arguments;
  } map = {.request = {.form = 9, .nbytes = sizeof map.arguments, .map_nbytes = sizeof(CUtensorMap)}};
  _Static_assert(sizeof map <= WORDS_MAX * sizeof(uint64_t) && sizeof map % sizeof(uint64_t) == 0, "map fits");
  struct {
    struct vgw_header header;
    uint64_t number;
  } again = {{.length = sizeof again, .opcode = VGW_OP_vgpuRingOpen, .flags = HAS_FD}, 0};
  if (how == 2) {
    atomic_fetch_add(&ring->tail, 2 * sizeof ring->records);
    atomic_fetch_add(&ring->doorbell, 1);
    vgw_futex_wake(&ring->doorbell);
  } else if (how == 3) {
    send_one(fd, (const uint8_t *)&again, sizeof again);
  } else if (how == 4) {
    send_words(fd, VGW_OP_vgpuRingOpenAt, (uint64_t[]){0, 0}, 2);
  } else if (how == 5) {
    send_words(fd, VGW_OP_vgpuRingOpenAt, (uint64_t[]){FAR, UNOPENED}, 2);
  } else if (how == 6) {
    send_words(fd, VGW_OP_vgpuRingWake, (uint64_t[]){0}, 1);
  } else if (how == 7) {
    send_words(fd, VGW_OP_vgpuRingFence, (uint64_t[]){0, UNOPENED}, 2);
  } else if (how == 8) {
    send_words(fd, VGW_OP_vgpuRingWait, (uint64_t[]){0}, 1);
  } else if (how == 9) {
    send_words(fd, VGW_OP_vgpuTensorMap, (const uint64_t *)(const void *)&map, sizeof map / sizeof(uint64_t));
  } else if (how == 11) {
    send_words(fd, VGW_OP_vgpuHostReserve, (uint64_t[]){VGT_PAGE, VGT_PAGE}, 2);
  } else if (how == 12) {
    send_words(fd, VGW_OP_vgpuKernelName, (uint64_t[]){64, VGW_KIND_CONTEXT, 0}, 3);
  } else if (how == 10) {
    map.request.form = 1;
    map.request.map_nbytes = 8;
    send_words(fd, VGW_OP_vgpuTensorMap, (const uint64_t *)(const void *)&map, sizeof map / sizeof(uint64_t));
  }
}

static bool has_region(void) { return options.features & VGX_FEATURE_REGION; }

static void wake_remote_in(int fd, uint32_t turn) {
  if (has_region())
    wake_remote(fd, REMOTE, turn);
}

static void poll_pause(void) {
  static useconds_t us;
  if (!us)
    us = getenv("VGT_POLL_US") ? (useconds_t)atoi(getenv("VGT_POLL_US")) : POLL_US;
  usleep(us);
}

static void drain(int fd, struct vgw_ring *const *rings, const uint64_t *tails) {
  int64_t deadline = now_ms() + DRAIN_MS;
  uint32_t turn = 0;
  for (int i = 0; i < VGT_SOCKET; i++)
    while (atomic_load(&rings[i]->head) != tails[i] && !is_over(fd) && now_ms() < deadline)
      poll_pause(), answer_callbacks(fd, turn), wake_remote_in(fd, turn++);
}

/* Wait for the session's end. A ring's thread that sleeps looks for it every 100 ms, unless it is woken. */
static void join(pthread_t thread, struct vgw_ring *const *rings) {
  while (!atomic_load(&served)) {
    for (int i = 0; i < VGT_SOCKET; i++) {
      atomic_fetch_add(&rings[i]->doorbell, 1);
      vgw_futex_wake(&rings[i]->doorbell);
    }
    poll_pause();
  }
  pthread_join(thread, NULL); /* ThreadSanitizer does not know pthread_clockjoin_np */
}

/* For VGT_LATE=FILE: append what the threads are doing that have not ended with their session. */
static void tell_late(void) {
  char command[256];
  const char *file = getenv("VGT_LATE");
  if (threads_ended || !file)
    return;
  snprintf(command, sizeof command, "gdb -p %d -batch -ex 'thread apply all bt' >> %s 2>&1", getpid(), file);
  if (system(command))
    perror("gdb");
}

static atomic_bool synchronized;

/* So that the next session can pin memory at the same place. */
static void forget_pinned(void) {
  enum { PAGES = VGT_RESERVED_PAGE + 2 * VGT_RESERVED_PAGES }; /* a record pins four pages from one of 16 on at most */
  char *window = (char *)(uintptr_t)VGW_PINNED_BEGIN;
  for (int page = 0; page < PAGES; page++)
    backend->cuMemHostUnregister(window + page * VGT_PAGE);
  munmap(window, PAGES * VGT_PAGE);
}

static void *synchronize(void *unused) {
  CUcontext context;
  if (backend->cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
      backend->cuCtxSetCurrent(context) == CUDA_SUCCESS) {
    backend->cuCtxSynchronize();
    forget_pinned();
  }
  backend->cuDevicePrimaryCtxReset_v2(0);
  atomic_store(&synchronized, true);
  return unused;
}

/* A real worker's state ends with its process; here the next session runs in the same process. False: not if a stream
 * waits for what will not happen. */
static bool clear_up(void) {
  pthread_t thread;
  vgt_tenants_finish();
  vgx_gate_clear();
  atomic_store(&synchronized, false);
  must(pthread_create(&thread, NULL, synchronize, NULL) == 0, "thread");
  for (int64_t until = now_ms() + CLEAR_MS; !atomic_load(&synchronized);) {
    if (now_ms() > until)
      return false;
    poll_pause();
  }
  pthread_join(thread, NULL);
  return true;
}

uint64_t vgt_session_run(const struct vgt_input *input) {
  int ends[2];
  pthread_t thread;
  uint64_t tails[VGT_SOCKET] = {0}, executed = 0;
  struct vgw_ring *rings[VGT_SOCKET];
  struct timeval patience = {OPENING_S, 0};
  int64_t begun = now_ms();
  vgx_sim_set_log(quiet_line, NULL);
  uint32_t chosen = input->walk ? vgt_walk_choice(input->walk) : input->nbytes;
  choose_options(chosen);
  if (input->walk)
    vgt_walk_begin(input->walk);
  must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
  setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  atomic_store(&served, false);
  must(pthread_create(&thread, NULL, serve, (void *)(intptr_t)ends[1]) == 0, "thread");
  if (!open_session(ends[0])) {
    is_last = true; /* the next child process has a working device */
    return 0;
  }
  if (chosen / 8 % 8 == 1)
    vgt_directed(ends[0]);
  for (uint32_t i = 0; i < VGT_SOCKET; i++)
    rings[i] = has_region() && i == REMOTE ? open_remote_ring(ends[0], i) : open_ring(ends[0], i);
  int64_t opened = now_ms();
  if (input->walk)
    vgt_walk(ends[0], input->walk);
  if (options.spin_us)
    begin_measuring(ends[0]);
  vgt_tenants_change(options.ledger ? chosen / 32 % 64 : 0);
  vgt_driver_accounts(VGT_ACCOUNTS_PARTLY);
  vgt_faults_arm(true);
  for (uint32_t at = 0, count = 0; at < input->nbytes; count++) {
    const struct vgt_step *step = (const struct vgt_step *)(input->data + at);
    const uint8_t *bytes = (const uint8_t *)(step + 1);
    if (step->channel == VGT_SOCKET)
      send_one(ends[0], bytes, step->nbytes);
    else
      push(rings[step->channel % VGT_SOCKET], &tails[step->channel % VGT_SOCKET], bytes, step->nbytes);
    if (has_region() && step->channel == REMOTE)
      wake_remote(ends[0], REMOTE, count);
    if (count == 32 && options.spin_us)
      vgx_progress("a kernel is being compiled", false);
    if (count % 64 == 63 && is_over(ends[0]))
      break;
    at += (uint32_t)sizeof *step + step->nbytes;
  }
  vgt_walk_rings(input->walk, rings[0], &tails[0]);
  drain(ends[0], rings, tails);
  vgt_faults_arm(false);
  int64_t drained = now_ms();
  vgt_tenants_change(0);
  if (options.spin_us)
    end_measuring(ends[0]);
  misuse(ends[0], rings[0], chosen / 8 % 16);
  if (chosen / 8 % 32 == 1)
    vgx_stop();
  shutdown(ends[0], SHUT_WR);
  alarm(END_MS / 1000); /* a session that does not end is a fault, too */
  join(thread, rings);
  tell_late();
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
  vgt_walk_end();
  if (options.region_fd >= 0)
    close(options.region_fd);
  close(ends[0]);
  close(ends[1]);
  int64_t ended = now_ms();
  /* A worker exits even if its session's threads have not ended. Here they would go on in the next session, which is at
   * the same place. */
  is_last = !threads_ended || !clear_up();
  alarm(0);
  if (getenv("VGT_LOG"))
    fprintf(stderr, "%s in %lld ms\n", is_last ? "not cleared up" : "cleared up", (long long)(now_ms() - ended));
  return executed;
}
