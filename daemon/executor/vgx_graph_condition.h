/* Conditional nodes' values, and parameters of nodes as they are sent to the client. */
#ifndef VGX_GRAPH_CONDITION_H
#define VGX_GRAPH_CONDITION_H

#include "vgx_session.h"

/* Record a value that was made for a graph. OUT_OF_MEMORY: the session has too many. */
CUresult vgx_condition_add(struct vgx_session *s, uint32_t graph, uint64_t value);

/* Whether a value was made for this graph by this session. */
bool vgx_condition_is_of(struct vgx_session *s, uint32_t graph, uint64_t value);

/* Copy at most `capacity` access descriptors, or operations and their context's id; return how many the node has. */
size_t vgx_node_access(const CUDA_MEM_ALLOC_NODE_PARAMS *params, CUmemAccessDesc *descs, uint64_t capacity);
uint32_t vgx_node_words(struct vgx_session *s, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params,
                        CUstreamBatchMemOpParams *words, uint64_t capacity, uint32_t *context);

/* Replace the arrays of a copy by their ids. INVALID_VALUE: the client does not have the array. */
CUresult vgx_copy_name_arrays(struct vgx_session *s, CUDA_MEMCPY3D *copy);

#endif
