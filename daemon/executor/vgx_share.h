/* What other clients of the tenant may import by a descriptor: physical memory of cuMemCreate and pools. */
#ifndef VGX_SHARE_H
#define VGX_SHARE_H

#include <stdint.h>

struct vgx_session;

/* The kinds of what is shared; vgpud/services/ipc_service.py knows them by number. */
enum vgx_ipc_what {
  VGX_IPC_MEMORY = 1,
  VGX_IPC_EVENT = 2,
  VGX_IPC_ALLOCATION = 3, /* physical memory */
  VGX_IPC_POOL = 4,
  VGX_IPC_POINTER = 5, /* an allocation of a pool */
};

/* Called before the object of this id is released: it cannot be imported any more. Workers that have imported it
 * keep it. */
void vgx_share_released(struct vgx_session *s, enum vgx_ipc_what what, uint32_t id);

#endif
