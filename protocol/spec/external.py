"""Memory and semaphores of other interfaces, and compressed memory.

Vulkan, NvSci and Direct3D are not remoted, so the only descriptor of another interface that a program can have is one
of cuMemExportToShareableHandle: it is imported. No semaphore exists, so every handle of one is wrong.
"""

from protocol.gen.dsl import (
    GRAPH_EXEC,
    INIT,
    INVALID_HANDLE,
    INVALID_VALUE,
    SIZE,
    STREAM,
    U32,
    WAITING,
    array_in,
    fn,
    handle,
    out,
    ptr,
    struct,
    val,
)
from protocol.spec.graph_node import NEW

STREAM_ARG = handle("stream", STREAM)
MEMORY, SEMAPHORE = ptr("extMem", "CUexternalMemory"), ptr("extSem", "CUexternalSemaphore")
BUFFER, MIPMAP = "CUDA_EXTERNAL_MEMORY_BUFFER_DESC", "CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC"

fn(
    "cuImportExternalMemory",
    [ptr("extMem_out", "CUexternalMemory *"), ptr("memHandleDesc", "const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *")],
    doc="Memory of cuMemExportToShareableHandle by its descriptor; of other interfaces: UNKNOWN, as natively.",
)
fn(
    "cuExternalMemoryGetMappedBuffer",
    [ptr("devPtr", "CUdeviceptr *"), MEMORY, ptr("bufferDesc", f"const {BUFFER} *")],
    doc="Map it, until cuMemFree.",
)
fn(
    "cuExternalMemoryGetMappedMipmappedArray",
    [ptr("mipmap", "CUmipmappedArray *"), MEMORY, ptr("mipmapDesc", f"const {MIPMAP} *")],
    doc="Memory that was exported as a descriptor holds no array: NOT_SUPPORTED.",
)
fn("cuDestroyExternalMemory", [MEMORY], doc="End the import; what is mapped stays mapped.")

fn(
    "cuImportExternalSemaphore",
    [ptr("extSem_out", "CUexternalSemaphore *"), ptr("semHandleDesc", "const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *")],
    doc="A semaphore of another interface: UNKNOWN, as NVIDIA's driver answers to a descriptor of anything else.",
)
fn("cuDestroyExternalSemaphore", [SEMAPHORE], asked=INVALID_VALUE, doc="No semaphore exists: INVALID_VALUE.")
NO_SEMAPHORE = {"!nodeParams || nodeParams->numExtSems": INVALID_VALUE}
for verb in ("Signal", "Wait"):
    fn(
        f"cu{verb}ExternalSemaphoresAsync",
        [
            ptr("extSemArray", "const CUexternalSemaphore *"),
            ptr("paramsArray"),
            val("numExtSems", U32),
            STREAM_ARG,
        ],
        refuses={"!extSemArray || !paramsArray || !numExtSems": INVALID_VALUE},
        asked=INVALID_HANDLE,
        doc="No semaphore exists: INVALID_HANDLE.",
    )
    name = f"ExternalSemaphores{verb}Node"
    PARAMS = ptr("nodeParams", "const CUDA_EXT_SEM_NODE_PARAMS *")
    fn(
        f"cuGraphAdd{name}",
        [*NEW, PARAMS],
        WAITING,
        wire=NEW,
        refuses=NO_SEMAPHORE,
        given=["phGraphNode", "hGraph", "dependencies", "numDependencies", struct("CUDA_EXT_SEM_NODE_PARAMS")],
        doc="A node of no semaphores, which only orders others. No semaphore exists: INVALID_VALUE.",
    )
    NODE, TYPE = ptr("hNode", "CUgraphNode"), f"CU_GRAPH_NODE_TYPE_EXT_SEMAS_{verb.upper()}"
    fn(
        f"cuGraph{name}GetParams",
        [NODE, ptr("params_out", "CUDA_EXT_SEM_NODE_PARAMS *")],
        need=INIT,
        asked=f"vgs_semaphore_node_params(hNode, {TYPE}, params_out)",
        doc="The semaphores of such a node: none.",
    )
    for entry, args in (
        (f"cuGraph{name}SetParams", [NODE, PARAMS]),
        (f"cuGraphExec{name}SetParams", [handle("hGraphExec", GRAPH_EXEC), NODE, PARAMS]),
    ):
        fn(
            entry,
            args,
            need=INIT,
            refuses=NO_SEMAPHORE,
            asked=f"vgs_semaphore_node_check(hNode, {TYPE})",
            doc="Such a node keeps none. No semaphore exists: INVALID_VALUE.",
        )

fn(
    "cuMemBatchDecompressAsync",
    [
        array_in("paramsArray", "CUmemDecompressParams", "count", 4096),
        val("count", SIZE),
        val("flags", U32),
        out("errorIndex", SIZE, optional=True),
        STREAM_ARG,
    ],
    WAITING,
    checks=["vgs_decompress_check(errorIndex)"],
    client_failed="vgs_decompress_failed(errorIndex)",
    simulator=False,
    doc="Have the device's decompression engine expand buffers; without one: NOT_SUPPORTED.",
)
