/* How many objects, bytes of images and seconds of compiling a tenant may have, all its sessions together: each worker
 * counts what its own session has, and adds the other sessions' use from the ledger (vgw_ledger.h). The handle tables
 * count objects, by the quota that the specification gives their kind (protocol/gen/dsl.py). */
#ifndef VGX_QUOTA_H
#define VGX_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

#include "vgw_records.h"

struct vgx_session;

/* enum vgw_quota of each kind of handle; VGW_QUOTA_NONE: not counted. Generated. */
extern const uint8_t vgx_quota_of_kind[VGW_KIND_COUNT];

/* Count `amount` more. False: that would be over the limit, and nothing is counted; after table_lock has been released,
 * the caller tells the client. */
bool vgx_quota_reserve_locked(struct vgx_session *s, enum vgw_quota quota, uint64_t amount);
void vgx_quota_add_locked(struct vgx_session *s, enum vgw_quota quota, uint64_t amount); /* whatever the limit is */
void vgx_quota_release_locked(struct vgx_session *s, enum vgw_quota quota, uint64_t amount);

/* Count a call that a limit refuses; the first time, tell the client which limit. */
void vgx_quota_tell(struct vgx_session *s, enum vgw_quota quota);

/* Called around compiling for the session. JIT_COMPILATION_DISABLED: the tenant's time is used up. */
CUresult vgx_compile_begin(uint64_t *begun_ns);
void vgx_compile_end(uint64_t begun_ns);

/* Before a call of the program's: sleep while the tenant's sessions make more calls than they may. */
void vgx_pace(struct vgx_session *s);

/* Set the session that compiling counts for. */
void vgx_quota_start(struct vgx_session *s);

#endif
