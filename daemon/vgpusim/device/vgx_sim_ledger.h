/* A simulated device's part of the ledger (vgw_ledger.h): the worker processes that use a card share
 * its memory, of which a tenant may be limited to a part. */
#ifndef VGX_SIM_LEDGER_H
#define VGX_SIM_LEDGER_H

#include <stdint.h>

#include "vgw_ledger.h"

/* A device's part in the ledger. */
struct vgx_sim_share {
  struct vgw_ledger *ledger; /* NULL: the device is this process's alone */
  uint32_t row, device;
  uint64_t limit_nbytes; /* of the tenant's sessions together; UINT64_MAX: the card's memory is the only limit */
};

/* Publish how much this process uses. */
void vgx_sim_share_write(const struct vgx_sim_share *share, uint64_t nbytes);

/* What may still be allocated on a device of `capacity_nbytes`, where this process uses `used_nbytes`. Negative: more
 * is in use than may be. */
int64_t vgx_sim_share_room(const struct vgx_sim_share *share, uint64_t used_nbytes, uint64_t capacity_nbytes);

/* The device's memory as the client sees it. */
uint64_t vgx_sim_share_capacity(const struct vgx_sim_share *share, uint64_t capacity_nbytes);

#endif
