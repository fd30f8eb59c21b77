/* One record, from the socket or from a ring. */
#ifndef VGX_EXECUTE_H
#define VGX_EXECUTE_H

#include "vgx_session.h"

/* Decode, execute, and reply if a reply is wanted. The cursor stands behind the header. */
void vgx_execute(struct executor_thread *t, const struct vgw_header *h, struct vgw_cursor *in,
                 const struct vgx_operation *op);

#endif
