/* Memory that a virtual machine and its host share (wire.md, "Regions"): its first page, by which a client recognises
 * the region that vgpud named. vgpud assigns the rest: each session gets one range, which holds rings (vgw_wire.h)
 * and pinned memory. */
#ifndef VGW_REGION_H
#define VGW_REGION_H

#include <stdint.h>

#define VGW_REGION_MAGIC "VGPUREGN"
#define VGW_REGION_HEADER_NBYTES 4096u /* the first page belongs to no range */
#define VGW_REGION_PAGE_NBYTES 4096u   /* ranges, rings and pinned memory begin and end on pages */

struct vgw_region_header {
  char magic[8];
  uint8_t cookie[16]; /* fresh at each start of vgpud */
  uint64_t nbytes;    /* of the region */
};

_Static_assert(sizeof(struct vgw_region_header) == 32, "layout");

#endif
