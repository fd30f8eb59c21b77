/* What every session uses, so that the usage of a tenant's sessions can be summed and limited: one page-aligned file
 * that vgpud makes and all workers map (vgpud/devices/ledger.py). Each worker writes its own row and sums the column
 * before it allocates. vgpud writes a row's tenant before a worker gets the row, and clears the row of a worker that
 * has ended. No locks: a row has one writer. If two workers want the last bytes at once, both may be refused, but never
 * do both succeed: each writes its own row before it sums. */
#ifndef VGW_LEDGER_H
#define VGW_LEDGER_H

#include <stdint.h>

#include "vgw_device_memory.h"

#define VGW_LEDGER_ROWS 1024u
/* Columns: each simulated device's memory; clients' memory that their workers map; the time until which the session
 * counts as making calls (CLOCK_MONOTONIC, ms); then the quotas of enum vgw_quota, from 1, with room for more. */
#define VGW_LEDGER_HOST VGW_SIMULATED_DEVICES_MAX
#define VGW_LEDGER_QUOTA (VGW_SIMULATED_DEVICES_MAX + 1)
#define VGW_LEDGER_COLUMNS 48

struct vgw_ledger {
  uint64_t row_count; /* atomic; rows that were ever given out */
  uint64_t absent;    /* atomic; a bit for each device that is out of service */
  uint64_t zero[VGW_LEDGER_COLUMNS - 2];
  uint64_t used[VGW_LEDGER_ROWS][VGW_LEDGER_COLUMNS]; /* atomic */
  uint64_t tenant[VGW_LEDGER_ROWS];                   /* atomic; rows of one tenant have one number, never 0 */
};

/* Never negative, and small enough to subtract: rows are written by other processes. */
static inline int64_t vgw_ledger_capped(uint64_t nbytes) {
  return nbytes > INT64_MAX / 2 ? INT64_MAX / 2 : (int64_t)nbytes;
}

static inline int64_t vgw_ledger_add(int64_t total, uint64_t nbytes) {
  return vgw_ledger_capped((uint64_t)total + (uint64_t)vgw_ledger_capped(nbytes));
}

/* All rows' sum of a column; *of_tenant: those of the rows that belong to the tenant of `row`. */
static inline int64_t vgw_ledger_sum(const struct vgw_ledger *ledger, uint32_t column, uint32_t row,
                                     int64_t *of_tenant) {
  int64_t all = 0, tenants = 0;
  uint64_t rows = __atomic_load_n(&ledger->row_count, __ATOMIC_SEQ_CST);
  uint64_t tenant = __atomic_load_n(&ledger->tenant[row], __ATOMIC_SEQ_CST);
  for (uint64_t i = 0; i < rows && i < VGW_LEDGER_ROWS; i++) {
    uint64_t nbytes = __atomic_load_n(&ledger->used[i][column], __ATOMIC_SEQ_CST);
    all = vgw_ledger_add(all, nbytes);
    if (__atomic_load_n(&ledger->tenant[i], __ATOMIC_SEQ_CST) == tenant)
      tenants = vgw_ledger_add(tenants, nbytes);
  }
  *of_tenant = tenants;
  return all;
}

#endif
