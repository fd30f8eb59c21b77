"""Arrays with numbers of 32 bits, as of CUDA 3.1. (Functions of that time that take device pointers have no body.)"""

from protocol.gen.dsl import STREAM, U32, fn, handle, ptr, val

FLAT, DEEP = "CUDA_ARRAY_DESCRIPTOR_v1", "CUDA_ARRAY3D_DESCRIPTOR_v1"
NBYTES, STREAM_ARG = val("ByteCount", U32), handle("hStream", STREAM)
TO = [ptr("dstArray", "CUarray"), val("dstOffset", U32)]
FROM = [ptr("srcArray", "CUarray"), val("srcOffset", U32)]

for prefix, c in (("cuArray", FLAT), ("cuArray3D", DEEP)):
    fn(
        f"{prefix}Create",
        [ptr("pHandle", "CUarray *"), ptr("pAllocateArray", f"const {c} *")],
        doc=f"{prefix}Create_v2, its numbers of 32 bits.",
    )
    fn(
        f"{prefix}GetDescriptor",
        [ptr("pArrayDescriptor", f"{c} *"), ptr("hArray", "CUarray")],
        doc="What an array was made as.",
    )
for name, args, calls in (
    ("cuMemcpyAtoA", [*TO, *FROM, NBYTES], "cuMemcpyAtoA_v2(dstArray, dstOffset, srcArray, srcOffset, ByteCount)"),
    (
        "cuMemcpyHtoA",
        [*TO, ptr("srcHost", "const void *"), NBYTES],
        "cuMemcpyHtoA_v2(dstArray, dstOffset, srcHost, ByteCount)",
    ),
    (
        "cuMemcpyAtoH",
        [ptr("dstHost", "void *"), *FROM, NBYTES],
        "cuMemcpyAtoH_v2(dstHost, srcArray, srcOffset, ByteCount)",
    ),
    (
        "cuMemcpyHtoAAsync",
        [*TO, ptr("srcHost", "const void *"), NBYTES, STREAM_ARG],
        "cuMemcpyHtoAAsync_v2(dstArray, dstOffset, srcHost, ByteCount, hStream)",
    ),
    (
        "cuMemcpyAtoHAsync",
        [ptr("dstHost", "void *"), *FROM, NBYTES, STREAM_ARG],
        "cuMemcpyAtoHAsync_v2(dstHost, srcArray, srcOffset, ByteCount, hStream)",
    ),
):
    fn(name, args, asked=f"vgs_{calls}", doc=f"{name}_v2, its numbers of 32 bits.")
