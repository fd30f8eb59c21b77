/* The connection of a session: its sticky error, and sending records and receiving replies on the socket. Any number of
 * threads may call at once. */
#ifndef VGS_RECORD_STREAM_H
#define VGS_RECORD_STREAM_H

#include "vgs_call.h"
#include "vgw_cuda.h"
#include <stdbool.h>
#include <stdint.h>

/* Own `fd` from now on. Only before the first stream or after vgs_stream_close. `lose` is called when
 * the sticky error is set: before, and once more after it. */
void vgs_stream_start(int fd, uint32_t record_nbytes, void (*lose)(void));
int vgs_stream_fd(void);

/* From now on the connection carries records, not control frames. */
void vgs_stream_set_attached(void);
bool vgs_stream_attached(void);

/* The sticky error. The first vgs_stream_fail sets it, logs the reason, shuts the connection down and wakes every
 * waiter. */
CUresult vgs_stream_error(void);
void vgs_stream_fail(CUresult error, const char *reason);

/* Whether the other end has closed the connection; for threads that wait on shared memory. */
bool vgs_stream_peer_gone(void);

/* Read what has arrived on the socket, unless another thread is reading. While all threads wait on shared memory, this
 * is how the host's progress reports are received. */
void vgs_stream_read_arrived(void);

/* Make every present and future call return DEINITIALIZED. */
void vgs_stream_shutdown(void);

/* A thread that uses the socket holds a reference: it is not closed meanwhile. */
void vgs_stream_ref(void);
void vgs_stream_unref(void);
bool vgs_stream_is_used(void);
void vgs_stream_close(void);

/* As vgs_session_call, on the socket. `sent` (or NULL) is called once the record is sent, in the order of sending; its
 * second argument is whether the reply is waited for. `notices`: VGW_NOTICE_* bits of the reply. */
CUresult vgs_stream_call(struct vgs_call *call, bool wait, void (*sent)(const struct vgs_call *, bool),
                         uint16_t *notices);

/* Waiting calls, at most VGS_AHEAD, that are all sent before the first reply is waited for. Returns the first error. */
CUresult vgs_stream_call_all(struct vgs_call *calls, uint32_t count, void (*sent)(const struct vgs_call *, bool),
                             uint16_t *notices);

/* In a forked child: close the descriptor, touch nothing else. */
void vgs_stream_abandon(void);

#endif
