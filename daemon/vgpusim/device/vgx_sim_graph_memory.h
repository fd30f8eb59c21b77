/* Memory that graphs allocate. */
#ifndef VGX_SIM_GRAPH_MEMORY_H
#define VGX_SIM_GRAPH_MEMORY_H

#include "vgx_sim_graph_exec.h"

#define VGX_SIM_GRAPH_ACCESS_MAX 64u /* descriptors of an allocation */

/* Create the operation of a node that allocates memory; the operation owns the memory. The parameters have been
 * checked. */
CUresult vgx_sim_graph_memory_create(struct vgx_sim_device *device, const CUDA_MEM_ALLOC_NODE_PARAMS *params,
                                     struct vgx_sim_op **op);
/* Likewise for cuMemAllocAsync in a capturing stream. */
CUresult vgx_sim_graph_memory_reserve(struct vgx_sim_device *device, uint64_t nbytes, struct vgx_sim_op **op,
                                      CUdeviceptr *address);
/* The parameters, with the address, of the memory that an operation of either kind allocates or frees. */
const CUDA_MEM_ALLOC_NODE_PARAMS *vgx_sim_graph_memory_params(const struct vgx_sim_op *op);

/* Free memory that a graph's launch has allocated: *op is the operation to run in stream order; NULL for memory that is
 * not a graph's. INVALID_VALUE: no launch has allocated it. For a node (`captured`) it need not be allocated. */
CUresult vgx_sim_graph_memory_release(CUdeviceptr address, bool captured, struct vgx_sim_op **op);

/* Whether the address is of a graph's memory that no launch has allocated: pointer attributes do not know it then. */
bool vgx_sim_graph_memory_is_idle(CUdeviceptr address);

/* Account for a launch of `plan`, in the order of calls. INVALID_VALUE, without a change: the plan allocates memory
 * that is allocated already (unless `again`, which frees it first) or frees memory that is not. Runtime lock held. */
CUresult vgx_sim_graph_memory_launch_locked(const struct vgx_sim_plan *plan, bool again);

#endif
