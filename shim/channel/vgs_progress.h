/* What the client knows about the progress of streams and rings. Lock-free.
 *
 * Touches: for each stream or event, the ring that last pushed a record of it and that record's position, and the entry
 * up to which the stream is known to be done. An entry marks one moment of a stream: each touch makes a new one. 0: the
 * object was never touched.
 *
 * Progress: which streams may still have work, so that waiting for a context costs nothing when none has, and is a wait
 * for one stream when only that one has. It is known for processes with one context; with a second one, all streams
 * count as busy. */
#ifndef VGS_PROGRESS_H
#define VGS_PROGRESS_H

#include "vgw_records.h"
#include "vgw_ring.h"
#include <stdbool.h>
#include <stdint.h>

struct vgs_touch {
  unsigned ring;
  bool mixed;        /* two rings touched it at once: the next record waits for all rings */
  uint64_t position; /* records pushed to the ring, this one included: at least 1 */
};

uint64_t vgs_touch_entry(uint16_t kind, uint32_t id);
struct vgs_touch vgs_touch_of(uint64_t entry);

/* Record a touch. `before` is the entry that it comes after, or VGS_TOUCH_ALONE while there is one ring; if another
 * ring's touch has come between, the new entry is mixed. */
#define VGS_TOUCH_ALONE UINT64_MAX
CUresult vgs_touch_set(uint16_t kind, uint32_t id, uint64_t before, struct vgs_touch touch);

/* The object was touched outside the rings: the next record waits for all rings. */
void vgs_touch_mix(uint16_t kind, uint32_t id);

/* All work that was submitted to a stream before `entry` is done. */
void vgs_touch_set_done(uint32_t stream, uint64_t entry);

/* Whether all work that was submitted to the stream before `entry` is known to be done. */
bool vgs_touch_is_done(uint32_t stream, uint64_t entry);

/* Forget everything: the session is over. */
void vgs_touch_clear(void);

/* Free the table. No thread may be using it. */
void vgs_touch_fini(void);

/* A new session. */
void vgs_progress_start(void);

/* A call that leaves work in `stream` was pushed to this ring, as its record number `position`. Called by the
 * ring's thread, after the stream was touched. */
void vgs_progress_add(unsigned ring, uint32_t context, uint32_t stream, uint64_t position);

/* The position of each ring at one moment. */
struct vgs_progress_marks {
  unsigned count;
  uint64_t noted[VGW_RINGS_MAX], position[VGW_RINGS_MAX]; /* of the first `count` */
};

enum vgs_progress { VGS_PROGRESS_IDLE, VGS_PROGRESS_ONE, VGS_PROGRESS_MANY };

/* Which streams may have work: none, `stream` alone, or any. */
enum vgs_progress vgs_progress_query(uint32_t context, struct vgs_progress_marks *marks, uint32_t *stream);

/* All records that were pushed before `marks` are done. */
void vgs_progress_set_done(const struct vgs_progress_marks *marks);

/* Whether the ring's records up to this position are known to be done. */
bool vgs_progress_is_done(unsigned ring, uint64_t position);

/* Work was submitted in a way that is not recorded: nothing is known from now on. */
void vgs_progress_set_unknown(void);

/* Whether there has been more than one context, or work that was not recorded. */
bool vgs_progress_is_unknown(void);

#endif
