/* Events: what the client knows of them without asking. */
#ifndef VGS_EVENT_H
#define VGS_EVENT_H

#include "vgs_objects.h"

/* Around the record of an event: the capture it becomes part of, 0: none, and then where it lies in its stream. */
uint64_t vgs_event_record_begin(struct vgs_event *event, const struct vgs_stream *stream);
void vgs_event_record_end(struct vgs_event *event, uint32_t stream);

/* Whether it was never recorded, which is complete, or a wait for its stream has shown that it is done. */
bool vgs_event_is_done(struct vgs_event *event);

/* Whether nothing was given to its stream since it was recorded there. */
bool vgs_event_is_last(struct vgs_event *event);

/* Whether it was recorded, and takes times. */
bool vgs_event_is_timed(const struct vgs_event *event);

/* The capture that it belongs to is lost; CAPTURED_EVENT. */
CUresult vgs_event_captured(const struct vgs_event *event);

#endif
