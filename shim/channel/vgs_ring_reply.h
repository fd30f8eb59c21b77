/* Waiting for the reply to the last record of a ring. */
#ifndef VGS_RING_REPLY_H
#define VGS_RING_REPLY_H

#include "vgs_ring.h"

/* Wait for the reply and copy it into the call's buffers; the caller is inside the ring, as VGS_RING_WAITING. Its
 * lengths come from the worker and are checked. `notices`: VGW_*_PENDING bits of the reply. */
CUresult vgs_ring_wait_reply(struct vgs_ring *ring, struct vgs_call *call, uint32_t sequence, uint16_t *notices);

#endif
