"""Copies and fills; symbols stand for device variables of the program."""

from protocol.gen.runtime import custom

PLANE = "void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height, int kind"
TO = "const void *symbol, const void *src, size_t count, size_t offset, int kind"
FROM = "void *dst, const void *symbol, size_t count, size_t offset, int kind"

custom(
    "cudaMemcpy",
    "void *dst, const void *src, size_t count, int kind",
    uses="cuMemcpyHtoD_v2 cuMemcpyDtoH_v2 cuMemcpyDtoD_v2 cuMemcpy",
)
custom(
    "cudaMemcpyAsync",
    "void *dst, const void *src, size_t count, int kind, CUstream stream",
    uses="cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoDAsync_v2 cuMemcpyAsync",
)
custom("cudaMemcpy2D", PLANE, uses="cuMemcpy2DUnaligned_v2")
custom("cudaMemcpy2DAsync", f"{PLANE}, CUstream stream", uses="cuMemcpy2DAsync_v2")
custom("cudaMemcpy3D", "const struct cudaMemcpy3DParms *params", uses="cuMemcpy3D_v2")
custom("cudaMemcpy3DAsync", "const struct cudaMemcpy3DParms *params, CUstream stream", uses="cuMemcpy3DAsync_v2")
custom("cudaMemcpyPeer", "void *dst, int dstDevice, const void *src, int srcDevice, size_t count", uses="cuMemcpyPeer")
custom(
    "cudaMemcpyPeerAsync",
    "void *dst, int dstDevice, const void *src, int srcDevice, size_t count, CUstream stream",
    uses="cuMemcpyPeerAsync",
)

custom("cudaMemset", "void *devPtr, int value, size_t count", uses="cuMemsetD8_v2")
custom("cudaMemsetAsync", "void *devPtr, int value, size_t count, CUstream stream", uses="cuMemsetD8Async")
custom("cudaMemset2D", "void *devPtr, size_t pitch, int value, size_t width, size_t height", uses="cuMemsetD2D8_v2")
custom(
    "cudaMemset2DAsync",
    "void *devPtr, size_t pitch, int value, size_t width, size_t height, CUstream stream",
    uses="cuMemsetD2D8Async",
)
custom("cudaMemset3D", "struct cudaPitchedPtr pitched, int value, struct cudaExtent extent", uses="cuMemsetD2D8_v2")
custom(
    "cudaMemset3DAsync",
    "struct cudaPitchedPtr pitched, int value, struct cudaExtent extent, CUstream stream",
    uses="cuMemsetD2D8Async",
)

custom("cudaMemcpyToSymbol", TO)
custom("cudaMemcpyToSymbolAsync", f"{TO}, CUstream stream")
custom("cudaMemcpyFromSymbol", FROM)
custom("cudaMemcpyFromSymbolAsync", f"{FROM}, CUstream stream")
custom("cudaGetSymbolAddress", "void **devPtr, const void *symbol", uses="cuLibraryGetGlobal cuLibraryGetManaged")
custom("cudaGetSymbolSize", "size_t *size, const void *symbol")
