/* Which ring touched a stream or event last, and how far that ring was then; and how far a stream is known to be done.
 * Lock-free; a table of two levels by id.
 *
 * An entry stands for one moment of its stream: every touch makes another one. 0: never touched. */
#ifndef VGS_TOUCH_H
#define VGS_TOUCH_H

#include "vgw_records.h"
#include <stdbool.h>

struct vgs_touch {
  unsigned ring;
  bool mixed;        /* two rings touched it at once: what is pushed next comes after all rings */
  uint64_t position; /* records pushed to the ring, this one included: at least 1 */
};

uint64_t vgs_touch_entry(uint16_t kind, uint32_t id);
struct vgs_touch vgs_touch_of(uint64_t entry);

/* Note a touch. `before` is the entry that it comes after, or VGS_TOUCH_ALONE while there is one ring; if another
 * ring's touch has come between, the new entry is mixed. */
#define VGS_TOUCH_ALONE UINT64_MAX
CUresult vgs_touch_set(uint16_t kind, uint32_t id, uint64_t before, struct vgs_touch touch);

/* Something touched it outside the rings: what is pushed next comes after all rings. */
void vgs_touch_mix(uint16_t kind, uint32_t id);

/* All that a stream had been given by the time of `entry` is done. */
void vgs_touch_settle(uint32_t stream, uint64_t entry);

/* Whether what the stream had been given by the time of `entry` is known to be done. */
bool vgs_touch_is_settled(uint32_t stream, uint64_t entry);

/* Forget everything: the session is over. */
void vgs_touch_forget(void);

/* Free the table. No thread may be using it. */
void vgs_touch_fini(void);

#endif
