/* See vgt_fuzz_walks.h. Each call may fail, as the opening may have. */
#define _GNU_SOURCE
#include "vgt_fuzz_walks.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "vgt_fuzz.h"
#include "vgt_fuzz_channel.h"
#include "vgt_fuzz_desks.h"
#include "vgt_fuzz_directed.h"
#include "vgt_fuzz_driver.h"
#include "vgt_fuzz_faults.h"
#include "vgt_fuzz_walks_parts.h"
#include "vgw_pinned.h"
#include "vgw_records.h"

enum { SPIN = 1, QUOTA = 2, REGION = 3, FEW = 0, PLAIN = 0 }; /* `which` of vgt_host_options */

uint32_t vgt_walk_first_id = VGT_WALK_FIRST_ID;

int vgt_walk_file_of(size_t nbytes, bool sealed) {
  int file = memfd_create("vgt-walk", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file >= 0 &&
      (ftruncate(file, (off_t)nbytes) || (sealed && fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))))
    perror("file");
  return file;
}

static void textures(int fd) {
  uint64_t answer[8] = {0};
  struct vgw_req_cuTexObjectCreate create = {.array = 1};
  if (vgt_ask(fd, VGW_OP_cuTexObjectCreate, &create, sizeof create, answer, sizeof answer))
    VGT_ASK(fd, cuTexObjectDestroy, .texObject = answer[0]);
  if (VGT_ASK(fd, cuSurfObjectCreate, .array = 1))
    VGT_ASK(fd, cuSurfObjectDestroy, .surfObject = answer[0]);
  create.pResDesc.resType = 77;
  vgt_ask(fd, VGW_OP_cuTexObjectCreate, &create, sizeof create, answer, sizeof answer);
  for (uint64_t capacity = 0; capacity < 1024; capacity += 32)
    VGT_ASK(fd, vgpuKernelDescribe, .capacity = capacity, .kind = VGW_KIND_FUNCTION, .object = VGT_LAST_OBJECT);
  VGT_ASK(fd, vgpuKernelName, .capacity = 64, .kind = VGW_KIND_MODULE, .object = 0);
}

/* --- a driver that has few functions, and memory of a virtual machine --- */

static void few(int fd) {
  uint64_t answer[16];
  VGT_ASK(fd, vgpuStreamFlag, .address = VGW_PINNED_BEGIN + VGT_RESERVED_PAGE * VGT_PAGE, .value = 1, .hStream = 1);
  VGT_ASK(fd, vgpuActivityStart, .what = 1);
  VGT_ASK(fd, cuIpcGetMemHandle, .dptr = vgt_addresses[0]);
  VGT_ASK(fd, cuIpcOpenMemHandle_v2, .flags = 1);
  VGT_ASK(fd, cuStreamEndCapture, .hStream = 1, .phGraph = vgt_walk_first_id);
  VGT_ASK(fd, vgpuCaptureBegin, .hStream = 1, .graph = vgt_walk_first_id + 1);
  VGT_ASK(fd, vgpuCaptureDependencies, .hStream = 1, .hGraph = 1, .count = 8);
  VGT_ASK(fd, vgpuCaptureChild, .hStream = 1, .hGraph = 1, .childGraph = 1);
  VGT_ASK(fd, vgpuGraphSetHalves, .hNode = 5, .callback = VGW_CALLBACK_OF_GRAPH);
  VGT_ASK(fd, cuGraphMemcpyNodeGetParams, .hNode = 5);
  VGT_ASK(fd, cuGraphKernelNodeGetParams_v2, .hNode = 5, .capacity = 64);
  VGT_ASK(fd, vgpuKernelDescribe, .capacity = 1024, .kind = VGW_KIND_FUNCTION, .object = 1);
  VGT_ASK(fd, vgpuKernelName, .capacity = 64, .kind = VGW_KIND_MODULE, .object = 1);
  VGT_ASK(fd, vgpuKernelName, .capacity = 64, .kind = VGW_KIND_LIBRARY, .object = 1);
  VGT_ASK(fd, vgpuLink, .first = 1, .count = 1, .result = vgt_walk_first_id);
  vgt_walk_tensor_map(fd, 1);
  struct {
    struct vgw_req_vgpuGraphAddConditional request;
    uint32_t bodies[2];
  } node = {{.condition = vgt_conditions[0], .hGraph = 1, .ctx = 1, .node = vgt_walk_first_id, .bodies_nbytes = 4},
            {vgt_walk_first_id, 0}};
  vgt_ask(fd, VGW_OP_vgpuGraphAddConditional, &node, sizeof node, answer, sizeof answer);
}

static void region(int fd) {
  uint64_t answer[2], at = VGW_PINNED_BEGIN + VGT_FREE_PAGE * VGT_PAGE;
  VGT_ASK(fd, vgpuHostMapAt, .address = at, .nbytes = VGT_PAGE, .offset = VGT_PAGE);
  VGT_ASK(fd, vgpuHostMapAt, .address = at, .nbytes = VGT_PAGE, .offset = VGT_PAGE); /* is mapped */
  VGT_ASK(fd, vgpuHostUnmap, .address = at);
  VGT_ASK(fd, vgpuHostMapAt, .address = at, .nbytes = VGT_PAGE, .offset = 1ull << 40); /* ends the session */
}

static void files(int fd) {
  uint64_t answer[2];
  struct vgw_req_vgpuHostMapFile map = {VGW_PINNED_BEGIN + VGT_FREE_PAGE * VGT_PAGE, VGT_PAGE, 0, 1};
  int disk = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), memory = vgt_walk_file_of(VGT_PAGE, true);
  vgt_ask_with(fd, VGW_OP_vgpuHostMapFile, &map, sizeof map, disk, answer, sizeof answer);
  vgt_ask_with(fd, VGW_OP_vgpuHostMapFile, &map, sizeof map, memory, answer, sizeof answer);
  VGT_ASK(fd, vgpuHostUnmap, .address = map.address);
  map.offset = 1;
  vgt_ask_with(fd, VGW_OP_vgpuHostMapFile, &map, sizeof map, memory, answer, sizeof answer);
  close(disk);
  close(memory);
}

/* --- profiling: only calls with a number of the client's are measured --- */

static void activities(int fd) {
  enum { LAUNCHES = 3 };
  uint64_t answer[64];
  struct {
    struct vgw_header header;
    uint64_t correlation;
    struct vgw_req_cuLaunchKernel request;
  } launch = {
      {.length = sizeof launch, .opcode = VGW_OP_cuLaunchKernel, .flags = VGW_CORRELATED, .context = 1}, 1, {0}};
  launch.request = (struct vgw_req_cuLaunchKernel){
      .kind = VGW_KIND_FUNCTION, .object = VGT_LAST_OBJECT, VGT_ONE_THREAD, .params_nbytes = sizeof(uint64_t[2])};
  struct {
    __typeof__(launch) launch;
    uint64_t parameters[2];
  } whole = {launch, {0}};
  whole.launch.header.length = sizeof whole;
  VGT_ASK(fd, vgpuActivityStart, .what = 1);
  for (int i = 0; i < LAUNCHES; i++, whole.launch.correlation++)
    vgt_send_with(fd, &whole, sizeof whole, -1);
  vgt_ask(fd, VGW_OP_cuCtxSynchronize, NULL, 0, answer, sizeof answer);
  VGT_ASK(fd, vgpuActivityName, .capacity = 64, .name = 1);
  vgt_ask(fd, VGW_OP_vgpuActivityClock, NULL, 0, answer, sizeof answer);
  VGT_ASK(fd, vgpuActivityTake, .capacity = 200);
  VGT_ASK(fd, vgpuActivityTake, .capacity = 1024);
}

/* --- walks that are also run with failing calls for memory, threads and descriptors (vgt_fuzz_faults.h) --- */

static void events_and_rings(int fd) {
  enum { EVENTS = 12, RING = 7 };
  uint64_t answer[16] = {0};
  struct vgw_req_vgpuRingOpen ring = {.ring = RING};
  struct vgw_req_cuIpcOpenEventHandle opened = {0};
  for (uint32_t i = 0; i < EVENTS; i++) {
    int file = vgt_walk_file_of(sizeof(struct vgw_ring), true);
    vgt_ask_with(fd, VGW_OP_vgpuRingOpen, &ring, sizeof ring, file, answer, sizeof answer);
    close(file);
    ring.ring++;
    VGT_ASK(fd, vgpuIpcEventCreate, .event = vgt_walk_first_id + 2 * i);
    VGT_ASK(fd, vgpuIpcEventRecord, .event = 1, .hStream = 1);
    VGT_ASK(fd, vgpuIpcEventWait, .event = 2, .hStream = 2);
    if (VGT_ASK(fd, cuIpcGetEventHandle, .event = 1 + i % 2)) {
      memcpy(&opened.handle, answer, sizeof opened.handle);
      opened.phEvent = vgt_walk_first_id + 2 * i + 1;
      vgt_ask(fd, VGW_OP_cuIpcOpenEventHandle, &opened, sizeof opened, answer, sizeof answer);
    }
    VGT_ASK(fd, vgpuIpcEventDestroy, .event = vgt_walk_first_id + 2 * i);
  }
}

static void short_of(int fd, void (*run)(int fd)) {
  for (uint32_t period = 2; period < 8; period++) {
    vgt_faults_every(period);
    vgt_faults_arm(true);
    vgt_walk_first_id = VGT_WALK_FIRST_ID + period * VGT_WALK_IDS;
    run(fd);
  }
  vgt_walk_first_id = VGT_WALK_FIRST_ID;
  vgt_faults_arm(false);
  vgt_faults_every(0);
}

static void short_of_events(int fd) { short_of(fd, events_and_rings); }
static void short_of_graphs(int fd) { short_of(fd, vgt_walk_halves); }
static void short_of_captures(int fd) { short_of(fd, vgt_walk_captured); }
static void short_of_images(int fd) { short_of(fd, vgt_walk_offers); }
static void short_of_textures(int fd) { short_of(fd, textures); }
static void short_of_files(int fd) { short_of(fd, files); }
static void short_of_all(int fd) { short_of(fd, vgt_directed); }

/* --- rings --- */

static void fence(int fd) {
  struct {
    struct vgw_header header;
    struct vgw_req_vgpuRingFence request;
  } record = {{.length = sizeof record, .opcode = VGW_OP_vgpuRingFence, .context = 1}, {.executed = 2, .ring = 0}};
  vgt_send_with(fd, &record, sizeof record, -1);
  usleep(5000);
}

static void push(struct vgw_ring *ring, uint64_t *tail, const void *record, size_t written, uint64_t nbytes) {
  memcpy(ring->records + *tail % VGW_RING_NBYTES, record, written);
  *tail += nbytes;
  atomic_store_explicit(&ring->tail, *tail, memory_order_release);
  atomic_fetch_add(&ring->doorbell, 1);
  vgw_futex_wake(&ring->doorbell);
  for (int turn = 0; turn < 2000 && atomic_load(&ring->head) != *tail; turn++)
    usleep(100);
}

/* A client that sleeps for a reply, and the end of the ring: less is left there than a header. */
static void around(struct vgw_ring *ring, uint64_t *tail) {
  struct vgw_header ask = {
      .length = sizeof ask, .opcode = VGW_OP_cuCtxSynchronize, .flags = VGW_WANT_REPLY, .context = 1};
  struct vgw_header padding = {.opcode = VGW_RING_PADDING};
  atomic_store(&ring->client_waits, 1);
  push(ring, tail, &ask, sizeof ask, sizeof ask);
  atomic_store(&ring->client_waits, 0);
  padding.length = (uint32_t)(VGW_RING_NBYTES - 8 - *tail % VGW_RING_NBYTES - sizeof ask);
  memcpy(ring->records + *tail % VGW_RING_NBYTES + sizeof ask, &padding, sizeof padding);
  push(ring, tail, &ask, sizeof ask, sizeof ask + padding.length); /* a record, and more than any has */
  push(ring, tail, &padding, 8, 8);
  push(ring, tail, &ask, sizeof ask, sizeof ask);
}

/* The worker expects the next record while the client watches the flag. */
static void awaited(struct vgw_ring *ring, uint64_t *tail) {
  struct {
    struct vgw_header header;
    struct vgw_req_vgpuStreamFlag request;
  } flag = {{.length = sizeof flag, .opcode = VGW_OP_vgpuStreamFlag, .context = 1},
            {.address = VGW_PINNED_BEGIN + VGT_RESERVED_PAGE * VGT_PAGE, .value = 1, .hStream = 2}};
  for (int i = 0; i < 3; i++) {
    push(ring, tail, &flag, sizeof flag, sizeof flag);
    usleep(5000);
  }
}

static const struct walk {
  void (*run)(int fd);
  void (*ring)(struct vgw_ring *ring, uint64_t *tail);
  uint8_t which, more; /* of vgt_host_options */
  bool limited;
} walks[] = {
    {vgt_walk_images, NULL, PLAIN, 0, false},
    {vgt_walk_no_cache, NULL, PLAIN, 0, false},
    {vgt_walk_bulk, NULL, PLAIN, 0, false},
    {vgt_walk_limits, NULL, QUOTA, 0, false},
    {vgt_walk_halves, NULL, PLAIN, 0, false},
    {vgt_walk_moved, NULL, PLAIN, 0, false},
    {vgt_walk_captured, NULL, PLAIN, 0, false},
    {textures, NULL, PLAIN, 0, false},
    {few, NULL, FEW, 7, false},
    {region, NULL, REGION, 0, false},
    {files, NULL, PLAIN, 0, false},
    {activities, NULL, PLAIN, 0, false},
    {vgt_directed, NULL, PLAIN, 0, false},
    {vgt_directed, around, PLAIN, 1, false},
    {fence, awaited, SPIN, 0, false},
    {short_of_events, NULL, PLAIN, 0, false},
    {short_of_graphs, NULL, PLAIN, 0, false},
    {short_of_captures, NULL, PLAIN, 0, false},
    {short_of_images, NULL, PLAIN, 0, false},
    {short_of_textures, NULL, PLAIN, 0, false},
    {short_of_files, NULL, PLAIN, 0, false},
    {short_of_all, NULL, PLAIN, 0, false},
    {vgt_walk_wrong_form, NULL, PLAIN, 0, false},
    {vgt_walk_descriptors, NULL, PLAIN, 0, false},
    {vgt_walk_refused, NULL, PLAIN, 0, true},
    {vgt_walk_unaccounted, NULL, PLAIN, 0, true},
    {vgt_walk_full, NULL, PLAIN, 0, true},
    {vgt_walk_pools, NULL, PLAIN, 0, true},
    {vgt_walk_recorded, NULL, PLAIN, 0, true},
    {vgt_walk_unrecorded, NULL, PLAIN, 0, true},
};

enum { WALKS = sizeof walks / sizeof *walks };

_Static_assert(WALKS + VGT_WALK_WRONGS <= VGT_WALKS_MAX, "a batch has room for them");

uint32_t vgt_walk_count(void) { return WALKS + VGT_WALK_WRONGS; }

bool vgt_walk_fits(uint32_t walk, unsigned process) {
  bool limited = process % VGT_PROCESSES / VGT_LIMITED == 1;
  return walk <= WALKS ? walks[walk - 1].limited == limited : !limited;
}

uint32_t vgt_walk_choice(uint32_t walk) {
  return walk <= WALKS ? 8u * walks[walk - 1].which + 32u * walks[walk - 1].more : 0;
}

void vgt_walk_begin(uint32_t walk) {
  enum { FEW_ENTRIES = 4096 };
  if (walk <= WALKS && walks[walk - 1].run == vgt_walk_no_cache)
    vgt_desks_cache(false);
  if (walk <= WALKS && walks[walk - 1].run == vgt_walk_recorded)
    vgt_walk_record(FEW_ENTRIES);
  if (walk <= WALKS && walks[walk - 1].run == vgt_walk_unrecorded)
    vgt_walk_record(VGT_RECORDED_NBYTES);
}

void vgt_walk(int fd, uint32_t walk) {
  if (walk > WALKS)
    vgt_walk_wrong(fd, walk - WALKS - 1);
  else if (walks[walk - 1].run)
    walks[walk - 1].run(fd);
}

void vgt_walk_rings(uint32_t walk, struct vgw_ring *ring, uint64_t *tail) {
  if (walk && walk <= WALKS && walks[walk - 1].ring)
    walks[walk - 1].ring(ring, tail);
}

void vgt_walk_end(void) {
  vgt_desks_cache(true);
  vgt_driver_accounts(VGT_ACCOUNTS_WHOLE);
  vgt_driver_disk_full(false);
  vgt_nvml_uses(0);
}
