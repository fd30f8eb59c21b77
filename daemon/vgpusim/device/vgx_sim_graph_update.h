/* Updates of executable graphs. */
#ifndef VGX_SIM_GRAPH_UPDATE_H
#define VGX_SIM_GRAPH_UPDATE_H

#include "vgx_sim_graph_exec.h"

/* In later launches `op` replaces the node's work. Takes ownership of `op`. No lock held. */
CUresult vgx_sim_exec_replace(CUgraphExec exec, CUgraphNode node, uint32_t type, CUcontext ctx, struct vgx_sim_op *op);

#endif
