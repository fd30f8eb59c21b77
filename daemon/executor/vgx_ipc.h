/* Memory and events that this session shares with other clients of its tenant. vgpud keeps the handles and decides who
 * may open them (daemon/vgpud/services/ipc_service.py); workers exchange nothing directly. */
#ifndef VGX_IPC_H
#define VGX_IPC_H

#include "vgx_backend.h"
#include "vgx_session.h"
#include "vgx_share.h"

/* What this session shares; under export_lock. */
struct vgx_export {
  enum vgx_ipc_what what;
  uint64_t key; /* the address of memory and of a pool's allocation; the id of another object */
  char token[64];
};

/* Each object is exported once. True: it is exported already, and its token was copied. False: export_lock is held; the
 * caller exports the object and calls the second function, which releases the lock. */
bool vgx_ipc_export_begin(struct vgx_session *s, enum vgx_ipc_what what, uint64_t key, void *token);
/* `made`: the backend's result. On success the object is published, and its token copied; its descriptor is closed. */
CUresult vgx_ipc_export_end(struct vgx_session *s, enum vgx_ipc_what what, uint64_t key, CUresult made,
                            const struct vgx_ipc_object *object, uint64_t nbytes, void *token);
void vgx_ipc_remove_locked(struct vgx_session *s, uint32_t index);

/* Whether vgpud's service for sharing is connected to this session. */
bool vgx_ipc_is_there(void);

/* Pass an object to vgpud; `token` opens it from now on. The caller keeps the descriptor. */
CUresult vgx_ipc_publish(enum vgx_ipc_what what, const struct vgx_ipc_object *object, uint64_t nbytes, char token[64]);

/* Look up the object of a token; the caller owns its descriptor. INVALID_VALUE: this session may not open it.
 * INVALID_CONTEXT: this session exported it itself. */
CUresult vgx_ipc_find(enum vgx_ipc_what what, const char token[64], struct vgx_ipc_object *object, uint64_t *nbytes);

/* Withdraw an object: it cannot be opened any more. Clients that have opened it keep it. */
void vgx_ipc_withdraw(const char token[64]);

/* Called before the allocation at `address` is freed: the address may be reused. */
void vgx_ipc_freed(struct vgx_session *s, uint64_t address);
/* Withdraw everything that a context owned. */
void vgx_ipc_context_destroyed(struct vgx_session *s);

/* At the session's end, when none of its threads is left. */
void vgx_ipc_free(struct vgx_session *s);

/* Before vgx_serve: the socket to vgpud's service for sharing with other clients (vgpud/services/ipc_service.py); takes
 * ownership of it. */
void vgx_ipc_set(int fd);

#endif
