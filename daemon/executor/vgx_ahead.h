/* Reading ahead of the records that are executed: on a channel without shared memory, once the client has host
 * functions.
 *
 * Records on the socket are executed in order, and a driver may wait for streams in almost any call, also in one that
 * nobody waits for: the first launch of a kernel loads it. A stream that waits for a host function goes on when the
 * client has said that it is done, with a record behind that call. So a thread of its own reads all records, executes
 * those without which no host function ends, and those that move bytes of host memory, which the program and kernels
 * would see at once if they shared it (protocol/spec: OVERTAKES), and keeps the others for the threads that take turns
 * (vgx_serve.c). What asks for the next host function waits for one in a thread of its own (ASKS). */
#ifndef VGX_AHEAD_H
#define VGX_AHEAD_H

#include "vgx_session.h"

struct vgx_ahead_record;

void vgx_ahead_init(struct vgx_session *s);

/* Whether it is time for a thread to read ahead. */
bool vgx_ahead_is_due(const struct vgx_session *s);

/* Keep a copy of a record; waits while those that are kept are too large, or too many for the tenant's host memory.
 * False: the session ends. */
bool vgx_ahead_push(struct vgx_session *s, struct vgx_ahead_queue *queue, const struct vgw_header *h);

/* The oldest record that is kept, in the thread's buffer; waits for one. NULL: nobody reads ahead any more. */
const struct vgw_header *vgx_ahead_pop(struct executor_thread *t, struct vgx_ahead_queue *queue);

/* Nobody reads ahead any more. */
void vgx_ahead_end(struct vgx_session *s);

void vgx_ahead_fini(struct vgx_session *s);

#endif
