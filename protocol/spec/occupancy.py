"""Occupancy. Answers depend only on the arguments and the kernel's attributes, so the client caches them."""

from protocol.gen.dsl import I32, INVALID_VALUE, SIZE, U32, WAITING, bytes_in, fn, function, host_only, out, ptr, val
from protocol.spec.launch import GRID

LOADED = function("func", loaded=True)
BLOCK_SIZE = val("blockSize", I32)
FUNC = ptr("func", "CUfunction")

fn(
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    [out("numBlocks", I32), FUNC, val("blockSize", I32), val("dynamicSMemSize", SIZE)],
    doc="As below, without flags.",
)
fn(
    "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
    [out("numBlocks", I32), LOADED, BLOCK_SIZE, val("dynamicSMemSize", SIZE), val("flags", U32, mask=1)],
    WAITING,
    refuses={"blockSize <= 0": INVALID_VALUE},
    checks=["vgs_kernel_describe(func_object)"],
    doc="Blocks that fit a multiprocessor at once.",
)
fn(
    "cuOccupancyAvailableDynamicSMemPerBlock",
    [out("dynamicSmemSize", SIZE), LOADED, val("numBlocks", I32), BLOCK_SIZE],
    WAITING,
    refuses={"numBlocks <= 0 || blockSize <= 0": INVALID_VALUE},
    checks=["vgs_kernel_describe(func_object)"],
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
        LOADED,
        *GRID,
        val("attrs_nbytes", U32),
        bytes_in("attrs", "attrs_nbytes", cap=72 * 64),
    ],
    WAITING,
    doc="cuOccupancyMaxActiveClusters, or with potential = 1 cuOccupancyMaxPotentialClusterSize.",
)
host_only(
    "cuOccupancyMaxActiveClusters",
    [out("numClusters", I32), *CLUSTERS],
    doc="For vgpuClusterOccupancy.",
)
host_only(
    "cuOccupancyMaxPotentialClusterSize",
    [out("clusterSize", I32), *CLUSTERS],
    doc="For vgpuClusterOccupancy.",
)
