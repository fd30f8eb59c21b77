/* Destroying objects that other threads may be using. */
#ifndef VGX_HANDLE_END_H
#define VGX_HANDLE_END_H

#include "vgx_handle.h"

/* Begin to destroy an object: when this returns, lookups no longer find it or what it owns, and no thread uses them.
 * The caller then has the backend destroy it and reports the outcome; on failure everything is restored.
 * INVALID_HANDLE, INVALID_CONTEXT: it was already destroyed. INVALID_VALUE, INVALID_HANDLE: only its owner's end
 * destroys it. ILLEGAL_STATE: another thread has used it for END_TIMEOUT_S; a call that may block waits without a
 * limit. */
CUresult vgx_handle_end(struct vgx_session *s, enum vgw_kind kind, uint32_t id, void **object);
void vgx_handle_ended(struct vgx_session *s, enum vgw_kind kind, uint32_t id, bool done);

#endif
