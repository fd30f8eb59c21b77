/* CUDA events: records of cuEventRecord, and which of them a wait refers to. */
#ifndef VGS_CUPTI_EVENT_H
#define VGS_CUPTI_EVENT_H

#include <stdint.h>

/* A call that recorded an event. */
struct vgs_cupti_recorded {
  uint32_t event, correlation, context, device, stream;
  uint64_t sync_id; /* unique among all such calls */
};

/* The event is about to be recorded: waits refer to this call from now on. Returns its sync id. Locks `lock`. */
uint64_t vgs_cupti_event_recorded(uint32_t event);

/* The sync id of the event's last record; UINT32_MAX: none was seen. Locks `lock`. */
uint64_t vgs_cupti_event_last(uint32_t event);

/* Put the record of such a call. `time`: the device's, in the profiler's clock; 0: it is not known. */
void vgs_cupti_put_event(const struct vgs_cupti_recorded *recorded, uint64_t time);

/* In a forked child: no event was seen. */
void vgs_cupti_reset_events(void);

#endif
