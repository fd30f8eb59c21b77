/* How much of each simulated device's memory every session uses: one page-aligned file that vgpud makes and all workers
 * map (vgpud/devices/ledger.py). Each worker writes its own row; who allocates counts all rows, so that one card's
 * memory is one card's, whoever uses it, and the rows of its tenant, whose share of the card may be less. vgpud says
 * which tenant a row is for before a worker gets it, and clears the row of a worker that has ended. */
#ifndef VGX_SIM_LEDGER_H
#define VGX_SIM_LEDGER_H

#include <stdint.h>

#include "vgw_device_memory.h"

#define VGX_SIM_LEDGER_ROWS 1024u

struct vgx_sim_ledger {
  uint64_t row_count; /* atomic; rows that were ever given out */
  uint64_t zero[VGW_SIMULATED_DEVICES_MAX - 1];
  uint64_t used_nbytes[VGX_SIM_LEDGER_ROWS][VGW_SIMULATED_DEVICES_MAX]; /* atomic */
  uint64_t tenant[VGX_SIM_LEDGER_ROWS]; /* atomic; rows of one tenant have one number, never 0 */
};

/* A device's part in it. */
struct vgx_sim_share {
  struct vgx_sim_ledger *ledger; /* NULL: the device is this process's alone */
  uint32_t row, device;
  uint64_t limit_nbytes; /* of the tenant's sessions together; UINT64_MAX: the card's memory is the only limit */
};

/* Say what this process uses. */
void vgx_sim_share_write(const struct vgx_sim_share *share, uint64_t nbytes);

/* What may still be allocated on a device of `capacity_nbytes`, where this process uses `used_nbytes`. Negative: more
 * is in use than may be. */
int64_t vgx_sim_share_room(const struct vgx_sim_share *share, uint64_t used_nbytes, uint64_t capacity_nbytes);

/* The memory that a client sees of it. */
uint64_t vgx_sim_share_capacity(const struct vgx_sim_share *share, uint64_t capacity_nbytes);

#endif
