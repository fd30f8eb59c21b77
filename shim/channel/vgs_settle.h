/* What may still be running, so that a wait for a context is none, or is one for the only stream that has work.
 *
 * It is known for processes with one context; with a second one everything may be running always. */
#ifndef VGS_SETTLE_H
#define VGS_SETTLE_H

#include "vgw_ring.h"
#include <stdbool.h>
#include <stdint.h>

/* A new session. */
void vgs_settle_start(void);

/* A call that leaves work in `stream` was pushed to this ring, as its record number `position`. By the ring's thread,
 * after the stream was touched. */
void vgs_settle_note(unsigned ring, uint32_t context, uint32_t stream, uint64_t position);

/* How much each ring had been given at a moment. */
struct vgs_settle_marks {
  unsigned count;
  uint64_t noted[VGW_RINGS_MAX], position[VGW_RINGS_MAX]; /* of the first `count` */
};

enum vgs_settle { VGS_SETTLED, VGS_SETTLE_ONE, VGS_SETTLE_MANY };

/* Where there may be work: nowhere, in `stream` alone, or anywhere. */
enum vgs_settle vgs_settle_look(uint32_t context, struct vgs_settle_marks *marks, uint32_t *stream);

/* All that was given by the time of `marks` is done. */
void vgs_settle_done(const struct vgs_settle_marks *marks);

/* Whether the ring's records up to this position are known to be done. */
bool vgs_settle_is_done(unsigned ring, uint64_t position);

/* Work came some other way: nothing is known from now on. */
void vgs_settle_set_blind(void);

/* Whether there has been more than one context, or work that was not noted. */
bool vgs_settle_is_blind(void);

#endif
