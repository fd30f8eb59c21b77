/* The sanitizer's reports of accesses, and what it looks at of each lane's. */
#ifndef VGX_SIM_WATCH_LANE_H
#define VGX_SIM_WATCH_LANE_H

#include "vgx_sim_watch_part.h"

/* Report a wrong access. If wrong accesses end the launch, the first one is its error. */
void vgx_sim_report_access(struct vgx_sim_watch *watch, const struct vgx_sim_thread *thread, const char *kind,
                           const struct vgx_sim_lane_access *a);

/* Initcheck: report reads of bytes that were never written; mark written bytes as defined. */
void vgx_sim_check_defined(struct vgx_sim_watch *watch, struct vgx_sim_cta_watch *cta,
                           const struct vgx_sim_thread *thread, const struct vgx_sim_lane_access *a);

/* Report that a thread uses what its last load of unset bytes has read, once for each such load. */
void vgx_sim_report_unset(struct vgx_sim_watch *watch, struct vgx_sim_cta_watch *cta,
                          const struct vgx_sim_thread *thread, uint32_t lane, const struct vgx_sim_site *use);

/* Racecheck: report lanes of one store that write different values to one place. */
void vgx_sim_check_lanes(struct vgx_sim_watch *watch, const struct vgx_sim_thread *thread,
                         const struct vgx_sim_lane_access *lanes, uint32_t count);

#endif
