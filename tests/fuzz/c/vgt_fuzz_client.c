/* See vgt_fuzz_client.h. */
#define _GNU_SOURCE
#include "vgt_fuzz_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vgt_fuzz.h"
#include "vgt_fuzz_channel.h"
#include "vgt_fuzz_must.h"
#include "vgw_pinned.h"
#include "vgw_records.h"

enum { ANSWER_TURNS = 8, ANSWERS = 20 };

bool vgt_client_open(int fd) {
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
    if (header.flags & VGW_WANT_REPLY) { /* records without a reply travel with the next one that has one */
      vgt_must(at == sent || vgt_send_now(fd, records + sent, at - sent, -1), "opening");
      vgt_send_file(fd, records + at, header.length);
      sent = at + header.length;
      if (!vgt_reply(fd, &value)) {
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

void vgt_client_answer(int fd, uint32_t turn) {
  static const struct vgw_header next = {
      .length = sizeof next, .opcode = VGW_OP_vgpuNextCallback, .flags = VGW_WANT_REPLY};
  struct {
    struct vgw_header header;
    uint32_t callback, zero;
  } done = {.header = {.length = sizeof done, .opcode = VGW_OP_vgpuCallbackDone}};
  if (turn % ANSWER_TURNS || turn >= ANSWERS * ANSWER_TURNS)
    return;
  vgt_send_now(fd, &next, sizeof next, -1);
  static const uint32_t marks[] = {0, VGW_CALLBACK_OF_GRAPH,
                                   VGW_CALLBACK_OF_GRAPH | VGW_CALLBACK_INTERNAL | VGW_CALLBACK_WHOLE_COPY};
  for (uint32_t number = 1; number <= 3; number++)
    for (uint32_t mark = 0; mark < 3; mark++) {
      done.callback = number | marks[mark];
      vgt_send_now(fd, &done, sizeof done, -1);
    }
}

void vgt_client_measure(int fd) {
  union {
    struct vgw_req_cuLaunchKernel request;
    uint64_t words[6];
  } launch = {{.kind = VGW_KIND_FUNCTION,
               .object = 1,
               VGT_ONE_THREAD}};
  _Static_assert(sizeof launch == sizeof launch.request, "the words are the request");
  vgt_send_words(fd, VGW_OP_vgpuActivityStart, (uint64_t[]){1}, 1);
  for (int i = 0; i < 3; i++)
    vgt_send_words(fd, VGW_OP_cuLaunchKernel, launch.words, 6);
}

void vgt_client_measured(int fd) {
  vgt_send_words(fd, VGW_OP_cuCtxSynchronize, NULL, 0);
  vgt_send_words(fd, VGW_OP_vgpuActivityTake, (uint64_t[]){64}, 1);
  vgt_send_words(fd, VGW_OP_vgpuActivityName, (uint64_t[]){64, 1}, 2);
}

void vgt_client_misuse(int fd, struct vgw_ring *ring, uint32_t how) {
  enum { FAR = 1 << 30, UNOPENED = 5 };
  struct {
    struct vgw_req_vgpuTensorMap request;
    struct vgw_tensor_map arguments;
  } map = {.request = {.form = 9, .nbytes = sizeof map.arguments, .map_nbytes = sizeof(CUtensorMap)}};
  _Static_assert(sizeof map <= VGT_WORDS_MAX * sizeof(uint64_t) && sizeof map % sizeof(uint64_t) == 0, "map fits");
  struct {
    struct vgw_header header;
    uint64_t number;
  } again = {{.length = sizeof again, .opcode = VGW_OP_vgpuRingOpen, .flags = VGW_HAS_FD}, 0};
  if (how == 2) {
    atomic_fetch_add(&ring->tail, 2 * sizeof ring->records);
    atomic_fetch_add(&ring->doorbell, 1);
    vgw_futex_wake(&ring->doorbell);
  } else if (how == 3) {
    vgt_send_file(fd, (const uint8_t *)&again, sizeof again);
  } else if (how == 4) {
    vgt_send_words(fd, VGW_OP_vgpuRingOpenAt, (uint64_t[]){0, 0}, 2);
  } else if (how == 5) {
    vgt_send_words(fd, VGW_OP_vgpuRingOpenAt, (uint64_t[]){FAR, UNOPENED}, 2);
  } else if (how == 6) {
    vgt_send_words(fd, VGW_OP_vgpuRingWake, (uint64_t[]){0}, 1);
  } else if (how == 7) {
    vgt_send_words(fd, VGW_OP_vgpuRingFence, (uint64_t[]){0, UNOPENED}, 2);
  } else if (how == 8) {
    vgt_send_words(fd, VGW_OP_vgpuRingWait, (uint64_t[]){0}, 1);
  } else if (how == 9) {
    vgt_send_words(fd, VGW_OP_vgpuTensorMap, (const uint64_t *)(const void *)&map, sizeof map / sizeof(uint64_t));
  } else if (how == 11) {
    vgt_send_words(fd, VGW_OP_vgpuHostReserve, (uint64_t[]){VGT_PAGE, VGT_PAGE}, 2);
  } else if (how == 12) {
    vgt_send_words(fd, VGW_OP_vgpuKernelName, (uint64_t[]){64, VGW_KIND_CONTEXT, 0}, 3);
  } else if (how == 10) {
    map.request.form = 1;
    map.request.map_nbytes = 8;
    vgt_send_words(fd, VGW_OP_vgpuTensorMap, (const uint64_t *)(const void *)&map, sizeof map / sizeof(uint64_t));
  }
}
