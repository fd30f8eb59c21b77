/* The state of an event: shared by the program and by the nodes of graphs that record it or wait for it. */
#ifndef VGX_SIM_EVENT_H
#define VGX_SIM_EVENT_H

#include "vgx_sim_internal.h"

/* Drop a reference; the last one frees the event. */
void vgx_sim_event_unref_locked(CUevent event);
/* `marker` is the event's last record from now on; takes over the caller's reference. */
void vgx_sim_event_put_locked(CUevent event, struct vgx_sim_marker *marker);

/* The work of a node that records `event` (else: waits for it). Launches of graphs do it (vgx_sim_graph_event.h). */
CUresult vgx_sim_event_op(CUevent event, bool record, struct vgx_sim_op **op);
CUevent vgx_sim_event_of(const struct vgx_sim_op *op);

#endif
