"""Devices, contexts, errors, versions."""

from protocol.gen.runtime import Ready, custom, forward

DRIVER, NOTHING = Ready.DRIVER, Ready.NOTHING

custom("cudaGetLastError", "void", ready=NOTHING, returns="int")
custom("cudaPeekAtLastError", "void", ready=NOTHING, returns="int")
custom("cudaGetErrorName", "int error", ready=NOTHING, returns="const char *")
custom("cudaGetErrorString", "int error", ready=NOTHING, returns="const char *")
custom("cudaDriverGetVersion", "int *driverVersion", uses="cuDriverGetVersion", ready=NOTHING)
custom("cudaRuntimeGetVersion", "int *runtimeVersion", ready=NOTHING)

custom("cudaGetDeviceCount", "int *count", uses="cuInit cuDeviceGetCount", ready=NOTHING)
custom("cudaGetDevice", "int *device", uses="cuCtxGetCurrent cuCtxGetDevice cuCtxGetApiVersion", ready=DRIVER)
custom(
    "cudaSetDevice",
    "int device",
    uses="cuCtxSetCurrent cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease_v2",
    ready=DRIVER,
)
custom(
    "cudaInitDevice",
    "int device, unsigned int deviceFlags, unsigned int flags",
    uses="cuDevicePrimaryCtxSetFlags_v2",
    ready=DRIVER,
    majors=(12, 13),
)
custom("cudaSetDeviceFlags", "unsigned int flags", uses="cuDevicePrimaryCtxSetFlags_v2", ready=DRIVER)
custom("cudaGetDeviceFlags", "unsigned int *flags", uses="cuDevicePrimaryCtxGetState", ready=DRIVER)
custom(
    "cudaGetDeviceProperties",
    "void *prop, int device",
    uses="cuDeviceGetName cuDeviceGetUuid cuDeviceTotalMem_v2 cuDeviceGetAttribute",
    ready=DRIVER,
)
custom("cudaGetDeviceProperties_v2", "void *prop, int device", ready=DRIVER, majors=(12,))
forward(
    "cudaDeviceGetAttribute", "int *value, int attr, int device", "cuDeviceGetAttribute(value, attr, device)", DRIVER
)
forward(
    "cudaDeviceGetPCIBusId", "char *pciBusId, int len, int device", "cuDeviceGetPCIBusId(pciBusId, len, device)", DRIVER
)
forward(
    "cudaDeviceGetByPCIBusId", "int *device, const char *pciBusId", "cuDeviceGetByPCIBusId(device, pciBusId)", DRIVER
)
forward(
    "cudaDeviceCanAccessPeer",
    "int *canAccessPeer, int device, int peerDevice",
    "cuDeviceCanAccessPeer(canAccessPeer, device, peerDevice)",
    DRIVER,
)
forward(
    "cudaDeviceGetP2PAttribute",
    "int *value, int attr, int srcDevice, int dstDevice",
    "cuDeviceGetP2PAttribute(value, attr, srcDevice, dstDevice)",
    DRIVER,
)
custom("cudaDeviceEnablePeerAccess", "int peerDevice, unsigned int flags", uses="cuCtxEnablePeerAccess")
custom("cudaDeviceDisablePeerAccess", "int peerDevice", uses="cuCtxDisablePeerAccess")

forward("cudaDeviceSynchronize", "void", "cuCtxSynchronize()")
custom("cudaDeviceReset", "void", uses="cuDevicePrimaryCtxReset_v2", ready=DRIVER)
forward("cudaDeviceSetLimit", "int limit, size_t value", "cuCtxSetLimit(limit, value)")
forward("cudaDeviceGetLimit", "size_t *value, int limit", "cuCtxGetLimit(value, limit)")
forward("cudaDeviceGetCacheConfig", "int *config", "cuCtxGetCacheConfig(config)")
forward("cudaDeviceSetCacheConfig", "int config", "cuCtxSetCacheConfig(config)")
forward("cudaDeviceGetSharedMemConfig", "int *config", "cuCtxGetSharedMemConfig(config)")
forward("cudaDeviceSetSharedMemConfig", "int config", "cuCtxSetSharedMemConfig(config)")
forward("cudaDeviceGetStreamPriorityRange", "int *least, int *greatest", "cuCtxGetStreamPriorityRange(least, greatest)")
forward("cudaCtxResetPersistingL2Cache", "void", "cuCtxResetPersistingL2Cache()")
forward("cudaDeviceFlushGPUDirectRDMAWrites", "int target, int scope", "cuFlushGPUDirectRDMAWrites(target, scope)")

# Older names of the same functions, removed in 13.
forward("cudaThreadSynchronize", "void", "cuCtxSynchronize()", majors=(11, 12))
custom("cudaThreadExit", "void", ready=DRIVER, majors=(11, 12))
forward("cudaThreadSetLimit", "int limit, size_t value", "cuCtxSetLimit(limit, value)", majors=(11, 12))
forward("cudaThreadGetLimit", "size_t *value, int limit", "cuCtxGetLimit(value, limit)", majors=(11, 12))
forward("cudaThreadGetCacheConfig", "int *config", "cuCtxGetCacheConfig(config)", majors=(11, 12))
forward("cudaThreadSetCacheConfig", "int config", "cuCtxSetCacheConfig(config)", majors=(11, 12))

forward("cudaProfilerStart", "void", "cuProfilerStart()")
forward("cudaProfilerStop", "void", "cuProfilerStop()")

ENTRY_POINT = "const char *symbol, void **function, uint64_t flags"
custom("cudaGetDriverEntryPoint", ENTRY_POINT, ready=DRIVER, uses="cuGetProcAddress_v2", majors=(11,))
custom("cudaGetDriverEntryPoint", f"{ENTRY_POINT}, int *driverStatus", ready=DRIVER, majors=(12, 13))
custom(
    "cudaGetDriverEntryPointByVersion",
    "const char *symbol, void **function, unsigned int cudaVersion, uint64_t flags, int *driverStatus",
    ready=DRIVER,
    majors=(12, 13),
)
