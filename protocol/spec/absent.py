"""Why a function of the driver has no body: it answers NOT_SUPPORTED. Names, or their beginnings with a `*`.

The generator refuses an export that has neither a body nor a reason. A reason for a function that has got a body is
ignored.
"""

REASONS: tuple[tuple[str, str], ...] = (
    (
        "A guest has no display of this GPU: OpenGL, EGL and VDPAU of the program's own run elsewhere.",
        "cuGL* cuEGL* cuGraphics* cuVDPAU*",
    ),
    (
        "Memory and semaphores of other interfaces (Vulkan, NvSci, Direct3D) are not remoted, so there is nothing to "
        "import; CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED is 0.",
        "cuImportExternal* cuExternalMemory* cuDestroyExternal* cuSignalExternal* cuWaitExternal* "
        "cuGraphAddExternalSemaphores* cuGraphExternalSemaphores* cuGraphExecExternalSemaphores* "
        "cuDeviceGetNvSciSyncAttributes",
    ),
    ("A LUID is Windows' name of a device.", "cuDeviceGetLuid"),
    (
        "A checkpoint stops the process that has the driver, which is the host's worker, not the program.",
        "cuCheckpoint*",
    ),
    (
        "Multicast objects are the host's and can disturb its other users; "
        "CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED is 0.",
        "cuMulticast*",
    ),
    (
        "Device pointers of 32 bits, as of CUDA 3.1: device memory lies above 4 GiB.",
        "cuMemAlloc cuMemAllocPitch "
        "cuMemFree cuMemGetAddressRange cuMemHostGetDevicePointer cuMemcpy2D cuMemcpy2DAsync "
        "cuMemcpy2DUnaligned cuMemcpy3D cuMemcpy3DAsync cuMemcpyAtoD "
        "cuMemcpyDtoA cuMemcpyDtoD cuMemcpyDtoDAsync cuMemcpyDtoH cuMemcpyDtoHAsync "
        "cuMemcpyHtoD cuMemcpyHtoDAsync cuMemsetD16 cuMemsetD2D16 "
        "cuMemsetD2D32 cuMemsetD2D8 cuMemsetD32 cuMemsetD8 cuModuleGetGlobal cuTexRefGetAddress "
        "cuTexRefSetAddress cuTexRefSetAddress2D",
    ),
    (
        "A dma-buf is for a device of the host's; CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED is 0.",
        "cuMemGetHandleForAddressRange",
    ),
    (
        "For devices of compute capability 10.0 and later, which nobody here has met.",
        "cuMemBatchDecompressAsync cuTensorMapEncodeIm2colWide",
    ),
    (
        "One launch over several devices; "
        "CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH is 0, and CUDA 13 removed it from the runtime.",
        "cuLaunchCooperativeKernelMultiDevice",
    ),
    ("Sparse arrays; CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED is 0.", "cuMemMapArrayAsync *GetSparseProperties"),
    (
        "Arrays whose memory is mapped later; CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED is 0.",
        "*GetMemoryRequirements",
    ),
    ("Unified function pointers; CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS is 0.", "cuLibraryGetUnifiedFunction"),
    (
        "Newer than the driver that we answer as (580).",
        "cuDevSmResourceSplit",
    ),
    ("In no document: exported by the driver alone.", "cuMemGetAttribute*"),
    (
        "It orders copies for GPUDirect RDMA, which is not offered "
        "(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED is 0).",
        "cuPointerSetAttribute",
    ),
    ("Its profiler is gone: NVIDIA's manual says so since CUDA 11.", "cuProfilerInitialize"),
    ("Arrays of several planes (NV12) are not offered.", "cuArrayGetPlane"),
)
