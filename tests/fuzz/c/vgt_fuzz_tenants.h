/* What other sessions do meanwhile, of the same tenant and of another one. */
#ifndef VGT_FUZZ_TENANTS_H
#define VGT_FUZZ_TENANTS_H

#include <stddef.h>
#include <stdint.h>

struct vgw_ledger;

enum { VGT_ROW = 3, VGT_LIMITED_ROW = 5 }; /* of the session that is tried, and of its device memory */

/* A file of zeros. */
int vgt_zeroes(size_t nbytes);

/* The ledger as a session finds it: another session of the tenant has some of everything. */
struct vgw_ledger *vgt_tenants_ledger(void);

/* Change what others have by `what`: 0: as at first; one in sixteen takes the device out of service. */
void vgt_tenants_change(uint32_t what);

/* From now on the process's sessions wait for their turns: another tenant's session shares the device. */
void vgt_tenants_share(void);

/* Another session of the tenant records the event whose page is in `file`, and may die before it is done. */
void vgt_tenants_record(int file);

/* After a session: what its streams still wait for is done, as streams do not end here with the worker's process. */
void vgt_tenants_finish(void);

#endif
