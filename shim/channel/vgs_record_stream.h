/* The command stream of a session: records out, replies in, many threads at once. Used by vgs_session.c alone. */
#ifndef VGS_RECORD_STREAM_H
#define VGS_RECORD_STREAM_H

#include "vgw_cuda.h"
#include <stdbool.h>
#include <stdint.h>

/* Own `fd` from now on. Only before the first stream or after vgs_stream_end. */
void vgs_stream_start(int fd, uint32_t record_nbytes, bool rings);
int vgs_stream_fd(void);

/* From now on the connection carries records, not control frames. */
void vgs_stream_set_attached(void);
bool vgs_stream_attached(void);

/* The sticky error. The first vgs_stream_fail sets it, logs the reason, shuts the connection down and wakes every
 * waiter. */
CUresult vgs_stream_error(void);
void vgs_stream_fail(CUresult error, const char *reason);

/* Whether the other end has closed the connection; for those who wait on shared memory. */
bool vgs_stream_peer_gone(void);

/* Make every present and future call return DEINITIALIZED. */
void vgs_stream_shutdown(void);

/* Wait (1 s at most) until no thread is inside a call of a failed or shut-down stream, then close it.
 * False: one still is; nothing was closed. */
bool vgs_stream_end(void);

/* In a forked child: close the descriptor, touch nothing else. */
void vgs_stream_abandon(void);

#endif
