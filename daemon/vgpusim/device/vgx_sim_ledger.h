/* How much of each simulated device's memory every session uses: one page-aligned file that vgpud makes and all workers
 * map (vgpud/devices/ledger.py). Each worker writes its own row; who allocates counts all rows, so that one card's
 * memory is one card's, whoever uses it. vgpud clears the row of a worker that has ended. */
#ifndef VGX_SIM_LEDGER_H
#define VGX_SIM_LEDGER_H

#include <stdint.h>

#include "vgw_device_memory.h"

#define VGX_SIM_LEDGER_ROWS 1024u

struct vgx_sim_ledger {
  uint64_t row_count; /* atomic; rows that were ever given out */
  uint64_t zero[VGW_SIMULATED_DEVICES_MAX - 1];
  uint64_t used_nbytes[VGX_SIM_LEDGER_ROWS][VGW_SIMULATED_DEVICES_MAX]; /* atomic */
};

/* A device's part in it. */
struct vgx_sim_share {
  struct vgx_sim_ledger *ledger; /* NULL: the device is this process's alone */
  uint32_t row, device;
};

/* Say what this process uses, and read what all do. */
void vgx_sim_share_write(const struct vgx_sim_share *share, uint64_t nbytes);
uint64_t vgx_sim_share_total(const struct vgx_sim_share *share, uint64_t otherwise);

#endif
