"""Stream capture and graphs."""

from protocol.gen.runtime import MAJORS, custom, forward

NODE = "CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t numDependencies"
GIVEN = "node, graph, dependencies, numDependencies"
OLD, NEW = (11, 12), (12, 13)

forward("cudaStreamBeginCapture", "CUstream stream, int mode", "cuStreamBeginCapture_v2(stream, mode)")
forward("cudaStreamEndCapture", "CUstream stream, CUgraph *graph", "cuStreamEndCapture(stream, graph)")
forward("cudaStreamIsCapturing", "CUstream stream, int *status", "cuStreamIsCapturing(stream, status)")
STATUS = "CUstream stream, int *status, uint64_t *id"
WITH_GRAPH = f"{STATUS}, CUgraph *graph, const CUgraphNode **dependencies"
forward("cudaStreamGetCaptureInfo", STATUS, "cuStreamGetCaptureInfo(stream, status, id)", majors=OLD)
forward(
    "cudaStreamGetCaptureInfo_v2",
    f"{WITH_GRAPH}, size_t *numDependencies",
    "cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, numDependencies)",
    majors=OLD,
)
for name, majors in (("cudaStreamGetCaptureInfo_v3", (12,)), ("cudaStreamGetCaptureInfo", (13,))):
    forward(
        name,
        f"{WITH_GRAPH}, const void **edges, size_t *numDependencies",
        "cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, edges, numDependencies)",
        majors=majors,
    )
forward(
    "cudaStreamUpdateCaptureDependencies",
    "CUstream stream, CUgraphNode *dependencies, size_t numDependencies, unsigned int flags",
    "cuStreamUpdateCaptureDependencies(stream, dependencies, numDependencies, flags)",
    majors=OLD,
)
for name, majors in (("cudaStreamUpdateCaptureDependencies_v2", (12,)), ("cudaStreamUpdateCaptureDependencies", (13,))):
    forward(
        name,
        "CUstream stream, CUgraphNode *dependencies, const void *edges, size_t numDependencies, unsigned int flags",
        "cuStreamUpdateCaptureDependencies_v2(stream, dependencies, edges, numDependencies, flags)",
        majors=majors,
    )

forward("cudaGraphCreate", "CUgraph *graph, unsigned int flags", "cuGraphCreate(graph, flags)")
forward("cudaGraphClone", "CUgraph *clone, CUgraph original", "cuGraphClone(clone, original)")
forward("cudaGraphDestroy", "CUgraph graph", "cuGraphDestroy(graph)")
forward("cudaGraphDestroyNode", "CUgraphNode node", "cuGraphDestroyNode(node)")
forward(
    "cudaGraphDebugDotPrint",
    "CUgraph graph, const char *path, unsigned int flags",
    "cuGraphDebugDotPrint(graph, path, flags)",
)
forward("cudaGraphGetNodes", "CUgraph graph, CUgraphNode *nodes, size_t *count", "cuGraphGetNodes(graph, nodes, count)")
forward(
    "cudaGraphGetRootNodes",
    "CUgraph graph, CUgraphNode *nodes, size_t *count",
    "cuGraphGetRootNodes(graph, nodes, count)",
)
forward("cudaGraphNodeGetType", "CUgraphNode node, int *type", "cuGraphNodeGetType(node, type)")
forward(
    "cudaGraphNodeFindInClone",
    "CUgraphNode *node, CUgraphNode original, CUgraph clone",
    "cuGraphNodeFindInClone(node, original, clone)",
)

# From 12.3 on edges carry data: the functions with it are `_v2` in 12 and have the plain name in 13.
EDGES = "CUgraph graph, CUgraphNode *from, CUgraphNode *to"
CONST_EDGES = "CUgraph graph, const CUgraphNode *from, const CUgraphNode *to"
NEIGHBOURS = "CUgraphNode node, CUgraphNode *others"
forward("cudaGraphGetEdges", f"{EDGES}, size_t *count", "cuGraphGetEdges(graph, from, to, count)", majors=OLD)
for name in ("AddDependencies", "RemoveDependencies"):
    forward(f"cudaGraph{name}", f"{CONST_EDGES}, size_t count", f"cuGraph{name}(graph, from, to, count)", majors=OLD)
for name in ("GetDependencies", "GetDependentNodes"):
    forward(
        f"cudaGraphNode{name}", f"{NEIGHBOURS}, size_t *count", f"cuGraphNode{name}(node, others, count)", majors=OLD
    )
for suffix, majors in (("_v2", (12,)), ("", (13,))):
    forward(
        f"cudaGraphGetEdges{suffix}",
        f"{EDGES}, void *data, size_t *count",
        "cuGraphGetEdges_v2(graph, from, to, data, count)",
        majors=majors,
    )
    for name in ("AddDependencies", "RemoveDependencies"):
        forward(
            f"cudaGraph{name}{suffix}",
            f"{CONST_EDGES}, const void *data, size_t count",
            f"cuGraph{name}_v2(graph, from, to, data, count)",
            majors=majors,
        )
    for name in ("GetDependencies", "GetDependentNodes"):
        forward(
            f"cudaGraphNode{name}{suffix}",
            f"{NEIGHBOURS}, void *data, size_t *count",
            f"cuGraphNode{name}_v2(node, others, data, count)",
            majors=majors,
        )

forward("cudaGraphAddEmptyNode", NODE, f"cuGraphAddEmptyNode({GIVEN})")
forward("cudaGraphAddChildGraphNode", f"{NODE}, CUgraph child", f"cuGraphAddChildGraphNode({GIVEN}, child)")
forward(
    "cudaGraphChildGraphNodeGetGraph", "CUgraphNode node, CUgraph *graph", "cuGraphChildGraphNodeGetGraph(node, graph)"
)
forward("cudaGraphAddEventRecordNode", f"{NODE}, CUevent event", f"cuGraphAddEventRecordNode({GIVEN}, event)")
forward("cudaGraphAddEventWaitNode", f"{NODE}, CUevent event", f"cuGraphAddEventWaitNode({GIVEN}, event)")
# cudaHostNodeParams is CUDA_HOST_NODE_PARAMS: a function and its argument.
HOST_PARAMS = "const struct cudaHostNodeParams *params"
HOST_GIVEN = "(const CUDA_HOST_NODE_PARAMS *)params"
forward("cudaGraphAddHostNode", f"{NODE}, {HOST_PARAMS}", f"cuGraphAddHostNode({GIVEN}, {HOST_GIVEN})")
forward(
    "cudaGraphHostNodeGetParams",
    "CUgraphNode node, struct cudaHostNodeParams *params",
    "cuGraphHostNodeGetParams(node, (CUDA_HOST_NODE_PARAMS *)params)",
)
forward(
    "cudaGraphHostNodeSetParams",
    f"CUgraphNode node, {HOST_PARAMS}",
    f"cuGraphHostNodeSetParams(node, {HOST_GIVEN})",
)
forward(
    "cudaGraphExecHostNodeSetParams",
    f"CUgraphExec exec, CUgraphNode node, {HOST_PARAMS}",
    f"cuGraphExecHostNodeSetParams(exec, node, {HOST_GIVEN})",
)
forward(
    "cudaGraphExecChildGraphNodeSetParams",
    "CUgraphExec exec, CUgraphNode node, CUgraph child",
    "cuGraphExecChildGraphNodeSetParams(exec, node, child)",
)
custom("cudaGraphAddKernelNode", f"{NODE}, const struct cudaKernelNodeParams *params", uses="cuGraphAddKernelNode_v2")
custom(
    "cudaGraphAddMemsetNode",
    f"{NODE}, const struct cudaMemsetParams *params",
    uses="cuGraphAddMemsetNode cuCtxGetCurrent",
)
custom("cudaGraphAddMemcpyNode", f"{NODE}, const struct cudaMemcpy3DParms *params", uses="cuGraphAddMemcpyNode")
ONE_D = "void *dst, const void *src, size_t count, int kind"
custom("cudaGraphAddMemcpyNode1D", f"{NODE}, {ONE_D}", uses="cuGraphAddMemcpyNode")
custom(
    "cudaGraphKernelNodeSetParams",
    "CUgraphNode node, const struct cudaKernelNodeParams *params",
    uses="cuGraphKernelNodeSetParams_v2",
)
custom(
    "cudaGraphExecKernelNodeSetParams",
    "CUgraphExec exec, CUgraphNode node, const struct cudaKernelNodeParams *params",
    uses="cuGraphExecKernelNodeSetParams_v2",
)
custom(
    "cudaGraphExecMemcpyNodeSetParams1D",
    f"CUgraphExec exec, CUgraphNode node, {ONE_D}",
    uses="cuGraphExecMemcpyNodeSetParams",
)

custom(
    "cudaGraphInstantiate",
    "CUgraphExec *exec, CUgraph graph, CUgraphNode *errorNode, char *log, size_t nbytes",
    uses="cuGraphInstantiateWithFlags",
    majors=(11,),
)
forward(
    "cudaGraphInstantiate",
    "CUgraphExec *exec, CUgraph graph, uint64_t flags",
    "cuGraphInstantiateWithFlags(exec, graph, flags)",
    majors=NEW,
)
forward(
    "cudaGraphInstantiateWithFlags",
    "CUgraphExec *exec, CUgraph graph, uint64_t flags",
    "cuGraphInstantiateWithFlags(exec, graph, flags)",
    majors=MAJORS,
)
forward("cudaGraphExecDestroy", "CUgraphExec exec", "cuGraphExecDestroy(exec)")
forward("cudaGraphExecGetFlags", "CUgraphExec exec, uint64_t *flags", "cuGraphExecGetFlags(exec, flags)", majors=NEW)
custom(
    "cudaGraphExecUpdate",
    "CUgraphExec exec, CUgraph graph, CUgraphNode *errorNode, int *update",
    uses="cuGraphExecUpdate_v2",
    majors=(11,),
)
forward(
    "cudaGraphExecUpdate",
    "CUgraphExec exec, CUgraph graph, void *update",
    "cuGraphExecUpdate_v2(exec, graph, update)",
    majors=NEW,
)
forward("cudaGraphLaunch", "CUgraphExec exec, CUstream stream", "cuGraphLaunch(exec, stream)")
forward("cudaGraphUpload", "CUgraphExec exec, CUstream stream", "cuGraphUpload(exec, stream)")
