/* See vgt_fuzz_directed.h. Each call may fail; what it leaves is there for the records that follow. */
#define _GNU_SOURCE
#include "vgt_fuzz_directed.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "vgt_fuzz.h"
#include "vgt_fuzz_channel.h"
#include "vgt_fuzz_driver.h"
#include "vgw_records.h"
#include "vgw_wire.h"

enum { FIRST_ID = 40000, ALLOCATION_NBYTES = 2 << 20, ANSWER_MAX = 4096, NODE_MAX = 512 };

bool vgt_ask_with(int fd, uint16_t opcode, const void *request, uint32_t nbytes, int passed, void *answer,
                  size_t room) {
  struct {
    struct vgw_header header;
    uint8_t body[1024];
  } record = {{.opcode = opcode, .flags = passed < 0 ? VGW_WANT_REPLY : VGW_WANT_REPLY | VGW_HAS_FD, .context = 1},
              {0}};
  struct vgw_header reply;
  uint8_t body[ANSWER_MAX];
  if (nbytes)
    memcpy(record.body, request, nbytes);
  record.header.length = (uint32_t)sizeof record.header + ((nbytes + 7) & ~7u);
  if (!vgt_send_with(fd, &record, record.header.length, passed) ||
      recv(fd, &reply, sizeof reply, MSG_WAITALL) != sizeof reply || reply.length < sizeof reply ||
      reply.length - sizeof reply > sizeof body)
    return false;
  size_t got = reply.length - sizeof reply;
  if (got && recv(fd, body, got, MSG_WAITALL) != (ssize_t)got)
    return false;
  if (got)
    memcpy(answer, body, got < room ? got : room);
  if (reply.context && getenv("VGT_LOG"))
    fprintf(stderr, "directed: opcode %u answers %u\n", opcode, reply.context);
  return reply.context == 0;
}

bool vgt_ask(int fd, uint16_t opcode, const void *request, uint32_t nbytes, void *answer, size_t room) {
  return vgt_ask_with(fd, opcode, request, nbytes, -1, answer, room);
}

/* Two allocations of the opening, mapped beside each other and unmapped as one, and each by itself. */
static void map_memory(int fd) {
  uint64_t answer[8], at, size = ALLOCATION_NBYTES;
  if (!VGT_ASK(fd, cuMemAddressReserve, .size = 2 * size))
    return;
  at = answer[0];
  for (int turn = 0; turn < 2; turn++) {
    VGT_ASK(fd, cuMemMap, .ptr = at, .size = size, .handle = 1);
    VGT_ASK(fd, cuMemMap, .ptr = at + size, .size = size, .handle = 2);
    if (turn)
      VGT_ASK(fd, cuMemUnmap, .ptr = at, .size = 2 * size);
    else
      VGT_ASK(fd, cuMemUnmap, .ptr = at, .size = size), VGT_ASK(fd, cuMemUnmap, .ptr = at + size, .size = size);
  }
  VGT_ASK(fd, cuMemAddressFree, .ptr = at, .size = 2 * size);
}

static void share_memory(int fd) {
  uint8_t answer[128];
  struct vgw_req_cuIpcOpenMemHandle_v2 open = {.flags = 1};
  if (!VGT_ASK(fd, cuIpcGetMemHandle, .dptr = vgt_addresses[0]))
    return;
  memcpy(&open.handle, answer, sizeof open.handle);
  vgt_ask(fd, VGW_OP_cuIpcOpenMemHandle_v2, &open, sizeof open, answer, sizeof answer);
}

/* Nodes of each kind, and their parameters. */
static void read_nodes(int fd) {
  uint64_t answer[NODE_MAX];
  struct {
    struct vgw_req_vgpuGraphAddConditional request;
    uint32_t bodies[2];
  } conditional = {{.condition = vgt_conditions[0], .hGraph = 1, .ctx = 1, .node = FIRST_ID, .bodies_nbytes = 4},
                   {FIRST_ID + 1, 0}};
  vgt_ask(fd, VGW_OP_vgpuGraphAddConditional, &conditional, sizeof conditional, answer, sizeof answer);
  VGT_ASK(fd, cuGraphAddMemcpyNode, .dstAddress = vgt_addresses[0], .dstPitch = 8, .dstRows = 1,
          .srcAddress = vgt_addresses[1], .srcPitch = 8, .srcRows = 1, .width = 8, .height = 1, .depth = 1,
          .phGraphNode = FIRST_ID + 1, .hGraph = 1, .ctx = 1);
  VGT_ASK(fd, cuGraphMemcpyNodeGetParams, .hNode = FIRST_ID + 1);
  VGT_ASK(fd, cuGraphMemAllocNodeGetParams, .accessDescCount = 1, .hNode = 2);
  VGT_ASK(fd, cuGraphBatchMemOpNodeGetParams, .count = 1, .hNode = 3);
  for (uint32_t turn = 0; turn < 4 * VGT_KERNEL_NODE_FORMS; turn++)
    VGT_ASK(fd, cuGraphKernelNodeGetParams_v2, .hNode = 5 + turn % 2, .capacity = turn & 2 ? 8 : 1024);
}

static void split_device(int fd) {
  uint8_t answer[2048];
  struct vgw_req_cuDevSmResourceSplitByCount split = {.nbGroups = 2, .minCount = 8};
  if (!VGT_ASK(fd, vgpuDeviceResource, .type = 1))
    return;
  memcpy(&split.input, answer, sizeof split.input);
  vgt_ask(fd, VGW_OP_cuDevSmResourceSplitByCount, &split, sizeof split, answer, sizeof answer);
}

static void capture(int fd) {
  uint64_t answer[NODE_MAX];
  struct vgw_req_cuLaunchKernel launch = {.kind = VGW_KIND_FUNCTION, .object = 1, .hStream = 1};
  launch.gridDimX = launch.gridDimY = launch.gridDimZ = launch.blockDimX = launch.blockDimY = launch.blockDimZ = 1;
  if (!VGT_ASK(fd, vgpuCaptureBegin, .hStream = 1, .graph = FIRST_ID + 2))
    return;
  VGT_ASK(fd, vgpuCaptureDependencies, .hStream = 1, .hGraph = FIRST_ID + 2, .count = 16);
  vgt_ask(fd, VGW_OP_cuLaunchKernel, &launch, sizeof launch, answer, sizeof answer);
  VGT_ASK(fd, vgpuCaptureDependencies, .hStream = 1, .hGraph = FIRST_ID + 2, .count = 16);
  VGT_ASK(fd, vgpuCaptureEnd, .hStream = 1);
  VGT_ASK(fd, vgpuCaptureDependencies, .hStream = 1, .hGraph = FIRST_ID + 2, .count = 16);
}

static void map_tensor(int fd) {
  uint8_t answer[sizeof(CUtensorMap)];
  struct {
    struct vgw_req_vgpuTensorMap request;
    struct vgw_tensor_map arguments;
  } map = {.request = {.form = 1, .nbytes = sizeof map.arguments, .map_nbytes = sizeof(CUtensorMap)}};
  map.arguments.data_type = 7; /* float */
  map.arguments.rank = 1;
  map.arguments.address = vgt_addresses[1];
  map.arguments.dims[0] = map.arguments.box[0] = 16;
  map.arguments.element_strides[0] = 1;
  vgt_ask(fd, VGW_OP_vgpuTensorMap, &map, sizeof map, answer, sizeof answer);
}

void vgt_directed(int fd) {
  map_tensor(fd);
  map_memory(fd);
  share_memory(fd);
  read_nodes(fd);
  split_device(fd);
  capture(fd);
}
