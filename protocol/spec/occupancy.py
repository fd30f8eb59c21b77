"""Occupancy. Answers depend only on the arguments and the kernel's attributes, so the client caches them."""

from protocol.gen.dsl import I32, SIZE, U32, WAITING, bytes_in, fn, host_only, out, ptr, val
from protocol.spec.launch import GRID

KERNEL_REF = [val("kind", U32), val("object", U32)]
FUNC = ptr("func", "CUfunction")

fn(
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    [out("numBlocks", I32), FUNC, val("blockSize", I32), val("dynamicSMemSize", SIZE)],
    doc="As below, without flags.",
)
fn(
    "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
    [out("numBlocks", I32), FUNC, val("blockSize", I32), val("dynamicSMemSize", SIZE), val("flags", U32)],
    WAITING,
    wire=[out("numBlocks", I32), *KERNEL_REF, val("blockSize", I32), val("dynamicSMemSize", SIZE), val("flags", U32)],
    doc="Blocks that fit a multiprocessor at once.",
)
fn(
    "cuOccupancyAvailableDynamicSMemPerBlock",
    [out("dynamicSmemSize", SIZE), FUNC, val("numBlocks", I32), val("blockSize", I32)],
    WAITING,
    wire=[out("dynamicSmemSize", SIZE), *KERNEL_REF, val("numBlocks", I32), val("blockSize", I32)],
    doc="Shared memory left per block.",
)
POTENTIAL = [
    out("minGridSize", I32),
    out("blockSize", I32),
    FUNC,
    ptr("blockSizeToDynamicSMemSize", "CUoccupancyB2DSize"),
    val("dynamicSMemSize", SIZE),
    val("blockSizeLimit", I32),
]
fn("cuOccupancyMaxPotentialBlockSize", POTENTIAL, doc="Block size of the highest occupancy, searched in the client.")
fn("cuOccupancyMaxPotentialBlockSizeWithFlags", [*POTENTIAL, val("flags", U32)], doc="As above, with flags.")

CLUSTERS = [FUNC, ptr("config", "const CUlaunchConfig *")]
fn("cuOccupancyMaxActiveClusters", [out("numClusters", I32), *CLUSTERS], doc="Clusters that fit the device at once.")
fn(
    "cuOccupancyMaxPotentialClusterSize",
    [out("clusterSize", I32), *CLUSTERS],
    doc="Largest cluster of a configuration.",
)
fn(
    "vgpuClusterOccupancy",
    [
        out("value", I32),
        val("potential", U32),
        *KERNEL_REF,
        *GRID,
        val("attrs_nbytes", U32),
        bytes_in("attrs", "attrs_nbytes", cap=72 * 64),
    ],
    WAITING,
    guest="custom",
    host="custom",
    doc="cuOccupancyMaxActiveClusters, or with potential = 1 cuOccupancyMaxPotentialClusterSize.",
)
host_only("cuOccupancyMaxActiveClusters", [out("numClusters", I32), *CLUSTERS], doc="For vgpuClusterOccupancy.")
host_only("cuOccupancyMaxPotentialClusterSize", [out("clusterSize", I32), *CLUSTERS], doc="For vgpuClusterOccupancy.")
