"""Registration of a program's device code, launches, kernels' attributes, libraries loaded by hand."""

from protocol.gen.runtime import Ready, custom, forward

DRIVER, NOTHING = Ready.DRIVER, Ready.NOTHING

# Functions that the compiler's stubs call. `handle` is what __cudaRegisterFatBinary returned.
custom(
    "__cudaRegisterFatBinary",
    "void *wrapper",
    ready=NOTHING,
    returns="void **",
    uses="cuLibraryLoadData cuModuleGetLoadingMode",
)
custom("__cudaRegisterFatBinaryEnd", "void **handle", ready=NOTHING, returns="void")
custom("__cudaUnregisterFatBinary", "void **handle", ready=NOTHING, returns="void", uses="cuLibraryUnload")
custom(
    "__cudaRegisterFunction",
    "void **handle, const char *hostFunction, char *deviceFunction, const char *deviceName, int threadLimit, "
    "void *tid, void *bid, void *blockDim, void *gridDim, int *warpSize",
    ready=NOTHING,
    returns="void",
)
VARIABLE = "const char *deviceName, int external, size_t size, int constant, int global"
custom(
    "__cudaRegisterVar", f"void **handle, char *hostVar, char *deviceAddress, {VARIABLE}", ready=NOTHING, returns="void"
)
custom(
    "__cudaRegisterManagedVar",
    f"void **handle, void **hostVarPtr, char *deviceAddress, {VARIABLE}",
    ready=NOTHING,
    returns="void",
)
custom("__cudaInitModule", "void **handle", ready=NOTHING, returns="char")
GRID = "struct dim3 gridDim, struct dim3 blockDim, size_t sharedMem"
custom("__cudaPushCallConfiguration", f"{GRID}, CUstream stream", ready=NOTHING, returns="unsigned int")
custom(
    "__cudaPopCallConfiguration",
    "struct dim3 *gridDim, struct dim3 *blockDim, size_t *sharedMem, CUstream *stream",
    ready=NOTHING,
)
custom("__cudaGetKernel", "CUkernel *kernel, const void *function", ready=NOTHING, majors=(12, 13))
LAUNCH = "struct dim3 gridDim, struct dim3 blockDim, void **args, size_t sharedMem, CUstream stream"
custom("__cudaLaunchKernel", f"CUkernel kernel, {LAUNCH}", majors=(12, 13))

custom("cudaLaunchKernel", f"const void *func, {LAUNCH}", uses="cuLaunchKernel")
custom("cudaLaunchCooperativeKernel", f"const void *func, {LAUNCH}", uses="cuLaunchCooperativeKernel")
custom(
    "cudaLaunchKernelExC",
    "const struct cudaLaunchConfig_t *config, const void *func, void **args",
    uses="cuLaunchKernelEx",
)

custom(
    "cudaFuncGetAttributes",
    "struct cudaFuncAttributes *attr, const void *func",
    uses="cuKernelGetFunction cuFuncGetAttribute",
)
custom("cudaFuncSetAttribute", "const void *func, int attr, int value", uses="cuKernelGetFunction cuFuncSetAttribute")
custom("cudaFuncSetCacheConfig", "const void *func, int config", uses="cuKernelGetFunction cuFuncSetCacheConfig")
custom(
    "cudaFuncSetSharedMemConfig", "const void *func, int config", uses="cuKernelGetFunction cuFuncSetSharedMemConfig"
)
custom("cudaFuncGetName", "const char **name, const void *func", uses="cuKernelGetName", majors=(12, 13))
custom(
    "cudaFuncGetParamInfo",
    "const void *func, size_t index, size_t *offset, size_t *size",
    uses="cuKernelGetParamInfo",
    majors=(12, 13),
)
custom("cudaGetFuncBySymbol", "CUfunction *function, const void *symbol", uses="cuKernelGetFunction")
custom("cudaGetKernel", "CUkernel *kernel, const void *func", majors=(12, 13))
custom(
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
    "int *numBlocks, const void *func, int blockSize, size_t dynamicSMemSize",
    uses="cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
)
custom(
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
    "int *numBlocks, const void *func, int blockSize, size_t dynamicSMemSize, unsigned int flags",
)
custom(
    "cudaOccupancyAvailableDynamicSMemPerBlock",
    "size_t *dynamicSmemSize, const void *func, int numBlocks, int blockSize",
    uses="cuOccupancyAvailableDynamicSMemPerBlock",
)
custom(
    "cudaOccupancyMaxActiveClusters",
    "int *count, const void *func, const struct cudaLaunchConfig_t *config",
    uses="cuOccupancyMaxActiveClusters",
)
custom(
    "cudaOccupancyMaxPotentialClusterSize",
    "int *size, const void *func, const struct cudaLaunchConfig_t *config",
    uses="cuOccupancyMaxPotentialClusterSize",
)

OPTIONS = (
    "int *jitOptions, void **jitValues, unsigned int numJitOptions, "
    "int *libraryOptions, void **libraryValues, unsigned int numLibraryOptions"
)
GIVEN = "jitOptions, jitValues, numJitOptions, libraryOptions, libraryValues, numLibraryOptions"
NEW = (12, 13)
forward(
    "cudaLibraryLoadData",
    f"CUlibrary *library, const void *code, {OPTIONS}",
    f"cuLibraryLoadData(library, code, {GIVEN})",
    majors=NEW,
)
forward(
    "cudaLibraryLoadFromFile",
    f"CUlibrary *library, const char *fileName, {OPTIONS}",
    f"cuLibraryLoadFromFile(library, fileName, {GIVEN})",
    majors=NEW,
)
forward("cudaLibraryUnload", "CUlibrary library", "cuLibraryUnload(library)", majors=NEW)
custom(
    "cudaLibraryGetKernel",
    "CUkernel *kernel, CUlibrary library, const char *name",
    uses="cuLibraryGetKernel",
    majors=NEW,
)
forward(
    "cudaLibraryGetKernelCount",
    "unsigned int *count, CUlibrary library",
    "cuLibraryGetKernelCount(count, library)",
    majors=NEW,
)
custom(
    "cudaLibraryEnumerateKernels",
    "CUkernel *kernels, unsigned int numKernels, CUlibrary library",
    uses="cuLibraryEnumerateKernels",
    majors=NEW,
)
forward(
    "cudaLibraryGetGlobal",
    "void **devPtr, size_t *nbytes, CUlibrary library, const char *name",
    "cuLibraryGetGlobal((CUdeviceptr *)devPtr, nbytes, library, name)",
    majors=NEW,
)
forward(
    "cudaLibraryGetManaged",
    "void **devPtr, size_t *nbytes, CUlibrary library, const char *name",
    "cuLibraryGetManaged((CUdeviceptr *)devPtr, nbytes, library, name)",
    majors=NEW,
)
forward(
    "cudaLibraryGetUnifiedFunction",
    "void **function, CUlibrary library, const char *symbol",
    "cuLibraryGetUnifiedFunction(function, library, symbol)",
    majors=NEW,
)
forward(
    "cudaKernelSetAttributeForDevice",
    "CUkernel kernel, int attr, int value, int device",
    "cuKernelSetAttribute(attr, value, kernel, device)",
    DRIVER,
    majors=NEW,
)
