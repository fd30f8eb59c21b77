/* Racecheck's notes of 64 bytes of global memory: see vgx_sim_race_segment.c. */
#ifndef VGX_SIM_RACE_SEGMENT_H
#define VGX_SIM_RACE_SEGMENT_H

#include "vgx_sim_race_order.h"

#define VGX_SIM_SEGMENT_NBYTES 64u
#define VGX_SIM_LINE_NBYTES 32u

enum vgx_sim_segment_note { VGX_SIM_STORED, VGX_SIM_LOADED, VGX_SIM_LOADED_BY_OTHER, VGX_SIM_SEGMENT_NOTES };

enum vgx_sim_segment_form { VGX_SIM_WHOLE, VGX_SIM_HALVES, VGX_SIM_DIVIDED };

struct vgx_sim_segment {
  vgx_sim_note notes[VGX_SIM_SEGMENT_NOTES]; /* HALVES: of each half; DIVIDED: the first is its last epoch's */
  uint32_t form;
  uint32_t stored; /* HALVES, bits: those whose note is a store's */
};
_Static_assert(sizeof(struct vgx_sim_segment) == 32, "two of them in a cache line");

extern struct vgx_sim_segment *vgx_sim_segments; /* by address; NULL: none are in use */

/* A row as of vgx_sim_race_in_global, of bytes whose span is divided. */
void vgx_sim_race_in_segments(struct vgx_sim_race_access *a, uint64_t address, uint64_t nbytes, uint32_t lane,
                              uint32_t log2_nbytes);
/* Memory that costs nothing until it is used; NULL: memory is short. */
void *vgx_sim_race_reserve(uint64_t nbytes);
bool vgx_sim_race_reserve_segments(void);
void vgx_sim_race_clear_segments(void);

/* Prefetch the notes that the site's next access needs, if it is as far away as this one was from the last. */
extern uint64_t vgx_sim_fetched[64]; /* hashed by site and lane; a wrong one costs a useless prefetch */
static inline void vgx_sim_fetch_ahead(uint32_t site, uint64_t address, uint32_t lane) {
  const uint64_t near_nbytes = 256;
  uint64_t *before = &vgx_sim_fetched[(site ^ lane) % 64], next = 2 * address - *before;
  bool near = next - address + near_nbytes < 2 * near_nbytes; /* the processor fetches by itself */
  *before = address;
  if (!near && next >= VGX_SIM_REACH_BEGIN && next < VGX_SIM_SLOTS_BEGIN)
    __builtin_prefetch(&vgx_sim_segments[(next - VGX_SIM_REACH_BEGIN) / VGX_SIM_SEGMENT_NBYTES], 1);
}

#endif
