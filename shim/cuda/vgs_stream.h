/* Streams and events, by what goes on the wire. */
#ifndef VGS_STREAM_H
#define VGS_STREAM_H

#include "vgs_objects.h"

/* Wire id of a stream argument: 0 for the legacy default stream (handles 0 and 1), an id made at first use for the
 * thread's own default stream (handle 2), else the stream's. `object`, if wanted: NULL for the legacy stream. Returns:
 * INVALID_HANDLE for what is no stream of the current context's session; OUT_OF_MEMORY. */
CUresult vgs_stream_id(CUstream stream, uint32_t *id, struct vgs_stream **object);

/* The object of a stream that is about to be made, in the entered context; NULL: out of memory. */
struct vgs_stream *vgs_stream_create(uint32_t flags, int priority);
int vgs_stream_priority(int priority); /* within the device's range */

/* The stream a function without a stream parameter uses: legacy, or the thread's own in a _ptds variant. */
CUstream vgs_stream_default(void);

#endif
