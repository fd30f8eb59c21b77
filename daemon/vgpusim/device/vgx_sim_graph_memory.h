/* Memory that graphs allocate. */
#ifndef VGX_SIM_GRAPH_MEMORY_H
#define VGX_SIM_GRAPH_MEMORY_H

#include "vgx_sim_graph_exec.h"

#define VGX_SIM_GRAPH_ACCESS_MAX 64u /* descriptors of an allocation */

/* Memory that a node is to allocate, whose parameters have been checked: the node's operation, which holds it. */
CUresult vgx_sim_graph_memory_create(struct vgx_sim_device *device, const CUDA_MEM_ALLOC_NODE_PARAMS *params,
                                     struct vgx_sim_op **op);
/* Likewise for cuMemAllocAsync in a capturing stream. */
CUresult vgx_sim_graph_memory_reserve(struct vgx_sim_device *device, uint64_t nbytes, struct vgx_sim_op **op,
                                      CUdeviceptr *address);
/* Of the memory that an operation of either kind allocates or frees, with its address. */
const CUDA_MEM_ALLOC_NODE_PARAMS *vgx_sim_graph_memory_params(const struct vgx_sim_op *op);

/* A call that frees what a launch of a graph has left: *op is what to do in stream order, and INVALID_VALUE comes back
 * where no launch has. For a node (`captured`) the memory only has to be a graph's. *op is NULL for other memory. */
CUresult vgx_sim_graph_memory_release(CUdeviceptr address, bool captured, struct vgx_sim_op **op);

/* A launch of `plan`, in the order of calls: INVALID_VALUE, and nothing is changed, when it allocates what is allocated
 * (unless `again`: then that is freed first) or frees what is not. Runtime lock held. */
CUresult vgx_sim_graph_memory_launch_locked(const struct vgx_sim_plan *plan, bool again);

#endif
