/* Walks of one record that ends its session. */
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "vgt_fuzz.h"
#include "vgt_fuzz_channel.h"
#include "vgt_fuzz_directed.h"
#include "vgt_fuzz_walks_parts.h"
#include "vgw_pinned.h"
#include "vgw_records.h"
#include "vgw_wire.h"

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
    {VGW_OP_vgpuHostMap, VGW_HAS_FD, 2, {1, VGT_PAGE}},
    {VGW_OP_vgpuHostMapFile, VGW_HAS_FD, 4, {1, VGT_PAGE}},
    {VGW_OP_vgpuHostMap, VGW_HAS_FD, 2, {VGW_PINNED_BEGIN + VGT_FREE_PAGE * VGT_PAGE, 1ull << 30}},
    {VGW_OP_vgpuStreamFlag, 0, 2, {1, 1}},
    {VGW_OP_vgpuKernelName, 0, 3, {64, VGW_KIND_STREAM | 1ull << 32, 0}},
    {VGW_OP_vgpuGraphAddConditional, 0, 6, {0, 0, 1 | 1ull << 32, (uint64_t)VGT_WALK_FIRST_ID << 32, 6, 0}},
    {VGW_OP_vgpuGraphAddConditional, 0, 6, {0, 0, 1 | 1ull << 32, 1ull << 32, 4, VGT_WALK_FIRST_ID}},
    {VGW_OP_vgpuGraphAddConditional, 0, 6, {0, 0, 1 | 1ull << 32, (uint64_t)VGT_WALK_FIRST_ID << 32, 4, 1}},
};

_Static_assert(sizeof wrongs / sizeof *wrongs == VGT_WALK_WRONGS, "as its header says");

void vgt_walk_wrong(int fd, uint32_t number) {
  const struct wrong *w = &wrongs[number];
  struct {
    struct vgw_header header;
    uint64_t words[10];
  } record = {{.opcode = w->opcode, .flags = w->flags, .context = 1}, {0}};
  int file = w->flags & VGW_HAS_FD ? vgt_walk_file_of(VGT_PAGE, false) : -1;
  record.header.length = w->count == UINT32_MAX ? 8 : (uint32_t)(sizeof record.header + 8 * w->count);
  memcpy(record.words, w->words, sizeof record.words);
  if (w->opcode == VGW_OP_vgpuGraphAddConditional)
    record.words[0] = vgt_conditions[0];
  vgt_send_with(fd, &record, w->count == UINT32_MAX ? sizeof record.header : record.header.length, file);
  if (file >= 0)
    close(file);
}

void vgt_walk_tensor_map(int fd, uint32_t form) {
  uint64_t answer[2];
  struct {
    struct vgw_req_vgpuTensorMap request;
    struct vgw_tensor_map arguments;
  } map = {.request = {.form = form, .nbytes = sizeof map.arguments, .map_nbytes = sizeof(CUtensorMap)}};
  map.arguments.rank = 1;
  vgt_ask(fd, VGW_OP_vgpuTensorMap, &map, sizeof map, answer, sizeof answer);
}

void vgt_walk_wrong_form(int fd) { vgt_walk_tensor_map(fd, 9); }

/* More descriptors than a worker keeps. */
void vgt_walk_descriptors(int fd) {
  struct vgw_header header = {.length = sizeof header, .opcode = VGW_OP_cuCtxSynchronize, .context = 1};
  for (int i = 0; i < 20; i++)
    vgt_send_with(fd, &header, sizeof header, STDERR_FILENO);
}
