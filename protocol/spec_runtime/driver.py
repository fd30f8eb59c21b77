"""Prototypes of driver functions that the runtime calls and protocol/spec does not describe yet.

A prototype in protocol/spec takes precedence.
"""

from protocol.gen.runtime import driver

driver("cuMemAllocManaged", "CUdeviceptr *dptr, size_t bytesize, unsigned int flags")
driver("cuStreamAttachMemAsync", "CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags")
driver("cuStreamCopyAttributes", "CUstream dst, CUstream src")
driver("cuStreamGetAttribute", "CUstream hStream, int attr, void *value")
driver("cuStreamSetAttribute", "CUstream hStream, int attr, const void *value")
driver("cuMemAdvise", "CUdeviceptr devPtr, size_t count, int advice, CUdevice device")
driver("cuMemAdvise_v2", "CUdeviceptr devPtr, size_t count, int advice, CUmemLocation location")
driver("cuMemPrefetchAsync", "CUdeviceptr devPtr, size_t count, CUdevice device, CUstream hStream")
driver(
    "cuMemPrefetchAsync_v2",
    "CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags, CUstream hStream",
)
driver("cuMemRangeGetAttribute", "void *data, size_t dataSize, int attribute, CUdeviceptr devPtr, size_t count")
driver(
    "cuMemRangeGetAttributes",
    "void **data, size_t *dataSizes, int *attributes, size_t numAttributes, CUdeviceptr devPtr, size_t count",
)
driver("cuMemPoolExportToShareableHandle", "void *handle, CUmemoryPool pool, int handleType, uint64_t flags")
driver("cuMemPoolImportFromShareableHandle", "CUmemoryPool *pool, void *handle, int handleType, uint64_t flags")
driver("cuMemPoolExportPointer", "void *shareData, CUdeviceptr ptr")
driver("cuMemPoolImportPointer", "CUdeviceptr *ptr, CUmemoryPool pool, void *shareData")
driver("cuLibraryGetManaged", "CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name")
driver("cuLibraryGetUnifiedFunction", "void **fptr, CUlibrary library, const char *symbol")

NODE = "CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies"
driver(
    "cuStreamUpdateCaptureDependencies",
    "CUstream hStream, CUgraphNode *dependencies, size_t numDependencies, unsigned int flags",
)
driver(
    "cuStreamUpdateCaptureDependencies_v2",
    "CUstream hStream, CUgraphNode *dependencies, const void *edgeData, size_t numDependencies, unsigned int flags",
)
driver("cuGraphDestroyNode", "CUgraphNode hNode")
driver("cuGraphDebugDotPrint", "CUgraph hGraph, const char *path, unsigned int flags")
driver("cuGraphGetRootNodes", "CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes")
EDGES, NEIGHBOURS = "CUgraph hGraph, CUgraphNode *from, CUgraphNode *to", "CUgraphNode hNode, CUgraphNode *others"
CONST_EDGES = "CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to"
driver("cuGraphGetEdges", f"{EDGES}, size_t *numEdges")
driver("cuGraphGetEdges_v2", f"{EDGES}, void *edgeData, size_t *numEdges")
driver("cuGraphRemoveDependencies", f"{CONST_EDGES}, size_t numDependencies")
driver("cuGraphRemoveDependencies_v2", f"{CONST_EDGES}, const void *edgeData, size_t numDependencies")
for name in ("cuGraphNodeGetDependencies", "cuGraphNodeGetDependentNodes"):
    driver(name, f"{NEIGHBOURS}, size_t *count")
    driver(f"{name}_v2", f"{NEIGHBOURS}, void *edgeData, size_t *count")
driver("cuGraphAddEventRecordNode", f"{NODE}, CUevent event")
driver("cuGraphAddEventWaitNode", f"{NODE}, CUevent event")
driver("cuGraphExecGetFlags", "CUgraphExec hGraphExec, uint64_t *flags")
