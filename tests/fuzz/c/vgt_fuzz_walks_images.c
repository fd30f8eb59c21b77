/* Walks of images and of a tenant's limits; each call may fail, as the opening may have. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "vgt_fuzz.h"
#include "vgt_fuzz_desks.h"
#include "vgt_fuzz_directed.h"
#include "vgt_fuzz_tenants.h"
#include "vgt_fuzz_walks_parts.h"
#include "vgw_pinned.h"
#include "vgw_records.h"
#include "vgw_wire.h"

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

void vgt_walk_offers(int fd) {
  uint64_t answer[8] = {0};
  for (uint32_t i = 0; i < OFFERS; i++) {
    uint32_t id = vgt_walk_first_id + i;
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
    VGT_ASK(fd, vgpuImageDrop, .image = vgt_walk_first_id + i);
}

void vgt_walk_images(int fd) {
  uint64_t answer[8] = {0};
  vgt_walk_offers(fd);
  VGT_ASK(fd, vgpuImageOffer, .total = NBYTES + 8, .digest0 = 2,
          .image = vgt_walk_first_id + OFFERS); /* of another length */
  VGT_ASK(fd, vgpuImageOffer, .total = 1ull << 40, .digest0 = 2, .image = vgt_walk_first_id + OFFERS + 1);
  VGT_ASK(fd, vgpuLink, .first = vgt_walk_first_id, .count = 2, .result = vgt_walk_first_id + 2); /* which is taken */
  VGT_ASK(fd, vgpuLink, .first = vgt_walk_first_id, .count = 2, .result = vgt_walk_first_id + OFFERS + 2);
  VGT_ASK(fd, vgpuImageDrop, .image = vgt_walk_first_id);
  VGT_ASK(fd, vgpuImageOffer, .total = NBYTES, .digest0 = 1,
          .image = vgt_walk_first_id + 1); /* taken: the session ends */
}

void vgt_walk_no_cache(int fd) {
  uint64_t answer[8];
  VGT_ASK(fd, vgpuImageOffer, .total = 16, .image = vgt_walk_first_id);
}

/* Uploads an image in pieces, sent at once: more than the worker's receive buffer holds. */
void vgt_walk_bulk(int fd) {
  enum { PIECE = 60000, PIECES = 80 };
  struct piece {
    struct vgw_header header;
    struct vgw_req_vgpuImageWrite request;
    uint8_t data[PIECE];
  } *pieces = calloc(PIECES, sizeof *pieces);
  for (uint32_t i = 0; pieces && i < PIECES; i++) {
    pieces[i].header = (struct vgw_header){.length = sizeof *pieces, .opcode = VGW_OP_vgpuImageWrite, .context = 1};
    pieces[i].request = (struct vgw_req_vgpuImageWrite){
        .image = vgt_walk_first_id, .total = PIECE * PIECES, .offset = (uint64_t)i * PIECE, .nbytes = PIECE};
  }
  const uint8_t *data = (const uint8_t *)pieces;
  size_t nbytes = pieces ? PIECES * sizeof *pieces : 0;
  for (ssize_t sent; nbytes && (sent = send(fd, data, nbytes, MSG_NOSIGNAL)) > 0; nbytes -= (size_t)sent)
    data += sent;
  free(pieces);
}

/* --- limits of a tenant, and a device that its operator has taken out of service --- */

void vgt_walk_limits(int fd) {
  enum { GRAPHS = 30, ABSENT = 15 };
  uint64_t answer[8];
  struct vgw_req_vgpuHostMap map = {VGW_PINNED_BEGIN + VGT_FREE_PAGE * VGT_PAGE, VGT_FILE_PAGES * VGT_PAGE};
  int file = vgt_walk_file_of(VGT_FILE_PAGES * VGT_PAGE, true);
  vgt_tenants_change(ABSENT);
  VGT_ASK(fd, cuDevicePrimaryCtxRetain, .pctx = vgt_walk_first_id, .dev = 0);
  VGT_ASK(fd, cuDevicePrimaryCtxRetain, .pctx = vgt_walk_first_id + 1, .dev = 99);
  vgt_tenants_change(0);
  write_image(fd, vgt_walk_first_id, 1 << 16, 8);
  VGT_ASK(fd, vgpuImageOffer, .total = 1 << 16, .image = vgt_walk_first_id + 1);
  vgt_ask_with(fd, VGW_OP_vgpuHostMap, &map, sizeof map, file, answer, sizeof answer);
  close(file);
  for (uint32_t i = 0; i < GRAPHS; i++)
    VGT_ASK(fd, cuGraphCreate, .phGraph = vgt_walk_first_id + i);
  struct {
    struct vgw_req_vgpuGraphAddConditional request;
    uint32_t bodies[2];
  } node = {{.condition = vgt_conditions[0], .hGraph = 1, .ctx = 1, .node = vgt_walk_first_id, .bodies_nbytes = 4},
            {vgt_walk_first_id + GRAPHS, 0}};
  vgt_ask(fd, VGW_OP_vgpuGraphAddConditional, &node, sizeof node, answer, sizeof answer);
}
