"""Memory with addresses of 32 bits, as of CUDA 3.1: such calls belong to contexts of that version, and there is none.

An H200's driver (580.159.04) answers every one of them INVALID_CONTEXT in a context of cuDevicePrimaryCtxRetain or
cuCtxCreate_v2, whatever the arguments, and makes no context of the old kind (cuCtxCreate: OUT_OF_MEMORY).
tests/gpu/answers.c asks it.
"""

from protocol.gen.dsl import MODULE, STREAM, TEXREF, U8, U16, U32, fn, ptr, val

ADDRESS, NBYTES = ptr("dptr", "unsigned int *"), val("ByteCount", U32)
TO, FROM = val("dstDevice", U32), val("srcDevice", U32)
HOST_TO, HOST_FROM = ptr("dstHost"), ptr("srcHost", "const void *")
ARRAY_TO = [ptr("dstArray", "CUarray"), val("dstOffset", U32)]
ARRAY_FROM = [ptr("srcArray", "CUarray"), val("srcOffset", U32)]
STREAM_ARG, REFERENCE = ptr("hStream", STREAM.c), ptr("hTexRef", TEXREF.c)
FLAT, DEEP = ptr("pCopy"), ptr("pCopy")  # structs of numbers of 32 bits

FUNCTIONS = {
    "cuMemGetInfo": [ptr("free", "unsigned int *"), ptr("total", "unsigned int *")],
    "cuMemAlloc": [ADDRESS, val("bytesize", U32)],
    "cuMemAllocPitch": [
        ADDRESS,
        ptr("pPitch", "unsigned int *"),
        val("WidthInBytes", U32),
        val("Height", U32),
        val("ElementSizeBytes", U32),
    ],
    "cuMemFree": [val("dptr", U32)],
    "cuMemGetAddressRange": [ptr("pbase", "unsigned int *"), ptr("psize", "unsigned int *"), val("dptr", U32)],
    "cuMemHostGetDevicePointer": [ptr("pdptr", "unsigned int *"), ptr("p"), val("Flags", U32)],
    "cuModuleGetGlobal": [ADDRESS, ptr("bytes", "unsigned int *"), ptr("hmod", MODULE.c), ptr("name", "const char *")],
    "cuMemcpyHtoD": [TO, HOST_FROM, NBYTES],
    "cuMemcpyDtoH": [HOST_TO, FROM, NBYTES],
    "cuMemcpyDtoD": [TO, FROM, NBYTES],
    "cuMemcpyDtoA": [*ARRAY_TO, FROM, NBYTES],
    "cuMemcpyAtoD": [TO, *ARRAY_FROM, NBYTES],
    "cuMemcpyHtoDAsync": [TO, HOST_FROM, NBYTES, STREAM_ARG],
    "cuMemcpyDtoHAsync": [HOST_TO, FROM, NBYTES, STREAM_ARG],
    "cuMemcpyDtoDAsync": [TO, FROM, NBYTES, STREAM_ARG],
    "cuMemcpy2D": [FLAT],
    "cuMemcpy2DUnaligned": [FLAT],
    "cuMemcpy2DAsync": [FLAT, STREAM_ARG],
    "cuMemcpy3D": [DEEP],
    "cuMemcpy3DAsync": [DEEP, STREAM_ARG],
    "cuTexRefSetAddress": [ptr("ByteOffset", "unsigned int *"), REFERENCE, val("dptr", U32), val("bytes", U32)],
    "cuTexRefSetAddress2D": [REFERENCE, ptr("desc"), val("dptr", U32), val("Pitch", U32)],
    "cuTexRefGetAddress": [ptr("pdptr", "unsigned int *"), REFERENCE],
}
for bits, value in ((8, val("uc", U8)), (16, val("us", U16)), (32, val("ui", U32))):
    FUNCTIONS[f"cuMemsetD{bits}"] = [TO, value, val("N", U32)]
    FUNCTIONS[f"cuMemsetD2D{bits}"] = [TO, val("dstPitch", U32), value, val("Width", U32), val("Height", U32)]
for name, args in FUNCTIONS.items():
    fn(name, args, asked="CUDA_ERROR_INVALID_CONTEXT", doc="Of CUDA 3.1: INVALID_CONTEXT, as NVIDIA's driver answers.")
