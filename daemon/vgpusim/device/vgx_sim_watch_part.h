/* Shared by the sanitizer's files: see vgx_sim_watch.h. */
#ifndef VGX_SIM_WATCH_PART_H
#define VGX_SIM_WATCH_PART_H

#include "vgx_sim_reach.h"
#include "vgx_sim_watch.h"

#define VGX_SIM_WARPS_MAX 32u

/* One lane's access. */
struct vgx_sim_lane_access {
  const struct vgx_sim_site *site;
  uint64_t address;
  uint32_t nbytes, lane;
  const uint8_t *value; /* the value to be stored; NULL: unknown */
};

enum vgx_sim_space { VGX_SIM_IN_GLOBAL, VGX_SIM_IN_SHARED, VGX_SIM_IN_LOCAL, VGX_SIM_IN_PARAM, VGX_SIM_IN_HOST };

/* Where an address lies, by the slots of vgx_sim_reach.h. */
static inline enum vgx_sim_space vgx_sim_space_of(uint64_t address) {
  if (address < VGX_SIM_SLOTS_BEGIN || address >= VGX_SIM_REACH_END)
    return address >= VGW_PINNED_BEGIN && address < VGX_SIM_SLOTS_BEGIN ? VGX_SIM_IN_HOST : VGX_SIM_IN_GLOBAL;
  uint64_t offset = (address - VGX_SIM_SLOTS_BEGIN) % VGX_SIM_SLOT_NBYTES;
  return offset < VGX_SIM_SLOT_LOCAL    ? VGX_SIM_IN_SHARED
         : offset < VGX_SIM_SLOT_PARAMS ? VGX_SIM_IN_LOCAL
                                        : VGX_SIM_IN_PARAM;
}

static inline bool vgx_sim_site_reads(const struct vgx_sim_site *site) {
  return site->kind != VGX_SIM_WRITE && site->kind != VGX_SIM_RELEASE && site->kind != VGX_SIM_OBJECT;
}

static inline bool vgx_sim_site_writes(const struct vgx_sim_site *site) {
  return site->kind != VGX_SIM_READ && site->kind != VGX_SIM_ACQUIRE;
}

#endif
