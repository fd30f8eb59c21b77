/* The simulator's driver functions, with the real driver's signatures. Results are the real driver's too (those of an
 * H100 with driver 580). The current context is the calling thread's. Out-parameters are written only on success. */
#ifndef VGX_SIM_DRIVER_H
#define VGX_SIM_DRIVER_H

#include "vgw_cuda.h"

/* contexts */
CUresult vgx_sim_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev);
CUresult vgx_sim_cuDevicePrimaryCtxRelease_v2(CUdevice dev);
CUresult vgx_sim_cuDevicePrimaryCtxReset_v2(CUdevice dev);
CUresult vgx_sim_cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags);
CUresult vgx_sim_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active);
CUresult vgx_sim_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev);
CUresult vgx_sim_cuCtxDestroy_v2(CUcontext ctx);
CUresult vgx_sim_cuCtxSetCurrent(CUcontext ctx);
CUresult vgx_sim_cuCtxGetCurrent(CUcontext *pctx);
CUresult vgx_sim_cuCtxSynchronize(void);
CUresult vgx_sim_cuCtxSetLimit(int limit, size_t value);
CUresult vgx_sim_cuCtxGetLimit(size_t *pvalue, int limit);

/* memory */
CUresult vgx_sim_cuMemGetInfo_v2(size_t *free, size_t *total);
CUresult vgx_sim_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize);
CUresult vgx_sim_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                                    unsigned int ElementSizeBytes);
CUresult vgx_sim_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags);
CUresult vgx_sim_cuMemFree_v2(CUdeviceptr dptr);
CUresult vgx_sim_cuIpcCloseMemHandle(CUdeviceptr dptr);
CUresult vgx_sim_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags);
CUresult vgx_sim_cuMemHostUnregister(void *p);
CUresult vgx_sim_cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags);
CUresult vgx_sim_cuPointerGetAttribute(void *data, int attribute, CUdeviceptr ptr);

/* memory pools */
CUresult vgx_sim_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream);
CUresult vgx_sim_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream);
CUresult vgx_sim_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream);
CUresult vgx_sim_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps);
CUresult vgx_sim_cuMemPoolDestroy(CUmemoryPool pool);
CUresult vgx_sim_cuMemPoolSetAttribute(CUmemoryPool pool, int attr, void *value);
CUresult vgx_sim_cuMemPoolGetAttribute(CUmemoryPool pool, int attr, void *value);
CUresult vgx_sim_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep);
CUresult vgx_sim_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count);
CUresult vgx_sim_cuMemPoolGetAccess(int *flags, CUmemoryPool memPool, CUmemLocation *location);
CUresult vgx_sim_cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev);
CUresult vgx_sim_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev);
CUresult vgx_sim_cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool);

/* copies and fills */
CUresult vgx_sim_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount);
CUresult vgx_sim_cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream);
CUresult vgx_sim_cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount);
CUresult vgx_sim_cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount);
CUresult vgx_sim_cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount);
CUresult vgx_sim_cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream);
CUresult vgx_sim_cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream);
CUresult vgx_sim_cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream);
CUresult vgx_sim_cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy);
CUresult vgx_sim_cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy);
CUresult vgx_sim_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream);
CUresult vgx_sim_cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy);
CUresult vgx_sim_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream);
CUresult vgx_sim_cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N);
CUresult vgx_sim_cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N);
CUresult vgx_sim_cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N);
CUresult vgx_sim_cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream);
CUresult vgx_sim_cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream);
CUresult vgx_sim_cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream);
CUresult vgx_sim_cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height);
CUresult vgx_sim_cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                                  size_t Height);
CUresult vgx_sim_cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height);
CUresult vgx_sim_cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                                   size_t Height, CUstream hStream);
CUresult vgx_sim_cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                                    size_t Height, CUstream hStream);
CUresult vgx_sim_cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                                    size_t Height, CUstream hStream);

/* streams and events */
CUresult vgx_sim_cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority);
CUresult vgx_sim_cuStreamDestroy_v2(CUstream hStream);
CUresult vgx_sim_cuStreamSynchronize(CUstream hStream);
CUresult vgx_sim_cuStreamQuery(CUstream hStream);
CUresult vgx_sim_cuStreamCopyAttributes(CUstream dst, CUstream src);
CUresult vgx_sim_cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags);
CUresult vgx_sim_cuEventCreate(CUevent *phEvent, unsigned int Flags);
CUresult vgx_sim_cuEventDestroy_v2(CUevent hEvent);
CUresult vgx_sim_cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags);
CUresult vgx_sim_cuEventQuery(CUevent hEvent);
CUresult vgx_sim_cuEventSynchronize(CUevent hEvent);
CUresult vgx_sim_cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd);
CUresult vgx_sim_cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData);

/* modules, functions, libraries, kernels; loading them: vgx_sim.h, since the driver's own functions carry no length */
CUresult vgx_sim_cuModuleUnload(CUmodule hmod);
CUresult vgx_sim_cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name);
CUresult vgx_sim_cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name);
CUresult vgx_sim_cuModuleGetFunctionCount(unsigned int *count, CUmodule mod);
CUresult vgx_sim_cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions, CUmodule mod);
CUresult vgx_sim_cuFuncGetAttribute(int *pi, int attrib, CUfunction hfunc);
CUresult vgx_sim_cuFuncSetAttribute(CUfunction hfunc, int attrib, int value);
CUresult vgx_sim_cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset, size_t *paramSize);
CUresult vgx_sim_cuFuncGetName(const char **name, CUfunction hfunc);
CUresult vgx_sim_cuFuncGetModule(CUmodule *hmod, CUfunction hfunc);
CUresult vgx_sim_cuLibraryUnload(CUlibrary library);
CUresult vgx_sim_cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name);
CUresult vgx_sim_cuLibraryGetModule(CUmodule *pMod, CUlibrary library);
CUresult vgx_sim_cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name);
CUresult vgx_sim_cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib);
CUresult vgx_sim_cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib);
CUresult vgx_sim_cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel);
CUresult vgx_sim_cuKernelGetAttribute(int *pi, int attrib, CUkernel kernel, CUdevice dev);
CUresult vgx_sim_cuKernelSetAttribute(int attrib, int val, CUkernel kernel, CUdevice dev);
CUresult vgx_sim_cuKernelGetName(const char **name, CUkernel hfunc);
CUresult vgx_sim_cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset, size_t *paramSize);

/* launches and occupancy */
CUresult vgx_sim_cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                                unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                                unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra);
CUresult vgx_sim_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra);
CUresult vgx_sim_cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                           unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                           unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                           void **kernelParams);
CUresult vgx_sim_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, CUfunction func, int blockSize,
                                                                      size_t dynamicSMemSize, unsigned int flags);
CUresult vgx_sim_cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, CUfunction func, int numBlocks,
                                                         int blockSize);

/* capture and graphs */
CUresult vgx_sim_cuStreamBeginCapture_v2(CUstream hStream, int mode);
CUresult vgx_sim_cuStreamEndCapture(CUstream hStream, CUgraph *phGraph);
CUresult vgx_sim_cuGraphCreate(CUgraph *phGraph, unsigned int flags);
CUresult vgx_sim_cuGraphDestroy(CUgraph hGraph);
CUresult vgx_sim_cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes);
CUresult vgx_sim_cuGraphNodeGetType(CUgraphNode hNode, int *type);
CUresult vgx_sim_cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                        size_t numDependencies);
CUresult vgx_sim_cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                         size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams);
CUresult vgx_sim_cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                      size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx);
CUresult vgx_sim_cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                      size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS *memsetParams,
                                      CUcontext ctx);
CUresult vgx_sim_cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                     size_t numDependencies);
CUresult vgx_sim_cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams);
CUresult vgx_sim_cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags);
CUresult vgx_sim_cuGraphExecDestroy(CUgraphExec hGraphExec);
CUresult vgx_sim_cuGraphExecGetFlags(CUgraphExec hGraphExec, uint64_t *flags);
CUresult vgx_sim_cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream);
CUresult vgx_sim_cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream);
CUresult vgx_sim_cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo);
CUresult vgx_sim_cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                   const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams);
CUresult vgx_sim_cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                const CUDA_MEMCPY3D *copyParams, CUcontext ctx);
CUresult vgx_sim_cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx);
CUresult vgx_sim_cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph);
CUresult vgx_sim_cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph);
CUresult vgx_sim_cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                          size_t numDependencies, CUgraph childGraph);
CUresult vgx_sim_cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph);
CUresult vgx_sim_cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph);
CUresult vgx_sim_cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                    size_t numDependencies, const CUDA_HOST_NODE_PARAMS *nodeParams);
CUresult vgx_sim_cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams);
CUresult vgx_sim_cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams);
CUresult vgx_sim_cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                              const CUDA_HOST_NODE_PARAMS *nodeParams);

#endif
