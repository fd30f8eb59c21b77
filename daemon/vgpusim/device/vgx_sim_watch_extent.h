/* The range of addresses that the lanes of a warp access in one instruction. */
#ifndef VGX_SIM_WATCH_EXTENT_H
#define VGX_SIM_WATCH_EXTENT_H

#include <stdint.h>

/* The least and greatest address of the active lanes, and the bits that are set in any of the addresses. */
struct vgx_sim_extent {
  uint64_t least, most, bits;
};

static inline struct vgx_sim_extent vgx_sim_extent_of_lanes(const uint64_t *addresses, uint32_t mask) {
  struct vgx_sim_extent all = {UINT64_MAX, 0, 0};
  for (uint32_t lane = 0; lane < 32; lane++) {
    bool acts = mask >> lane & 1;
    uint64_t low = acts ? addresses[lane] : UINT64_MAX, high = acts ? addresses[lane] : 0;
    all.least = low < all.least ? low : all.least;
    all.most = high > all.most ? high : all.most;
    all.bits |= high;
  }
  return all;
}

/* The same for a warp of which all lanes are active and access rows: runs of consecutive elements, each of which begins
 * at a lane of `starts`. In a row the address bits below the size of an element are equal. */
static inline struct vgx_sim_extent vgx_sim_extent_of_rows(const uint64_t *addresses, uint32_t starts,
                                                           uint32_t nbytes) {
  struct vgx_sim_extent all = {UINT64_MAX, 0, 0};
  for (uint32_t left = starts; left; left &= left - 1) {
    uint32_t rest = left & (left - 1), last = (rest ? (uint32_t)__builtin_ctz(rest) : 32) - 1;
    uint64_t first = addresses[__builtin_ctz(left)], end = addresses[last];
    all.least = first < all.least ? first : all.least;
    all.most = end > all.most ? end : all.most;
    all.bits |= first;
  }
  all.bits |= nbytes;
  return all;
}

#endif
