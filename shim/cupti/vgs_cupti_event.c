/* A wait's record names the record of the event that it waited for by a number, the sync id: an event may be recorded
 * again meanwhile. The last one of each event is kept in a hash table that only grows. */
#include "vgs_cupti_event.h"
#include "vgs_cupti_api.h"
#include "vgs_cupti_buffer.h"
#include "vgs_cupti_layout.h"
#include "vgs_cupti_result.h"
#include "vgs_cupti_state.h"
#include <stdlib.h>
#include <string.h>

enum { FIRST = 256, SLOTS_MAX = 1 << 20, NONE = UINT32_MAX };

struct slot {
  uint64_t sync_id; /* 0: the slot is free */
  uint32_t event;
};

static struct slot *slots; /* under `lock`, as are the next; at most half of them are used */
static size_t slot_count, used;
static uint64_t last_sync_id;

int vgs_cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t enable) {
  vgs_cupti_set_event_times(enable);
  return CUPTI_SUCCESS;
}

/* The event's slot, or the free one where it belongs; NULL: there is no table. */
static struct slot *find_locked(uint32_t event) {
  size_t at = (event * 2654435761u) % (slot_count ? slot_count : 1);
  while (slot_count && slots[at].sync_id && slots[at].event != event)
    at = (at + 1) % slot_count;
  return slot_count ? &slots[at] : NULL;
}

static bool grow_locked(void) {
  struct slot *old = slots;
  size_t count = slot_count, wanted = count ? count * 2 : FIRST;
  struct slot *grown = wanted <= SLOTS_MAX ? calloc(wanted, sizeof *grown) : NULL;
  if (!grown)
    return false;
  slots = grown;
  slot_count = wanted;
  for (size_t i = 0; i < count; i++)
    if (old[i].sync_id)
      *find_locked(old[i].event) = old[i];
  free(old);
  return true;
}

uint64_t vgs_cupti_event_recorded(uint32_t event) {
  pthread_mutex_lock(&vgs_cupti_lock);
  uint64_t sync_id = ++last_sync_id;
  struct slot *slot = find_locked(event);
  if (!slot || (!slot->sync_id && used * 2 >= slot_count))
    slot = grow_locked() ? find_locked(event) : NULL;
  if (slot) {
    used += !slot->sync_id;
    *slot = (struct slot){.sync_id = sync_id, .event = event};
  }
  pthread_mutex_unlock(&vgs_cupti_lock);
  return sync_id;
}

uint64_t vgs_cupti_event_last(uint32_t event) {
  pthread_mutex_lock(&vgs_cupti_lock);
  const struct slot *slot = find_locked(event);
  uint64_t sync_id = slot && slot->sync_id ? slot->sync_id : (uint32_t)NONE;
  pthread_mutex_unlock(&vgs_cupti_lock);
  return sync_id;
}

void vgs_cupti_put_event(const struct vgs_cupti_recorded *recorded, uint64_t time) {
  if (!vgs_cupti_wants_events())
    return;
  struct vgs_cupti_CudaEvent record = {.kind = VGS_KIND_CUDA_EVENT,
                                       .correlationId = recorded->correlation,
                                       .contextId = recorded->context,
                                       .streamId = recorded->stream,
                                       .eventId = recorded->event,
                                       .deviceId = recorded->device,
                                       .deviceTimestamp = time,
                                       .cudaEventSyncId = recorded->sync_id};
  vgs_cupti_put(&record, sizeof record);
}

void vgs_cupti_reset_events(void) {
  slots = NULL;
  slot_count = used = 0;
}
