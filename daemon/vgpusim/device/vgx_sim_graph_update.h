/* Updates of executable graphs. */
#ifndef VGX_SIM_GRAPH_UPDATE_H
#define VGX_SIM_GRAPH_UPDATE_H

#include "vgx_sim_graph_exec.h"

/* Later launches do `op`, which is taken over, in place of the node's work. No lock held. */
CUresult vgx_sim_exec_replace(CUgraphExec exec, CUgraphNode node, uint32_t type, CUcontext ctx, struct vgx_sim_op *op);

#endif
