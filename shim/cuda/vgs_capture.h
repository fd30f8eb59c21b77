/* The client's part of stream capture: which streams are capturing, and what a capture forbids. The worker's driver
 * captures in relaxed mode, because its threads are not the program's; the stricter modes are enforced here. */
#ifndef VGS_CAPTURE_H
#define VGS_CAPTURE_H

#include "vgs_objects.h"
#include "vgs_work.h"

enum vgs_capture_status { VGS_CAPTURE_NONE, VGS_CAPTURE_ACTIVE, VGS_CAPTURE_INVALIDATED };

/* Status of the capture with this id (of a stream or event); 0 and ended ones are NONE. */
enum vgs_capture_status vgs_capture_status(uint64_t id);

/* Begin in a stream: a fresh id, or 0 when too many captures are active. End: the id is NONE from now on; returns its
 * last status, and in `works` the work that the graph keeps. */
uint64_t vgs_capture_begin(struct vgs_stream *stream, int mode);
enum vgs_capture_status vgs_capture_end(uint64_t id, struct vgs_works *works);

/* A context has ended: so have the captures that began in its streams. */
void vgs_capture_end_context(uint32_t context_id);

/* Make the stream part of a capture that another stream began. */
void vgs_capture_spread(struct vgs_stream *stream, uint64_t id);

/* Attach the object of the graph that is being captured, if it has one from the beginning; `owned`: the capture created
 * it. */
void vgs_capture_set_graph(uint64_t id, CUgraph graph, bool owned);
CUgraph vgs_capture_graph(uint64_t id, bool *owned);

/* Add work to the graph that is being captured; false: out of memory, or no such capture. */
bool vgs_capture_add_work(uint64_t id, struct vgs_work *work);
bool vgs_capture_add_works(uint64_t id, const struct vgs_works *works);

/* A call that must not touch a capturing stream did so: the capture is lost. Returns STREAM_CAPTURE_UNSUPPORTED. */
CUresult vgs_capture_forbid(uint64_t id);

/* The legacy stream of a context encompasses its blocking streams, so it is unusable while one of them captures, in any
 * mode: STREAM_CAPTURE_IMPLICIT then, of the entered context. Before work or a wait the captures are lost, too; a
 * question leaves them as they are. */
CUresult vgs_capture_check_legacy(void);
CUresult vgs_capture_ask_legacy(void);

/* For calls that a capture anywhere in the process, or in this thread, forbids (cuMemAlloc, synchronous copies, ...):
 * 0, or STREAM_CAPTURE_UNSUPPORTED, and the capture is lost. */
CUresult vgs_capture_check_unsafe(void);

#endif
