/* How far streams and rings are. Lock-free.
 *
 * Touches: which ring touched a stream or event last, and how far that ring was then; and how far a stream is known to
 * be done. An entry stands for one moment of its stream: every touch makes another one. 0: never touched.
 *
 * Progress: what may still be running, so that a wait for a context is none, or is one for the only stream that has
 * work. It is known for processes with one context; with a second one everything may be running always. */
#ifndef VGS_PROGRESS_H
#define VGS_PROGRESS_H

#include "vgw_records.h"
#include "vgw_ring.h"
#include <stdbool.h>
#include <stdint.h>

struct vgs_touch {
  unsigned ring;
  bool mixed;        /* two rings touched it at once: what is pushed next comes after all rings */
  uint64_t position; /* records pushed to the ring, this one included: at least 1 */
};

uint64_t vgs_touch_entry(uint16_t kind, uint32_t id);
struct vgs_touch vgs_touch_of(uint64_t entry);

/* Record a touch. `before` is the entry that it comes after, or VGS_TOUCH_ALONE while there is one ring; if another
 * ring's touch has come between, the new entry is mixed. */
#define VGS_TOUCH_ALONE UINT64_MAX
CUresult vgs_touch_set(uint16_t kind, uint32_t id, uint64_t before, struct vgs_touch touch);

/* Something touched it outside the rings: what is pushed next comes after all rings. */
void vgs_touch_mix(uint16_t kind, uint32_t id);

/* All that a stream had been given by the time of `entry` is done. */
void vgs_touch_set_done(uint32_t stream, uint64_t entry);

/* Whether what the stream had been given by the time of `entry` is known to be done. */
bool vgs_touch_is_done(uint32_t stream, uint64_t entry);

/* Forget everything: the session is over. */
void vgs_touch_clear(void);

/* Free the table. No thread may be using it. */
void vgs_touch_fini(void);

/* A new session. */
void vgs_progress_start(void);

/* A call that leaves work in `stream` was pushed to this ring, as its record number `position`. By the ring's thread,
 * after the stream was touched. */
void vgs_progress_add(unsigned ring, uint32_t context, uint32_t stream, uint64_t position);

/* How much each ring had been given at a moment. */
struct vgs_progress_marks {
  unsigned count;
  uint64_t noted[VGW_RINGS_MAX], position[VGW_RINGS_MAX]; /* of the first `count` */
};

enum vgs_progress { VGS_PROGRESS_IDLE, VGS_PROGRESS_ONE, VGS_PROGRESS_MANY };

/* Which streams may have work: none, `stream` alone, or any. */
enum vgs_progress vgs_progress_query(uint32_t context, struct vgs_progress_marks *marks, uint32_t *stream);

/* All that was given by the time of `marks` is done. */
void vgs_progress_set_done(const struct vgs_progress_marks *marks);

/* Whether the ring's records up to this position are known to be done. */
bool vgs_progress_is_done(unsigned ring, uint64_t position);

/* Work came some other way: nothing is known from now on. */
void vgs_progress_set_unknown(void);

/* Whether there has been more than one context, or work that was not recorded. */
bool vgs_progress_is_unknown(void);

#endif
