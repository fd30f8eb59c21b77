/* Which ring touched a stream or event last, and how far that ring was then. Lock-free; a table of two levels by id. */
#ifndef VGS_TOUCH_H
#define VGS_TOUCH_H

#include "vgw_records.h"
#include <stdbool.h>

struct vgs_touch {
  unsigned ring;
  uint64_t position; /* records pushed to the ring, this one included: at least 1 */
};

bool vgs_touch_find(uint16_t kind, uint32_t id, struct vgs_touch *last);
CUresult vgs_touch_set(uint16_t kind, uint32_t id, struct vgs_touch touch);

/* Forget everything. No thread may be using the table. */
void vgs_touch_fini(void);

#endif
