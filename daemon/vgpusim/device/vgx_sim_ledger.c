/* The ledger of device memory. No locks: a row has one writer. Two that allocate the last bytes at once may both be
 * refused, and never both succeed: each writes its own row before it counts. */
#include "vgx_sim_ledger.h"

void vgx_sim_share_write(const struct vgx_sim_share *share, uint64_t nbytes) {
  if (share->ledger)
    __atomic_store_n(&share->ledger->used_nbytes[share->row][share->device], nbytes, __ATOMIC_SEQ_CST);
}

/* Never negative, and small enough to subtract: rows are written by other processes. */
static int64_t capped(uint64_t nbytes) { return nbytes > INT64_MAX / 2 ? INT64_MAX / 2 : (int64_t)nbytes; }

static int64_t sum(int64_t total, uint64_t nbytes) { return capped((uint64_t)total + (uint64_t)capped(nbytes)); }

int64_t vgx_sim_share_room(const struct vgx_sim_share *share, uint64_t used_nbytes, uint64_t capacity_nbytes) {
  const struct vgx_sim_ledger *ledger = share->ledger;
  if (!ledger)
    return capped(capacity_nbytes) - capped(used_nbytes);
  int64_t all = 0, tenants = 0;
  uint64_t rows = __atomic_load_n(&ledger->row_count, __ATOMIC_SEQ_CST);
  uint64_t tenant = __atomic_load_n(&ledger->tenant[share->row], __ATOMIC_SEQ_CST);
  for (uint64_t i = 0; i < rows && i < VGX_SIM_LEDGER_ROWS; i++) {
    uint64_t nbytes = __atomic_load_n(&ledger->used_nbytes[i][share->device], __ATOMIC_SEQ_CST);
    all = sum(all, nbytes);
    if (__atomic_load_n(&ledger->tenant[i], __ATOMIC_SEQ_CST) == tenant)
      tenants = sum(tenants, nbytes);
  }
  int64_t of_card = capped(capacity_nbytes) - all, of_share = capped(share->limit_nbytes) - tenants;
  return of_card < of_share ? of_card : of_share;
}

uint64_t vgx_sim_share_capacity(const struct vgx_sim_share *share, uint64_t capacity_nbytes) {
  return share->ledger && share->limit_nbytes < capacity_nbytes ? share->limit_nbytes : capacity_nbytes;
}
