"""Allocating, registering, describing and pooling memory."""

from protocol.gen.runtime import Ready, custom, forward

DRIVER = Ready.DRIVER

custom("cudaMalloc", "void **devPtr, size_t size", uses="cuMemAlloc_v2")
custom("cudaMallocPitch", "void **devPtr, size_t *pitch, size_t width, size_t height", uses="cuMemAllocPitch_v2")
custom("cudaMalloc3D", "struct cudaPitchedPtr *pitched, struct cudaExtent extent", uses="cuMemAllocPitch_v2")
custom("cudaMallocManaged", "void **devPtr, size_t size, unsigned int flags", uses="cuMemAllocManaged")
custom("cudaFree", "void *devPtr", uses="cuMemFree_v2")
custom("cudaMallocHost", "void **ptr, size_t size", uses="cuMemHostAlloc")
custom("cudaHostAlloc", "void **ptr, size_t size, unsigned int flags", uses="cuMemHostAlloc")
custom("cudaFreeHost", "void *ptr", uses="cuMemFreeHost")
forward("cudaHostRegister", "void *ptr, size_t size, unsigned int flags", "cuMemHostRegister_v2(ptr, size, flags)")
forward("cudaHostUnregister", "void *ptr", "cuMemHostUnregister(ptr)")
forward(
    "cudaHostGetDevicePointer",
    "void **devPtr, void *ptr, unsigned int flags",
    "cuMemHostGetDevicePointer_v2((CUdeviceptr *)devPtr, ptr, flags)",
)
forward("cudaHostGetFlags", "unsigned int *flags, void *ptr", "cuMemHostGetFlags(flags, ptr)")
forward("cudaMemGetInfo", "size_t *free, size_t *total", "cuMemGetInfo_v2(free, total)")
custom(
    "cudaPointerGetAttributes",
    "struct cudaPointerAttributes *attributes, const void *ptr",
    uses="cuPointerGetAttributes",
)

ADVISE = "const void *devPtr, size_t count, int advice"
forward(
    "cudaMemAdvise", f"{ADVISE}, int device", "cuMemAdvise((uintptr_t)devPtr, count, advice, device)", majors=(11, 12)
)
for name, majors in (("cudaMemAdvise", (13,)), ("cudaMemAdvise_v2", (12,))):
    forward(
        name,
        f"{ADVISE}, struct cudaMemLocation location",
        "cuMemAdvise_v2((uintptr_t)devPtr, count, advice, (CUmemLocation){location.type, location.id})",
        majors=majors,
    )
forward(
    "cudaMemPrefetchAsync",
    "const void *devPtr, size_t count, int device, CUstream stream",
    "cuMemPrefetchAsync((uintptr_t)devPtr, count, device, stream)",
    majors=(11, 12),
)
for name, majors in (("cudaMemPrefetchAsync", (13,)), ("cudaMemPrefetchAsync_v2", (12,))):
    forward(
        name,
        "const void *devPtr, size_t count, struct cudaMemLocation location, unsigned int flags, CUstream stream",
        "cuMemPrefetchAsync_v2((uintptr_t)devPtr, count, (CUmemLocation){location.type, location.id}, flags, stream)",
        majors=majors,
    )
forward(
    "cudaMemRangeGetAttribute",
    "void *data, size_t size, int attribute, const void *devPtr, size_t count",
    "cuMemRangeGetAttribute(data, size, attribute, (uintptr_t)devPtr, count)",
)
forward(
    "cudaMemRangeGetAttributes",
    "void **data, size_t *sizes, int *attributes, size_t numAttributes, const void *devPtr, size_t count",
    "cuMemRangeGetAttributes(data, sizes, attributes, numAttributes, (uintptr_t)devPtr, count)",
)

# Pools. Their structs are the driver's; in 11.8 the later members `maxSize` and `usage` were reserved, and zero.
custom("cudaMallocAsync", "void **devPtr, size_t size, CUstream stream", uses="cuMemAllocAsync")
custom(
    "cudaMallocFromPoolAsync",
    "void **devPtr, size_t size, CUmemoryPool pool, CUstream stream",
    uses="cuMemAllocFromPoolAsync",
)
custom("cudaFreeAsync", "void *devPtr, CUstream stream", uses="cuMemFreeAsync")
forward("cudaDeviceGetDefaultMemPool", "CUmemoryPool *pool, int device", "cuDeviceGetDefaultMemPool(pool, device)")
forward("cudaDeviceGetMemPool", "CUmemoryPool *pool, int device", "cuDeviceGetMemPool(pool, device)")
forward("cudaDeviceSetMemPool", "int device, CUmemoryPool pool", "cuDeviceSetMemPool(device, pool)")
forward(
    "cudaMemPoolCreate",
    "CUmemoryPool *pool, const struct cudaMemPoolProps *props",
    "cuMemPoolCreate(pool, (const CUmemPoolProps *)props)",
)
forward("cudaMemPoolDestroy", "CUmemoryPool pool", "cuMemPoolDestroy(pool)")
forward("cudaMemPoolTrimTo", "CUmemoryPool pool, size_t minBytesToKeep", "cuMemPoolTrimTo(pool, minBytesToKeep)")
forward(
    "cudaMemPoolSetAttribute", "CUmemoryPool pool, int attr, void *value", "cuMemPoolSetAttribute(pool, attr, value)"
)
forward(
    "cudaMemPoolGetAttribute", "CUmemoryPool pool, int attr, void *value", "cuMemPoolGetAttribute(pool, attr, value)"
)
forward(
    "cudaMemPoolSetAccess",
    "CUmemoryPool pool, const struct cudaMemAccessDesc *list, size_t count",
    "cuMemPoolSetAccess(pool, (const CUmemAccessDesc *)list, count)",
)
forward(
    "cudaMemPoolGetAccess",
    "int *flags, CUmemoryPool pool, struct cudaMemLocation *location",
    "cuMemPoolGetAccess(flags, pool, (CUmemLocation *)location)",
)
forward(
    "cudaMemPoolExportToShareableHandle",
    "void *handle, CUmemoryPool pool, int handleType, unsigned int flags",
    "cuMemPoolExportToShareableHandle(handle, pool, handleType, flags)",
)
forward(
    "cudaMemPoolImportFromShareableHandle",
    "CUmemoryPool *pool, void *handle, int handleType, unsigned int flags",
    "cuMemPoolImportFromShareableHandle(pool, handle, handleType, flags)",
)
forward("cudaMemPoolExportPointer", "void *exportData, void *ptr", "cuMemPoolExportPointer(exportData, (uintptr_t)ptr)")
forward(
    "cudaMemPoolImportPointer",
    "void **ptr, CUmemoryPool pool, void *exportData",
    "cuMemPoolImportPointer((CUdeviceptr *)ptr, pool, exportData)",
)
