"""Tensor maps: a pure function of its arguments that only the driver knows, so the client keeps recent answers."""

from protocol.gen.dsl import I32, INIT, U32, WAITING, bytes_in, bytes_out, fn, host_only, ptr, val

MAP = ptr("tensorMap", "CUtensorMap *")
TAIL = [val("interleave", I32), val("swizzle", I32), val("l2Promotion", I32), val("oobFill", I32)]
HEAD = [
    MAP,
    val("tensorDataType", I32),
    val("tensorRank", U32),
    ptr("globalAddress", "void *"),
    ptr("globalDim", "const uint64_t *"),
    ptr("globalStrides", "const uint64_t *"),
]
TILED = [*HEAD, ptr("boxDim", "const uint32_t *"), ptr("elementStrides", "const uint32_t *"), *TAIL]
IM2COL = [
    *HEAD,
    ptr("pixelBoxLowerCorner", "const int *"),
    ptr("pixelBoxUpperCorner", "const int *"),
    val("channelsPerPixel", U32),
    val("pixelsPerColumn", U32),
    ptr("elementStrides", "const uint32_t *"),
    *TAIL,
]
IM2COL_WIDE = [
    *HEAD,
    val("pixelBoxLowerCornerWidth", I32),
    val("pixelBoxUpperCornerWidth", I32),
    val("channelsPerPixel", U32),
    val("pixelsPerColumn", U32),
    ptr("elementStrides", "const uint32_t *"),
    val("interleave", I32),
    val("mode", I32),
    *TAIL[1:],
]
REPLACE = [MAP, ptr("globalAddress", "void *")]

fn("cuTensorMapEncodeTiled", TILED, need=INIT, doc="Describe a tensor for tiled bulk copies.")
fn("cuTensorMapEncodeIm2col", IM2COL, need=INIT, doc="Describe a tensor for im2col bulk copies.")
fn("cuTensorMapEncodeIm2colWide", IM2COL_WIDE, need=INIT, doc="Describe a tensor for im2col copies along its width.")
fn("cuTensorMapReplaceAddress", REPLACE, need=INIT, doc="The same tensor at another address.")
fn(
    "vgpuTensorMap",
    [
        val("form", U32),
        val("nbytes", U32),
        val("map_nbytes", U32),
        bytes_in("arguments", "nbytes", cap=512),
        bytes_out("map", "map_nbytes", cap=128),
    ],
    WAITING,
    need=INIT,
    doc="Encode: form 1 tiled, 2 im2col, 3 replace the address, 4 im2col wide; arguments: struct vgw_tensor_map.",
)
host_only("cuTensorMapEncodeTiled", TILED, doc="For vgpuTensorMap.")
host_only("cuTensorMapEncodeIm2col", IM2COL, doc="For vgpuTensorMap.")
host_only("cuTensorMapReplaceAddress", REPLACE, doc="For vgpuTensorMap.")
host_only("cuTensorMapEncodeIm2colWide", IM2COL_WIDE, simulator=False, doc="For vgpuTensorMap.")
