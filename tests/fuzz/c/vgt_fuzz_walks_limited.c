/* Walks (vgt_fuzz_walks.h) of a session whose memory is limited as on a card: vgx_limit*.c, vgx_charge.c, and
 * recordings. */
#include "vgt_fuzz_walks.h"

#include <unistd.h>

#include "vgt_fuzz.h"
#include "vgt_fuzz_directed.h"
#include "vgt_fuzz_driver.h"
#include "vgt_fuzz_tenants.h"
#include "vgw_records.h"
#include "vgx_recording.h"

enum { FIRST_ID = 60000, FLOAT = 0x20, HEAP = 2, STACK = 0, ANSWER_WORDS = 16 };
#define MIB ((uint64_t)1 << 20)

static void make_contexts(int fd) {
  uint64_t answer[ANSWER_WORDS];
  VGT_ASK(fd, cuCtxCreate_v2, .pctx = FIRST_ID, .dev = 0);
  VGT_ASK(fd, cuDevicePrimaryCtxRetain, .pctx = FIRST_ID + 1, .dev = 0);
  VGT_ASK(fd, cuCtxSetLimit, .value = 2048, .limit = STACK);
  VGT_ASK(fd, cuModuleLoadData, .module = FIRST_ID, .image = 1);
  VGT_ASK(fd, cuLibraryLoadData, .library = FIRST_ID, .image = 1);
}

/* NVML tells that the driver itself has more of the device than the tenant may. */
void vgt_walk_refused(int fd) {
  vgt_nvml_uses(8192 * MIB);
  make_contexts(fd);
}

static void make_memory(int fd, uint32_t id) {
  uint64_t answer[ANSWER_WORDS] = {0};
  struct vgw_req_cuMemCreate create = {.size = 2 * MIB, .prop = {.type = 1, .location = {1, 0}}, .handle = id};
  struct vgw_req_cuArray3DCreate_v2 array = {{.Width = 8, .Height = 8, .Format = FLOAT, .NumChannels = 1}, id};
  struct vgw_req_cuMipmappedArrayCreate mipmap = {{.Width = 8, .Height = 8, .Format = FLOAT, .NumChannels = 1}, id, 2};
  VGT_ASK(fd, cuMemAlloc_v2, .bytesize = 64);
  VGT_ASK(fd, cuMemAllocPitch_v2, .WidthInBytes = 64, .Height = 2, .ElementSizeBytes = 4);
  vgt_ask(fd, VGW_OP_cuMemCreate, &create, sizeof create, answer, sizeof answer);
  if (VGT_ASK(fd, cuMemAddressReserve, .size = 2 * MIB)) {
    uint64_t at = answer[0];
    VGT_ASK(fd, cuMemMap, .ptr = at, .size = 2 * MIB, .handle = 1);
    VGT_ASK(fd, cuMemUnmap, .ptr = at, .size = 2 * MIB);
    VGT_ASK(fd, cuMemAddressFree, .ptr = at, .size = 2 * MIB);
  }
  vgt_ask(fd, VGW_OP_cuArray3DCreate_v2, &array, sizeof array, answer, sizeof answer);
  array.pAllocateArray.Flags = 0x40; /* CUDA_ARRAY3D_SPARSE: no memory of its own */
  array.pHandle++;
  vgt_ask(fd, VGW_OP_cuArray3DCreate_v2, &array, sizeof array, answer, sizeof answer);
  vgt_ask(fd, VGW_OP_cuMipmappedArrayCreate, &mipmap, sizeof mipmap, answer, sizeof answer);
  VGT_ASK(fd, cuCtxSetLimit, .value = 64 * MIB, .limit = HEAP);
  VGT_ASK(fd, cuGraphInstantiateWithFlags, .phGraphExec = id, .hGraph = 2); /* it allocates */
}

/* No entry of the account can be made. */
void vgt_walk_unaccounted(int fd) {
  vgt_driver_accounts(VGT_ACCOUNTS_NOT);
  make_contexts(fd);
  make_memory(fd, FIRST_ID);
}

static void make_pool(int fd, uint32_t id) {
  uint64_t answer[ANSWER_WORDS];
  struct vgw_req_cuMemPoolCreate create = {{.allocType = 1, .location = {1, 0}}, id};
  vgt_ask(fd, VGW_OP_cuMemPoolCreate, &create, sizeof create, answer, sizeof answer);
}

static void make_graph(int fd, uint32_t id, uint64_t nbytes) {
  uint64_t answer[ANSWER_WORDS];
  struct vgw_req_cuGraphAddMemAllocNode add = {.bytesize = nbytes, .phGraphNode = id, .hGraph = id};
  add.poolProps.allocType = add.poolProps.location.type = 1;
  VGT_ASK(fd, cuGraphCreate, .phGraph = id);
  vgt_ask(fd, VGW_OP_cuGraphAddMemAllocNode, &add, sizeof add, answer, sizeof answer);
  VGT_ASK(fd, cuGraphInstantiateWithFlags, .phGraphExec = id, .hGraph = id);
  VGT_ASK(fd, cuGraphLaunch, .hGraphExec = id, .hStream = 1);
  VGT_ASK(fd, cuStreamSynchronize, .hStream = 1);
}

/* More than the tenant may have, in each way, and after that memory that is freed. */
void vgt_walk_full(int fd) {
  enum { PIECES = 5, PIECE_MIB = 256 };
  uint64_t answer[ANSWER_WORDS] = {0}, pieces[PIECES] = {0};
  for (int i = 0; i < PIECES; i++)
    if (VGT_ASK(fd, cuMemAlloc_v2, .bytesize = PIECE_MIB * MIB))
      pieces[i] = answer[0];
  VGT_ASK(fd, cuMemAllocPitch_v2, .WidthInBytes = 512, .Height = PIECE_MIB << 11, .ElementSizeBytes = 4);
  VGT_ASK(fd, cuMemAllocPitch_v2, .WidthInBytes = 1ull << 40, .Height = 1ull << 40, .ElementSizeBytes = 4);
  VGT_ASK(fd, cuMemAllocAsync, .bytesize = PIECE_MIB * MIB, .hStream = 1);
  VGT_ASK(fd, cuMemAlloc_v2, .bytesize = 1ull << 40);
  make_graph(fd, FIRST_ID, PIECE_MIB * MIB);
  make_graph(fd, FIRST_ID + 1, 1ull << 40);
  make_graph(fd, FIRST_ID + 2, 1 * MIB);
  VGT_ASK(fd, cuGraphExecUpdate_v2, .hGraphExec = FIRST_ID + 2, .hGraph = FIRST_ID);
  VGT_ASK(fd, cuGraphExecDestroy, .hGraphExec = FIRST_ID + 2);
  for (int i = 0; i < PIECES; i++)
    VGT_ASK(fd, cuMemFree_v2, .dptr = pieces[i]);
  VGT_ASK(fd, cuDeviceGraphMemTrim, .device = 0);
  make_memory(fd, FIRST_ID + 3);
}

void vgt_walk_pools(int fd) {
  enum { POOL = FIRST_ID, STREAM = FIRST_ID };
  uint64_t answer[ANSWER_WORDS] = {0};
  for (uint32_t i = 0; i < 3; i++)
    make_pool(fd, POOL + i);
  VGT_ASK(fd, cuMemPoolDestroy, .pool = POOL);
  VGT_ASK(fd, cuDeviceSetMemPool, .dev = 0, .pool = POOL + 1);
  VGT_ASK(fd, cuMemPoolDestroy, .pool = POOL + 1);
  VGT_ASK(fd, cuMemPoolDestroy, .pool = 1); /* the device's own */
  for (uint32_t i = 0; i < 3; i++) {
    VGT_ASK(fd, cuStreamCreateWithPriority, .phStream = STREAM + i, .flags = 1);
    if (VGT_ASK(fd, cuMemAllocFromPoolAsync, .bytesize = 4096, .pool = POOL + 2, .hStream = STREAM + i))
      VGT_ASK(fd, cuMemFreeAsync, .dptr = answer[0], .hStream = STREAM + i);
  }
  VGT_ASK(fd, cuStreamDestroy_v2, .hStream = STREAM + 1);
  VGT_ASK(fd, cuMemPoolTrimTo, .pool = POOL + 2);
  VGT_ASK(fd, cuMemPoolDestroy, .pool = POOL + 2);
}

void vgt_walk_record(uint64_t limit_nbytes) {
  static int file = -1;
  if (file >= 0)
    close(file);
  file = vgt_zeroes(0);
  vgx_recording_set(file, limit_nbytes);
}

/* The recording reaches its limit, and then its file takes no more. */
void vgt_walk_recorded(int fd) { make_memory(fd, FIRST_ID); }

void vgt_walk_unrecorded(int fd) {
  make_contexts(fd);
  vgt_driver_disk_full(true);
  make_memory(fd, FIRST_ID);
}
