/* One session: vgx_serve in a thread, with the calling thread as its client. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "vgt_fuzz.h"
#include "vgt_fuzz_channel.h"
#include "vgt_fuzz_client.h"
#include "vgt_fuzz_directed.h"
#include "vgt_fuzz_driver.h"
#include "vgt_fuzz_faults.h"
#include "vgt_fuzz_host.h"
#include "vgt_fuzz_must.h"
#include "vgt_fuzz_tenants.h"
#include "vgt_fuzz_walks.h"
#include "vgw_clock.h"
#include "vgw_ledger.h"
#include "vgw_pinned.h"
#include "vgw_wire.h"
#include "vgx_gate.h"
#include "vgx_meter.h"
#include "vgx_sim.h"

enum {
  OPENING_S = 60, /* a machine at a load of 100 needs more than 3 */
  DRAIN_MS = 3000,
  CLEAR_MS = 5000,
  END_MS = 200000,
  POLL_US = 200, /* or VGT_POLL_US, as many searches beside each other spend much of their time in polling */
  REMOTE = 1     /* the ring in the region, if there is one */
};

static const struct vgx_serve_options *options;
static atomic_bool served;
static bool threads_ended; /* of this session: only then does vgx_serve free what the session had */
static bool is_last;

bool vgt_session_is_last(void) { return is_last; }
bool vgt_session_let_go(void) { return threads_ended; }

/* The linker puts it in front of the executor's own (tests/fuzz/build.py, ENDED). */
void __real_vgx_handles_free(struct vgx_session *s);
void __wrap_vgx_handles_free(struct vgx_session *s);
void __wrap_vgx_handles_free(struct vgx_session *s) {
  threads_ended = true;
  __real_vgx_handles_free(s);
}

static void *serve(void *fd) {
  threads_ended = false;
  vgx_serve((int)(intptr_t)fd, options);
  atomic_store(&served, true);
  return NULL;
}

static void quiet_line(const char *line) { (void)line; }
static int64_t now_ms(void) { return (int64_t)(vgw_now_ns() / 1000000); }

static bool has_region(void) { return options->features & VGX_FEATURE_REGION; }

static void wake_remote_in(int fd, uint32_t turn) {
  if (has_region())
    vgt_ring_wake(fd, REMOTE, turn);
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
    while (atomic_load(&rings[i]->head) != tails[i] && !vgt_is_over(fd) && now_ms() < deadline)
      poll_pause(), vgt_client_answer(fd, turn), wake_remote_in(fd, turn++);
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
    vgt_host_backend()->cuMemHostUnregister(window + page * VGT_PAGE);
  munmap(window, PAGES * VGT_PAGE);
}

static void *synchronize(void *unused) {
  const struct vgx_backend *backend = vgt_host_backend();
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
  vgt_must(pthread_create(&thread, NULL, synchronize, NULL) == 0, "thread");
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
  options = vgt_host_options(chosen);
  if (input->walk)
    vgt_walk_begin(input->walk);
  vgt_must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
  setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  atomic_store(&served, false);
  vgt_must(pthread_create(&thread, NULL, serve, (void *)(intptr_t)ends[1]) == 0, "thread");
  if (!vgt_client_open(ends[0])) {
    is_last = true; /* the next child process has a working device */
    return 0;
  }
  if (chosen / 8 % 8 == 1)
    vgt_directed(ends[0]);
  for (uint32_t i = 0; i < VGT_SOCKET; i++)
    rings[i] =
        has_region() && i == REMOTE ? vgt_ring_open_at(ends[0], i, options->region_fd) : vgt_ring_open(ends[0], i);
  int64_t opened = now_ms();
  if (input->walk)
    vgt_walk(ends[0], input->walk);
  if (options->spin_us)
    vgt_client_measure(ends[0]);
  vgt_tenants_change(options->ledger ? chosen / 32 % 64 : 0);
  vgt_driver_accounts(VGT_ACCOUNTS_PARTLY);
  vgt_faults_arm(true);
  for (uint32_t at = 0, count = 0; at < input->nbytes; count++) {
    const struct vgt_step *step = (const struct vgt_step *)(input->data + at);
    const uint8_t *bytes = (const uint8_t *)(step + 1);
    if (step->channel == VGT_SOCKET)
      vgt_send_file(ends[0], bytes, step->nbytes);
    else
      vgt_ring_push(rings[step->channel % VGT_SOCKET], &tails[step->channel % VGT_SOCKET], bytes, step->nbytes);
    if (has_region() && step->channel == REMOTE)
      vgt_ring_wake(ends[0], REMOTE, count);
    if (count == 32 && options->spin_us)
      vgx_progress("a kernel is being compiled", false);
    if (count % 64 == 63 && vgt_is_over(ends[0]))
      break;
    at += (uint32_t)sizeof *step + step->nbytes;
  }
  vgt_walk_rings(input->walk, rings[0], &tails[0]);
  drain(ends[0], rings, tails);
  vgt_faults_arm(false);
  int64_t drained = now_ms();
  vgt_tenants_change(0);
  if (options->spin_us)
    vgt_client_measured(ends[0]);
  vgt_client_misuse(ends[0], rings[0], chosen / 8 % 16);
  if (chosen / 8 % 32 == 1)
    vgx_stop();
  shutdown(ends[0], SHUT_WR);
  alarm(END_MS / 1000); /* a session that does not end is a fault, too */
  join(thread, rings);
  tell_late();
  if (getenv("VGT_LOG"))
    vgt_rings_tell(rings, tails);
  if (getenv("VGT_LOG"))
    fprintf(stderr, "ended: %s (%lld ms to open, %lld to execute, %lld to end)\n", vgx_reason_text(),
            (long long)(opened - begun), (long long)(drained - opened), (long long)(now_ms() - drained));
  for (uint32_t i = 0; i < VGT_SOCKET; i++) {
    executed += atomic_load(&rings[i]->executed);
    munmap(rings[i], sizeof *rings[i]);
  }
  vgx_meter_finish();
  vgt_walk_end();
  if (options->region_fd >= 0)
    close(options->region_fd);
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
