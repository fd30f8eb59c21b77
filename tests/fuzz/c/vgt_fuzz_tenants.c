/* See vgt_fuzz_tenants.h. */
#define _GNU_SOURCE
#include "vgt_fuzz_tenants.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vgt_fuzz_must.h"
#include "vgw_clock.h"
#include "vgw_ledger.h"
#include "vgw_records.h"
#include "vgx_gate.h"
#include "vgx_host_quota.h"
#include "vgx_ipc_event.h"
#include "vgx_turn.h"

enum { DEAD = 77, PAGES = 64 }; /* a session's mark of which nobody holds the lock */
enum { ROWS = 8, OTHER = VGT_ROW + 1, TENANT = 1, USED = 2 };
enum { QUANTUM_NS = 200000, PAUSE_NS = 20000, AHEAD_NS = 100000, STARVING_NS = 2000000, ALONE_NS = 1000000000 };

static struct vgw_ledger *ledger;

int vgt_zeroes(size_t nbytes) {
  int file = memfd_create("vgt-zeroes", MFD_CLOEXEC);
  vgt_must(file >= 0 && ftruncate(file, (off_t)nbytes) == 0, "file");
  return file;
}

static void set(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_SEQ_CST); }

struct vgw_ledger *vgt_tenants_ledger(void) {
  if (ledger) {
    memset(ledger->used[VGT_ROW], 0, sizeof ledger->used[VGT_ROW]);
    return ledger;
  }
  int file = vgt_zeroes(sizeof *ledger);
  vgt_must((ledger = vgx_ledger_map(file, VGT_ROW)) != NULL, "ledger");
  close(file);
  set(&ledger->row_count, ROWS);
  set(&ledger->tenant[VGT_ROW], TENANT);
  set(&ledger->tenant[OTHER], TENANT);
  set(&ledger->tenant[VGT_LIMITED_ROW], TENANT);
  for (uint32_t i = 1; i < VGW_QUOTA_COUNT; i++)
    set(&ledger->used[OTHER][VGW_LEDGER_QUOTA + i], USED);
  return ledger;
}

void vgt_tenants_change(uint32_t what) {
  if (!ledger)
    return;
  set(&ledger->absent, what % 16 == 15);
  set(&ledger->used[OTHER][VGW_LEDGER_QUOTA], what % 4 == 2 ? UINT64_MAX : 0); /* it makes calls, too */
  set(&ledger->used[OTHER][VGW_LEDGER_HOST], what % 2 ? 48 << 10 : 0);
  set(&ledger->used[OTHER][VGW_LEDGER_QUOTA + VGW_QUOTA_COMPILE_NS], what == 36 ? UINT64_MAX : USED);
}

static void *rival(void *turns) {
  const struct vgx_turn_seat seat = {turns, 0, 1, 1};
  for (;;) {
    uint64_t since = vgw_now_ns();
    while (!vgx_turn_ask(&seat, vgw_now_ns(), since))
      usleep(50);
    vgx_turn_expect(&seat, AHEAD_NS, vgw_now_ns());
    usleep(100);
    vgx_turn_expect(&seat, 0, vgw_now_ns());
    vgx_turn_leave(&seat, vgw_now_ns());
    usleep(5000);
  }
  return NULL;
}

void vgt_tenants_share(void) {
  int file = vgt_zeroes(sizeof(struct vgx_turns));
  struct vgx_turns *turns = vgx_turns_map(file);
  pthread_t thread;
  vgt_must(turns != NULL, "turns");
  close(file);
  turns->tenant_count = turns->tenants_used = turns->rows_used = 2;
  turns->quantum_ns = QUANTUM_NS;
  turns->pause_ns = PAUSE_NS;
  turns->ahead_ns = AHEAD_NS;
  turns->starving_ns = STARVING_NS;
  turns->alone_ns = ALONE_NS;
  for (uint32_t i = 0; i < 2; i++) {
    turns->weight[i] = VGX_TURN_UNIT;
    turns->tenant[i] = i + 1;
  }
  vgx_gate_set(turns, 0, 0, (const uint8_t[]){0}, 1);
  vgt_must(pthread_create(&thread, NULL, rival, turns) == 0, "thread");
  pthread_detach(thread);
}

static struct {
  pthread_mutex_t lock;
  struct vgx_ipc_page *pages[PAGES];
  uint32_t count;
} dead = {.lock = PTHREAD_MUTEX_INITIALIZER}; /* with records that are not done */

void vgt_tenants_record(int file) {
  static uint32_t
      turn; /* of every eight events, one has a record whose session has died, and one such a finished one */
  uint32_t way = turn++ % 8;
  struct vgx_ipc_page *page =
      way < 2 ? mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  if (page == MAP_FAILED)
    return;
  uint32_t number = atomic_fetch_add(&page->recorded, 1) + 1;
  atomic_store(&page->recorder[number % VGX_IPC_SLOTS], DEAD);
  pthread_mutex_lock(&dead.lock);
  if (way == 0 && dead.count < PAGES) {
    dead.pages[dead.count++] = page;
  } else {
    atomic_store(&page->done[number % VGX_IPC_SLOTS], number);
    munmap(page, sizeof *page);
  }
  pthread_mutex_unlock(&dead.lock);
}

void vgt_tenants_finish(void) {
  pthread_mutex_lock(&dead.lock);
  while (dead.count) {
    struct vgx_ipc_page *page = dead.pages[--dead.count];
    uint32_t last = atomic_load(&page->recorded);
    for (uint32_t number = last - VGX_IPC_SLOTS + 1; number != last + 1; number++)
      atomic_store(&page->done[number % VGX_IPC_SLOTS], number);
    munmap(page, sizeof *page);
  }
  pthread_mutex_unlock(&dead.lock);
}
