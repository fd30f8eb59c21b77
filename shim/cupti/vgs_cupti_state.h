/* What is enabled, and libcuda, which is observed while anything is enabled.
 *
 * Locks, in this order: `delivering` (a thread fills the program's buffers, and calls the program), `draining` (a
 * thread reads the worker's records), `lock` (everything else; held for a short time, and never while the program or
 * libcuda is called). */
#ifndef VGS_CUPTI_STATE_H
#define VGS_CUPTI_STATE_H

#include "vgs_cupti.h"
#include "vgs_profiling.h"
#include <pthread.h>

extern pthread_mutex_t vgs_cupti_delivering, vgs_cupti_draining, vgs_cupti_lock;

/* libcuda's table; NULL, and a line in the log: the process has another libcuda than vgpu's. */
const struct vgs_profiling *vgs_cupti_driver(void);

/* Activity kinds; atomic bits. */
bool vgs_cupti_wants(enum vgs_cupti_kind kind);
bool vgs_cupti_wants_any(void);
bool vgs_cupti_wants_device(void);      /* anything that the worker measures */
bool vgs_cupti_wants_events(void);      /* records of recorded events */
bool vgs_cupti_wants_event_times(void); /* with the device's time of each */
void vgs_cupti_set_event_times(bool on);
void vgs_cupti_set_kind(enum vgs_cupti_kind kind, bool on);
void vgs_cupti_clear_kinds(void);

/* How many (domain, callback) pairs are enabled. */
void vgs_cupti_count_callbacks(int change);
bool vgs_cupti_wants_callbacks(void);

/* In a forked child: nothing is enabled, and no lock is held. */
void vgs_cupti_reset_wants(void);

#endif
