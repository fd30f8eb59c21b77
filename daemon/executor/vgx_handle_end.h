/* Destroying objects that other threads may be using. */
#ifndef VGX_HANDLE_END_H
#define VGX_HANDLE_END_H

#include "vgx_handle.h"

/* Destroy an object: nobody finds it any more, nor what it owns, and nobody uses them when this returns. Then the
 * caller has the backend destroy it, and says whether that was done; if not, everything is as before.
 * INVALID_HANDLE, INVALID_CONTEXT: it is gone. INVALID_VALUE, INVALID_HANDLE: it goes with its owner only.
 * ILLEGAL_STATE: another thread has used it for END_TIMEOUT_S; a call that may block waits for as long as it takes. */
CUresult vgx_handle_end(struct vgx_session *s, enum vgw_kind kind, uint32_t id, void **object);
void vgx_handle_ended(struct vgx_session *s, enum vgw_kind kind, uint32_t id, bool done);

#endif
