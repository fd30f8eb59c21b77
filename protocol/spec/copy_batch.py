"""Several copies, prefetches or discards by one call."""

from protocol.gen.dsl import SIZE, ULL, fn, ptr, val

STREAM = ptr("hStream", "CUstream")
COPIES = [
    ptr("dsts", "CUdeviceptr *"),
    ptr("srcs", "CUdeviceptr *"),
    ptr("sizes", "size_t *"),
    val("count", SIZE),
    ptr("attrs", "CUmemcpyAttributes *"),
    ptr("attrsIdxs", "size_t *"),
    val("numAttrs", SIZE),
]
RANGES = [ptr("dptrs", "CUdeviceptr *"), ptr("sizes", "size_t *"), val("count", SIZE)]
LOCATIONS = [ptr("prefetchLocs", "CUmemLocation *"), ptr("prefetchLocIdxs", "size_t *"), val("numPrefetchLocs", SIZE)]
FLAGS = val("flags", ULL)

fn("cuMemcpyBatchAsync", [*COPIES, ptr("failIdx", "size_t *"), STREAM], doc="Copies, and which of them failed.")
fn("cuMemcpyBatchAsync_v2", [*COPIES, STREAM], doc="Copies.")
BOXES = [val("numOps", SIZE), ptr("opList", "CUDA_MEMCPY3D_BATCH_OP *")]
fn(
    "cuMemcpy3DBatchAsync",
    [*BOXES, ptr("failIdx", "size_t *"), FLAGS, STREAM],
    doc="Copies of boxes, and which of them failed.",
)
fn("cuMemcpy3DBatchAsync_v2", [*BOXES, FLAGS, STREAM], doc="Copies of boxes.")
fn("cuMemPrefetchBatchAsync", [*RANGES, *LOCATIONS, FLAGS, STREAM], doc="Prefetches of managed memory.")
fn("cuMemDiscardBatchAsync", [*RANGES, FLAGS, STREAM], doc="What managed memory holds matters no more: it stays.")
fn("cuMemDiscardAndPrefetchBatchAsync", [*RANGES, *LOCATIONS, FLAGS, STREAM], doc="Both of them.")
