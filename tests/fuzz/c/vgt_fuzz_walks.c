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
#include "vgt_fuzz_desks.h"
#include "vgt_fuzz_directed.h"
#include "vgt_fuzz_driver.h"
#include "vgt_fuzz_faults.h"
#include "vgt_fuzz_tenants.h"
#include "vgw_pinned.h"
#include "vgw_records.h"

enum { WANT_REPLY = 1, HAS_FD = 2, CORRELATED = 4, FIRST_ID = 50000, IDS = 1000, ANSWER_MAX = 2048 };
enum { SPIN = 1, QUOTA = 2, REGION = 3, FEW = 0, PLAIN = 0 }; /* `which` of choose_options */
enum { FILE_PAGES = 32, FREE_PAGE = 40 };                     /* pages of the window that nobody has mapped */

static uint32_t first_id = FIRST_ID; /* of the objects that a walk makes */

static int file_of(size_t nbytes, bool sealed) {
  int file = memfd_create("vgt-walk", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file >= 0 &&
      (ftruncate(file, (off_t)nbytes) || (sealed && fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))))
    perror("file");
  return file;
}

/* --- images: vgpud's cache takes one, gives it back, and answers late (vgt_fuzz_desks.c) --- */

enum { NBYTES = 16, OFFERS = 24 };

static void write_image(int fd, uint32_t id, uint64_t total, uint32_t nbytes) {
  uint64_t answer[2];
  struct {
    struct vgw_req_vgpuImageWrite request;
    uint64_t data[2];
  } write = {{.image = id, .total = total, .nbytes = nbytes}, {0}};
  vgt_ask(fd, VGW_OP_vgpuImageWrite, &write, sizeof write, answer, sizeof answer);
}

static void offers(int fd) {
  uint64_t answer[8] = {0};
  for (uint32_t i = 0; i < OFFERS; i++) {
    uint32_t id = first_id + i;
    answer[0] = 0;
    VGT_ASK(fd, vgpuImageOffer, .total = NBYTES, .digest0 = 1, .image = id);
    if (!(uint32_t)answer[0])
      write_image(fd, id, NBYTES, NBYTES);
    VGT_ASK(fd, vgpuImageRead, .nbytes = NBYTES, .image = id);
    VGT_ASK(fd, vgpuImageRead, .nbytes = NBYTES, .offset = 1, .image = id);
    if (vgt_desks_late())
      usleep(2 * VGT_LATE_US); /* so that the answer has come before the next question */
  }
  for (uint32_t i = 3; i < OFFERS; i++)
    VGT_ASK(fd, vgpuImageDrop, .image = first_id + i);
}

static void images(int fd) {
  uint64_t answer[8] = {0};
  offers(fd);
  VGT_ASK(fd, vgpuImageOffer, .total = NBYTES + 8, .digest0 = 2, .image = first_id + OFFERS); /* of another length */
  VGT_ASK(fd, vgpuImageOffer, .total = 1ull << 40, .digest0 = 2, .image = first_id + OFFERS + 1);
  VGT_ASK(fd, vgpuLink, .first = first_id, .count = 2, .result = first_id + 2); /* which is taken */
  VGT_ASK(fd, vgpuLink, .first = first_id, .count = 2, .result = first_id + OFFERS + 2);
  VGT_ASK(fd, vgpuImageDrop, .image = first_id);
  VGT_ASK(fd, vgpuImageOffer, .total = NBYTES, .digest0 = 1, .image = first_id + 1); /* taken: the session ends */
}

static void no_cache(int fd) {
  uint64_t answer[8];
  VGT_ASK(fd, vgpuImageOffer, .total = 16, .image = first_id);
}

/* Uploads an image in pieces, sent at once: more than the worker's receive buffer holds. */
static void bulk(int fd) {
  enum { PIECE = 60000, PIECES = 80 };
  struct piece {
    struct vgw_header header;
    struct vgw_req_vgpuImageWrite request;
    uint8_t data[PIECE];
  } *pieces = calloc(PIECES, sizeof *pieces);
  for (uint32_t i = 0; pieces && i < PIECES; i++) {
    pieces[i].header = (struct vgw_header){.length = sizeof *pieces, .opcode = VGW_OP_vgpuImageWrite, .context = 1};
    pieces[i].request = (struct vgw_req_vgpuImageWrite){
        .image = first_id, .total = PIECE * PIECES, .offset = (uint64_t)i * PIECE, .nbytes = PIECE};
  }
  const uint8_t *data = (const uint8_t *)pieces;
  size_t nbytes = pieces ? PIECES * sizeof *pieces : 0;
  for (ssize_t sent; nbytes && (sent = send(fd, data, nbytes, MSG_NOSIGNAL)) > 0; nbytes -= (size_t)sent)
    data += sent;
  free(pieces);
}

/* --- limits of a tenant, and a device that its operator has taken out of service --- */

static void limits(int fd) {
  enum { GRAPHS = 30, ABSENT = 15 };
  uint64_t answer[8];
  struct vgw_req_vgpuHostMap map = {VGW_PINNED_BEGIN + FREE_PAGE * VGT_PAGE, FILE_PAGES * VGT_PAGE};
  int file = file_of(FILE_PAGES * VGT_PAGE, true);
  vgt_tenants_change(ABSENT);
  VGT_ASK(fd, cuDevicePrimaryCtxRetain, .pctx = first_id, .dev = 0);
  VGT_ASK(fd, cuDevicePrimaryCtxRetain, .pctx = first_id + 1, .dev = 99);
  vgt_tenants_change(0);
  write_image(fd, first_id, 1 << 16, 8);
  VGT_ASK(fd, vgpuImageOffer, .total = 1 << 16, .image = first_id + 1);
  vgt_ask_with(fd, VGW_OP_vgpuHostMap, &map, sizeof map, file, answer, sizeof answer);
  close(file);
  for (uint32_t i = 0; i < GRAPHS; i++)
    VGT_ASK(fd, cuGraphCreate, .phGraph = first_id + i);
  struct {
    struct vgw_req_vgpuGraphAddConditional request;
    uint32_t bodies[2];
  } node = {{.condition = vgt_conditions[0], .hGraph = 1, .ctx = 1, .node = first_id, .bodies_nbytes = 4},
            {first_id + GRAPHS, 0}};
  vgt_ask(fd, VGW_OP_vgpuGraphAddConditional, &node, sizeof node, answer, sizeof answer);
}

/* --- graphs --- */

static void name_nodes(int fd, uint32_t graph, uint32_t first, uint32_t count) {
  uint64_t answer[8];
  struct {
    struct vgw_req_cuGraphGetNodes request;
    uint32_t ids[8];
  } names = {{.hGraph = graph, .ids_nbytes = 4 * count}, {0}};
  for (uint32_t i = 0; i < count; i++)
    names.ids[i] = first + i;
  vgt_ask(fd, VGW_OP_cuGraphGetNodes, &names, (uint32_t)sizeof names.request + 4 * count, answer, sizeof answer);
}

/* A copy of two halves, of which one is the client's internal host function: its nodes are one for the program, so
 * that nothing can depend on the half. And a whole copy, which is a graph with a host function of the client. */
static void halves(int fd) {
  const uint32_t split = first_id + 100, whole = split + 1, outer = split + 2, inner = first_id + 200;
  uint64_t answer[64];
  VGT_ASK(fd, cuGraphCreate, .phGraph = split);
  VGT_ASK(fd, cuGraphAddHostNode, .phGraphNode = inner, .hGraph = split,
          .callback = VGW_CALLBACK_OF_GRAPH | VGW_CALLBACK_INTERNAL | 1);
  VGT_ASK(fd, cuGraphAddMemcpyNode, .dst = vgt_addresses[0], .dstPitch = 8, .dstRows = 1, .src = vgt_addresses[1],
          .srcPitch = 8, .srcRows = 1, .width = 8, .height = 1, .depth = 1, .phGraphNode = inner + 1, .hGraph = split,
          .ctx = 1);
  name_nodes(fd, split, inner + 1, 1); /* the id that it has */
  name_nodes(fd, split, inner + 2, 2); /* there is one */
  name_nodes(fd, split, inner + 3, 1);
  struct {
    struct vgw_req_cuGraphAddEmptyNode request;
    uint32_t dependencies[2];
  } after = {{.numDependencies = 1, .phGraphNode = inner + 4, .hGraph = split}, {inner + 3, 0}};
  vgt_ask(fd, VGW_OP_cuGraphAddEmptyNode, &after, sizeof after, answer, sizeof answer);
  VGT_ASK(fd, cuGraphCreate, .phGraph = whole);
  VGT_ASK(fd, cuGraphAddHostNode, .phGraphNode = inner + 5, .hGraph = whole,
          .callback = VGW_CALLBACK_OF_GRAPH | VGW_CALLBACK_INTERNAL | VGW_CALLBACK_WHOLE_COPY | 1);
  VGT_ASK(fd, cuGraphCreate, .phGraph = outer);
  VGT_ASK(fd, cuGraphAddChildGraphNode, .phGraphNode = inner + 6, .hGraph = outer, .childGraph = whole);
  VGT_ASK(fd, cuGraphNodeGetType, .hNode = inner + 6);
  name_nodes(fd, outer, inner + 6, 1);
}

/* A copy between arrays that a stream captures, and its node's parameters; a graph's own memory. */
static void captured(int fd) {
  const uint32_t graph = first_id + 110, own = graph + 1, node = first_id + 300;
  uint64_t answer[64];
  VGT_ASK(fd, vgpuCaptureBegin, .hStream = 1, .graph = graph);
  VGT_ASK(fd, vgpuArrayCopy, .dstArray = 1, .srcArray = 2, .width = 8, .height = 1, .depth = 1, .hStream = 1);
  VGT_ASK(fd, vgpuCaptureEnd, .hStream = 1);
  name_nodes(fd, graph, node, 1);
  VGT_ASK(fd, cuGraphMemcpyNodeGetParams, .hNode = node);
  VGT_ASK(fd, cuGraphCreate, .phGraph = own);
  for (uint32_t i = 1; i <= 2; i++) {
    struct {
      struct vgw_req_cuGraphAddMemAllocNode request;
      CUmemAccessDesc access;
    } add = {.request = {.bytesize = 4096, .phGraphNode = node + i, .hGraph = own}};
    add.request.poolProps.allocType = add.request.poolProps.location.type = 1;
    vgt_ask(fd, VGW_OP_cuGraphAddMemAllocNode, &add, sizeof add, answer, sizeof answer);
    VGT_ASK(fd, cuGraphAddMemcpyNode, .dst = answer[0] + 8, .dstPitch = 8, .dstRows = 1, .src = vgt_addresses[1],
            .srcPitch = 8, .srcRows = 1, .width = 8, .height = 1, .depth = 1, .phGraphNode = node + 10 + i,
            .hGraph = own, .ctx = 1);
  }
  VGT_ASK(fd, cuGraphAddMemcpyNode, .dst = 8, .dstPitch = 8, .dstRows = 1, .src = 8, .srcPitch = 8, .srcRows = 1,
          .depth = 1, .phGraphNode = node + 20, .hGraph = own, .ctx = 1); /* nothing */
  VGT_ASK(fd, cuStreamBeginCapture_v2, .hStream = 2);
  VGT_ASK(fd, cuStreamEndCapture, .hStream = 2, .phGraph = own + 1);
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
  VGT_ASK(fd, cuStreamEndCapture, .hStream = 1, .phGraph = first_id);
  VGT_ASK(fd, vgpuCaptureBegin, .hStream = 1, .graph = first_id + 1);
  VGT_ASK(fd, vgpuCaptureDependencies, .hStream = 1, .hGraph = 1, .capacity = 64);
  VGT_ASK(fd, cuGraphKernelNodeGetParams_v2, .hNode = 5, .capacity = 64);
  VGT_ASK(fd, vgpuKernelDescribe, .capacity = 1024, .kind = VGW_KIND_FUNCTION, .object = 1);
  VGT_ASK(fd, vgpuKernelName, .capacity = 64, .kind = VGW_KIND_MODULE, .object = 1);
  VGT_ASK(fd, vgpuKernelName, .capacity = 64, .kind = VGW_KIND_LIBRARY, .object = 1);
  VGT_ASK(fd, vgpuLink, .first = 1, .count = 1, .result = first_id);
  struct {
    struct vgw_req_vgpuTensorMap request;
    struct vgw_tensor_map arguments;
  } map = {.request = {.form = 1, .nbytes = sizeof map.arguments, .map_nbytes = sizeof(CUtensorMap)}};
  map.arguments.rank = 1;
  vgt_ask(fd, VGW_OP_vgpuTensorMap, &map, sizeof map, answer, sizeof answer);
  struct {
    struct vgw_req_vgpuGraphAddConditional request;
    uint32_t bodies[2];
  } node = {{.condition = vgt_conditions[0], .hGraph = 1, .ctx = 1, .node = first_id, .bodies_nbytes = 4},
            {first_id, 0}};
  vgt_ask(fd, VGW_OP_vgpuGraphAddConditional, &node, sizeof node, answer, sizeof answer);
}

static void region(int fd) {
  uint64_t answer[2], at = VGW_PINNED_BEGIN + FREE_PAGE * VGT_PAGE;
  VGT_ASK(fd, vgpuHostMapAt, .address = at, .nbytes = VGT_PAGE, .offset = VGT_PAGE);
  VGT_ASK(fd, vgpuHostMapAt, .address = at, .nbytes = VGT_PAGE, .offset = VGT_PAGE); /* is mapped */
  VGT_ASK(fd, vgpuHostUnmap, .address = at);
  VGT_ASK(fd, vgpuHostMapAt, .address = at, .nbytes = VGT_PAGE, .offset = 1ull << 40); /* ends the session */
}

static void files(int fd) {
  uint64_t answer[2];
  struct vgw_req_vgpuHostMapFile map = {VGW_PINNED_BEGIN + FREE_PAGE * VGT_PAGE, VGT_PAGE, 0, 1};
  int disk = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), memory = file_of(VGT_PAGE, true);
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
  } launch = {{.length = sizeof launch, .opcode = VGW_OP_cuLaunchKernel, .flags = CORRELATED, .context = 1}, 1, {0}};
  launch.request = (struct vgw_req_cuLaunchKernel){.kind = VGW_KIND_FUNCTION,
                                                   .object = VGT_LAST_OBJECT,
                                                   .gridDimX = 1,
                                                   .gridDimY = 1,
                                                   .gridDimZ = 1,
                                                   .blockDimX = 1,
                                                   .blockDimY = 1,
                                                   .blockDimZ = 1,
                                                   .params_nbytes = sizeof(uint64_t[2])};
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
    int file = file_of(sizeof(struct vgw_ring), true);
    vgt_ask_with(fd, VGW_OP_vgpuRingOpen, &ring, sizeof ring, file, answer, sizeof answer);
    close(file);
    ring.ring++;
    VGT_ASK(fd, vgpuIpcEventCreate, .event = first_id + 2 * i);
    VGT_ASK(fd, vgpuIpcEventRecord, .event = 1, .hStream = 1);
    VGT_ASK(fd, vgpuIpcEventWait, .event = 2, .hStream = 2);
    if (VGT_ASK(fd, cuIpcGetEventHandle, .event = 1 + i % 2)) {
      memcpy(&opened.handle, answer, sizeof opened.handle);
      opened.phEvent = first_id + 2 * i + 1;
      vgt_ask(fd, VGW_OP_cuIpcOpenEventHandle, &opened, sizeof opened, answer, sizeof answer);
    }
    VGT_ASK(fd, vgpuIpcEventDestroy, .event = first_id + 2 * i);
  }
}

static void short_of(int fd, void (*run)(int fd)) {
  for (uint32_t period = 2; period < 8; period++) {
    vgt_faults_every(period);
    vgt_faults_arm(true);
    first_id = FIRST_ID + period * IDS;
    run(fd);
  }
  first_id = FIRST_ID;
  vgt_faults_arm(false);
  vgt_faults_every(0);
}

static void short_of_events(int fd) { short_of(fd, events_and_rings); }
static void short_of_graphs(int fd) { short_of(fd, halves); }
static void short_of_captures(int fd) { short_of(fd, captured); }
static void short_of_images(int fd) { short_of(fd, offers); }
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
  struct vgw_header ask = {.length = sizeof ask, .opcode = VGW_OP_cuCtxSynchronize, .flags = WANT_REPLY, .context = 1};
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

/* --- records that end a session --- */

static const struct wrong {
  uint16_t opcode, flags;
  uint32_t count;
  uint64_t words[10];
} wrongs[] = {
    {UINT16_MAX, 0, 0, {0}}, /* no such record */
    {VGW_OP_cuCtxSynchronize, 0, UINT32_MAX, {0}},
    {VGW_OP_cuGraphGetNodes, 0, 2, {1 | 6ull << 32, 0}},
    {VGW_OP_cuGraphGetNodes, 0, 2, {1 | 4ull << 32, 2}}, /* another node's id */
    {VGW_OP_vgpuHostMapAt, 0, 3, {1, 1, 1}},
    {VGW_OP_vgpuHostMap, HAS_FD, 2, {1, VGT_PAGE}},
    {VGW_OP_vgpuHostMapFile, HAS_FD, 4, {1, VGT_PAGE}},
    {VGW_OP_vgpuHostMap, HAS_FD, 2, {VGW_PINNED_BEGIN + FREE_PAGE * VGT_PAGE, 1ull << 30}},
    {VGW_OP_vgpuStreamFlag, 0, 2, {1, 1}},
    {VGW_OP_vgpuKernelName, 0, 3, {64, VGW_KIND_STREAM | 1ull << 32, 0}},
    {VGW_OP_vgpuGraphAddConditional, 0, 6, {0, 0, 1 | 1ull << 32, (uint64_t)FIRST_ID << 32, 6, 0}},
    {VGW_OP_vgpuGraphAddConditional, 0, 6, {0, 0, 1 | 1ull << 32, 1ull << 32, 4, FIRST_ID}},
    {VGW_OP_vgpuGraphAddConditional, 0, 6, {0, 0, 1 | 1ull << 32, (uint64_t)FIRST_ID << 32, 4, 1}},
};

static void wrong(int fd, const struct wrong *w) {
  struct {
    struct vgw_header header;
    uint64_t words[10];
  } record = {{.opcode = w->opcode, .flags = w->flags, .context = 1}, {0}};
  int file = w->flags & HAS_FD ? file_of(VGT_PAGE, false) : -1;
  record.header.length = w->count == UINT32_MAX ? 8 : (uint32_t)(sizeof record.header + 8 * w->count);
  memcpy(record.words, w->words, sizeof record.words);
  if (w->opcode == VGW_OP_vgpuGraphAddConditional)
    record.words[0] = vgt_conditions[0];
  vgt_send_with(fd, &record, w->count == UINT32_MAX ? sizeof record.header : record.header.length, file);
  if (file >= 0)
    close(file);
}

static void wrong_form(int fd) {
  uint64_t answer[2];
  struct {
    struct vgw_req_vgpuTensorMap request;
    struct vgw_tensor_map arguments;
  } map = {.request = {.form = 9, .nbytes = sizeof map.arguments, .map_nbytes = sizeof(CUtensorMap)}};
  map.arguments.rank = 1;
  vgt_ask(fd, VGW_OP_vgpuTensorMap, &map, sizeof map, answer, sizeof answer);
}

/* More descriptors than a worker keeps. */
static void descriptors(int fd) {
  struct vgw_header header = {.length = sizeof header, .opcode = VGW_OP_cuCtxSynchronize, .context = 1};
  for (int i = 0; i < 20; i++)
    vgt_send_with(fd, &header, sizeof header, STDERR_FILENO);
}

static const struct walk {
  void (*run)(int fd);
  void (*ring)(struct vgw_ring *ring, uint64_t *tail);
  uint8_t which, more; /* of choose_options */
  bool limited;
} walks[] = {
    {images, NULL, PLAIN, 0, false},
    {no_cache, NULL, PLAIN, 0, false},
    {bulk, NULL, PLAIN, 0, false},
    {limits, NULL, QUOTA, 0, false},
    {halves, NULL, PLAIN, 0, false},
    {captured, NULL, PLAIN, 0, false},
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
    {wrong_form, NULL, PLAIN, 0, false},
    {descriptors, NULL, PLAIN, 0, false},
    {vgt_walk_refused, NULL, PLAIN, 0, true},
    {vgt_walk_unaccounted, NULL, PLAIN, 0, true},
    {vgt_walk_full, NULL, PLAIN, 0, true},
    {vgt_walk_pools, NULL, PLAIN, 0, true},
    {vgt_walk_recorded, NULL, PLAIN, 0, true},
    {vgt_walk_unrecorded, NULL, PLAIN, 0, true},
};

enum { WALKS = sizeof walks / sizeof *walks, WRONGS = sizeof wrongs / sizeof *wrongs };

_Static_assert(WALKS + WRONGS <= VGT_WALKS_MAX, "a batch has room for them");

uint32_t vgt_walk_count(void) { return WALKS + WRONGS; }

bool vgt_walk_fits(uint32_t walk, unsigned process) {
  bool limited = process % VGT_PROCESSES / VGT_LIMITED == 1;
  return walk <= WALKS ? walks[walk - 1].limited == limited : !limited;
}

uint32_t vgt_walk_choice(uint32_t walk) {
  return walk <= WALKS ? 8u * walks[walk - 1].which + 32u * walks[walk - 1].more : 0;
}

void vgt_walk_begin(uint32_t walk) {
  enum { FEW_ENTRIES = 4096 };
  if (walk <= WALKS && walks[walk - 1].run == no_cache)
    vgt_desks_cache(false);
  if (walk <= WALKS && walks[walk - 1].run == vgt_walk_recorded)
    vgt_walk_record(FEW_ENTRIES);
  if (walk <= WALKS && walks[walk - 1].run == vgt_walk_unrecorded)
    vgt_walk_record(VGT_RECORDED_NBYTES);
}

void vgt_walk(int fd, uint32_t walk) {
  if (walk > WALKS)
    wrong(fd, &wrongs[walk - WALKS - 1]);
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
