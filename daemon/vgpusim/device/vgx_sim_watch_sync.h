/* The sanitizer's checks of barriers, and the order that they make for racecheck. */
#ifndef VGX_SIM_WATCH_SYNC_H
#define VGX_SIM_WATCH_SYNC_H

#include "vgx_sim_watch.h"

void vgx_sim_watch_sync(struct vgx_sim_watch *watch, const struct vgx_sim_thread *thread,
                        const struct vgx_sim_sync_point *point);

#endif
