/* Events: what the client knows of them without asking the worker. */
#ifndef VGS_EVENT_H
#define VGS_EVENT_H

#include "vgs_objects.h"

/* Called before and after an event is recorded: first, returning the capture of the stream (0: none), then with its
 * position in its stream, and what vgs_event_idle_at said before. `flags`: 1 if a capture takes the record as a node,
 * so that launches record the event. */
uint64_t vgs_event_record_begin(struct vgs_event *event, const struct vgs_stream *stream, uint32_t flags);
void vgs_event_record_end(struct vgs_event *event, uint32_t stream, uint64_t idle_at);

/* Called before an event is recorded: the stream's entry if all its work is known to be done, so that the event is
 * complete as soon as it is recorded, and the stream still idle. Else 0, and for events with timing, whose time the
 * device has yet to write. */
uint64_t vgs_event_idle_at(const struct vgs_event *event, const struct vgs_stream *stream);

/* In place of a record in a stream that is idle at the entry `idle_at`: nothing need be sent if the worker's event is
 * complete already, as of an earlier record. Returns false if that is not known, or a profiler is to see the record. */
bool vgs_event_record_idle(struct vgs_event *event, uint32_t stream, uint64_t idle_at);

/* A launch records the event: until the next record only the worker knows whether it is complete. */
void vgs_event_recorded_in_worker(struct vgs_event *event);

/* A node of a graph records the event: from now on only the worker knows its state. */
void vgs_event_of_graph(struct vgs_event *event);

/* Whether the event is known to be complete: it was never recorded, or a wait for its stream has shown that it is done.
 */
bool vgs_event_is_done(struct vgs_event *event);

/* The entry of the event's stream when it was recorded last; 0: unknown. */
uint64_t vgs_event_entry(struct vgs_event *event);

/* Whether the event was recorded and no later work was submitted to its stream. */
bool vgs_event_is_last(struct vgs_event *event);

/* Whether the event was recorded, and was created with timing. */
bool vgs_event_is_timed(const struct vgs_event *event);

/* Invalidate the capture that the event belongs to. Returns CAPTURED_EVENT. */
CUresult vgs_event_captured(const struct vgs_event *event);

#endif
