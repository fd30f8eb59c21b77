/* Pieces of shared memory that the device reaches. A call acquires one for the device's flags and for staging copies of
 * pageable memory, and releases it for the next call. */
#ifndef VGS_AREA_H
#define VGS_AREA_H

#include <stdbool.h>
#include <stdint.h>

enum vgs_area_kind { VGS_AREA_SMALL, VGS_AREA_STAGING };

enum {
  VGS_SLOTS = 16,
  VGS_SLOT_NBYTES = 512 << 10, /* small enough that the device's data are still in the cache when they are copied on */
  VGS_LANDING_OFFSET = 4096,   /* flags lie before this offset, each on its own cache line */
  VGS_LANDING_NBYTES = 60 << 10
};

struct vgs_area {
  uint8_t *memory; /* NULL: not made yet */
  uint32_t context_id;
  uint16_t epoch;
  bool busy;                   /* atomic; the thread that sets it owns the other fields */
  bool doomed;                 /* atomic; its context ends: the thread that owns it must free it */
  uint32_t values[VGS_SLOTS];  /* the value of each flag once the device has written it for the last time */
  uint32_t streams[VGS_SLOTS]; /* wire ids of the streams that write the flags then */
  uint8_t by[VGS_SLOTS];       /* the slot whose flag says that this slot's last use is over */
  uint32_t next;               /* the slot of the next copy that has only one piece */
};

/* An area of the current context, or NULL: there is no shared memory on this channel, or none left. */
struct vgs_area *vgs_area_acquire(enum vgs_area_kind kind);
void vgs_area_release(struct vgs_area *area);

/* Acquire this area once more. False: another thread has it, or it is not of the current context and session. */
bool vgs_area_acquire_again(struct vgs_area *area);

/* Destroy the areas of a context that is about to end, or all areas once the session is lost. */
void vgs_area_destroy_context(uint32_t context_id);
void vgs_area_destroy_all(void);

static inline uint32_t *vgs_area_flag(struct vgs_area *area, unsigned slot) {
  return (uint32_t *)(area->memory + slot * 64);
}

/* Whether the device has written the flag's `value`, or a later one. */
static inline bool vgs_area_is_set(struct vgs_area *area, unsigned slot, uint32_t value) {
  return (int32_t)(__atomic_load_n(vgs_area_flag(area, slot), __ATOMIC_ACQUIRE) - value) >= 0;
}

static inline uint8_t *vgs_area_landing(struct vgs_area *area, unsigned slot) {
  return area->memory + VGS_LANDING_OFFSET + (uint64_t)slot * VGS_SLOT_NBYTES;
}

#endif
