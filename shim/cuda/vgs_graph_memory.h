/* Nodes that allocate memory, and nodes of operations on words: their parameters. */
#ifndef VGS_GRAPH_MEMORY_H
#define VGS_GRAPH_MEMORY_H

#include "vgs_objects.h"

enum { VGS_NODE_ACCESS_MAX = 64, VGS_NODE_WORDS_MAX = 256 }; /* caps of protocol/spec */

/* An allocation's parameters with the worker's numbers of devices. */
struct vgs_node_memory {
  CUDA_MEM_ALLOC_NODE_PARAMS params; /* its accessDescs are not used; see `descs` */
  CUmemAccessDesc descs[VGS_NODE_ACCESS_MAX];
};
CUresult vgs_node_memory_check(struct vgs_node_memory *memory, const CUDA_MEM_ALLOC_NODE_PARAMS *params);

/* The node was added: its address is device memory from now on. OUT_OF_MEMORY: the program already uses that address.
 */
CUresult vgs_node_memory_add(CUdeviceptr address, CUDA_MEM_ALLOC_NODE_PARAMS *params);

/* A node's parameters as they are returned to the program; the descriptors live as long as the node. */
CUresult vgs_node_memory_params(struct vgs_graph_node *node, const struct vgs_node_memory *memory,
                                CUDA_MEM_ALLOC_NODE_PARAMS *params);

/* The same for operations on words: whether they may be sent, and the wire id of their context. */
CUresult vgs_node_words_check(const CUDA_BATCH_MEM_OP_NODE_PARAMS *params, uint32_t *context_id);
CUresult vgs_node_words_params(struct vgs_graph_node *node, uint32_t context_id, const CUstreamBatchMemOpParams *words,
                               uint32_t count, CUDA_BATCH_MEM_OP_NODE_PARAMS *params);

#endif
