#include "vgs_host_end.h"
#include "vgs_api.h"
#include "vgs_host_mirror.h"
#include "vgs_pages.h"
#include "vgs_pages_move.h"
#include "vgs_range.h"
#include <string.h>

void vgs_host_end_moved(uint64_t begin, uint64_t end) {
  struct vgs_pages pages;
  vgs_pages_look(begin, end, &pages);
  if (pages.kind == VGS_PAGES_FILE && !strncmp(pages.path, "/memfd:" VGS_PAGES_MOVED, sizeof VGS_PAGES_MOVED + 6))
    vgs_pages_move_back(begin, end);
}

/* An error is the context's, whose end reports it. */
static void end(const struct vgs_range *range) {
  const uint64_t offset = VGS_PAGE_NBYTES - 1;
  CUresult ignored;
  if (vgs_host_mirror_remove(range->base, &ignored))
    return;
  if (range->shared) {
    vgs_send_vgpuHostUnmap(range->base);
  } else if (range->kind == VGS_RANGE_REGISTERED && range->device_address) {
    vgs_send_vgpuHostUnmap(range->device_address & ~offset);
    vgs_host_end_moved(range->base & ~offset, (range->base + range->nbytes + offset) & ~offset);
  }
}

void vgs_host_end_context(uint32_t context_id) {
  struct vgs_range range = {.nbytes = 0};
  while (vgs_range_next_host(context_id, range.base + range.nbytes, &range))
    end(&range);
}
