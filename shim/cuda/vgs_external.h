/* Memory of other interfaces, and decompression. */
#ifndef VGS_EXTERNAL_H
#define VGS_EXTERNAL_H

#include "vgw_cuda.h"

/* End the mapping of external memory at an address, or free the managed memory there. */
CUresult vgs_external_free(CUdeviceptr address);

/* Nodes of graphs that signal, or wait for, no semaphores. `type`: what the node must be. */
CUresult vgs_semaphore_node_check(CUgraphNode handle, int type);
CUresult vgs_semaphore_node_params(CUgraphNode handle, int type, CUDA_EXT_SEM_NODE_PARAMS *params);

/* NOT_SUPPORTED where the current context's device has no decompression engine. */
CUresult vgs_decompress_check(size_t *error_index);
/* Set *error_index to "no particular operation": the worker's reply does not say which one failed. */
void vgs_decompress_failed(size_t *error_index);

#endif
