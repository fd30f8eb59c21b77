/* A limit on how many bytes of their clients' memory the workers of one tenant map, all its sessions together. The
 * files are the clients' and may be sparse, but a real driver that registers one fills it with the host's memory.
 * Records that are read ahead (vgx_ahead.h) count, too. */
#ifndef VGX_HOST_QUOTA_H
#define VGX_HOST_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

struct vgw_ledger;
struct vgx_session;

/* Count `nbytes` more. False: the sum would exceed options->host_limit_nbytes; the reason has been sent to the
 * client. */
bool vgx_host_reserve(struct vgx_session *s, uint64_t nbytes);
void vgx_host_release(struct vgx_session *s, uint64_t nbytes);

/* The same without a reason. `anyway`: they count even if the sum exceeds the limit. */
bool vgx_host_count(struct vgx_session *s, uint64_t nbytes, bool anyway);

/* Map the file that vgpud made (vgw_ledger.h); it is never unmapped. NULL: not such a file, or memory is short. */
struct vgw_ledger *vgx_ledger_map(int fd, uint32_t row);

#endif
