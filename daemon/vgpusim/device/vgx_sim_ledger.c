#include "vgx_sim_ledger.h"

void vgx_sim_share_write(const struct vgx_sim_share *share, uint64_t nbytes) {
  if (share->ledger)
    __atomic_store_n(&share->ledger->used[share->row][share->device], nbytes, __ATOMIC_SEQ_CST);
}

int64_t vgx_sim_share_room(const struct vgx_sim_share *share, uint64_t used_nbytes, uint64_t capacity_nbytes) {
  if (!share->ledger)
    return vgw_ledger_capped(capacity_nbytes) - vgw_ledger_capped(used_nbytes);
  int64_t of_tenant, all = vgw_ledger_sum(share->ledger, share->device, share->row, &of_tenant);
  int64_t of_card = vgw_ledger_capped(capacity_nbytes) - all;
  int64_t of_share = vgw_ledger_capped(share->limit_nbytes) - of_tenant;
  return of_card < of_share ? of_card : of_share;
}

uint64_t vgx_sim_share_capacity(const struct vgx_sim_share *share, uint64_t capacity_nbytes) {
  return share->ledger && share->limit_nbytes < capacity_nbytes ? share->limit_nbytes : capacity_nbytes;
}
