"""The functions of CUPTI that vgpu's library has (shim/cupti): name, parameters, and what they do.

NVIDIA's other exports (protocol/data/libcupti-NN-exports.txt) return CUPTI_ERROR_NOT_SUPPORTED; the first call of each
is logged. Programs that call the functions below: Kineto (torch), XLA (JAX, TensorFlow), Triton's proton.
"""

FUNCTIONS = {
    # activity records
    "cuptiActivityEnable": "uint32_t kind",
    "cuptiActivityDisable": "uint32_t kind",
    "cuptiActivityRegisterCallbacks": "vgs_cupti_request request, vgs_cupti_complete complete",
    "cuptiActivityFlush": "CUcontext context, uint32_t streamId, uint32_t flag",
    "cuptiActivityFlushAll": "uint32_t flag",
    "cuptiActivityFlushPeriod": "uint32_t time",
    "cuptiActivityGetNextRecord": "uint8_t *buffer, size_t validBufferSizeBytes, void **record",
    "cuptiActivityGetNumDroppedRecords": "CUcontext context, uint32_t streamId, size_t *dropped",
    "cuptiActivityGetAttribute": "uint32_t attr, size_t *valueSize, void *value",
    "cuptiActivitySetAttribute": "uint32_t attr, size_t *valueSize, void *value",
    "cuptiActivityPushExternalCorrelationId": "uint32_t kind, uint64_t id",
    "cuptiActivityPopExternalCorrelationId": "uint32_t kind, uint64_t *lastId",
    "cuptiActivityRegisterTimestampCallback": "uint64_t (*funcTimestamp)(void)",
    "cuptiActivityEnableDriverApi": "uint32_t cbid, uint8_t enable",
    "cuptiActivityEnableRuntimeApi": "uint32_t cbid, uint8_t enable",
    "cuptiActivityEnableLatencyTimestamps": "uint8_t enable",
    "cuptiActivityEnableCudaEventDeviceTimestamps": "uint8_t enable",  # CUPTI 13; in 12 they are always on
    "cuptiSetThreadIdType": "uint32_t type",
    "cuptiGetThreadIdType": "uint32_t *type",
    "cuptiFinalize": "void",
    # callbacks
    "cuptiSubscribe": "CUpti_SubscriberHandle *subscriber, vgs_cupti_callback callback, void *userdata",
    "cuptiUnsubscribe": "CUpti_SubscriberHandle subscriber",
    "cuptiEnableCallback": "uint32_t enable, CUpti_SubscriberHandle subscriber, uint32_t domain, uint32_t cbid",
    "cuptiEnableDomain": "uint32_t enable, CUpti_SubscriberHandle subscriber, uint32_t domain",
    "cuptiEnableAllDomains": "uint32_t enable, CUpti_SubscriberHandle subscriber",
    "cuptiGetCallbackState": "uint32_t *enable, CUpti_SubscriberHandle subscriber, uint32_t domain, uint32_t cbid",
    "cuptiGetCallbackName": "uint32_t domain, uint32_t cbid, const char **name",
    "cuptiSupportedDomains": "size_t *domainCount, const uint32_t **domainTable",
    # questions
    "cuptiGetVersion": "uint32_t *version",
    "cuptiGetTimestamp": "uint64_t *timestamp",
    "cuptiGetContextId": "CUcontext context, uint32_t *contextId",
    "cuptiGetDeviceId": "CUcontext context, uint32_t *deviceId",
    "cuptiGetStreamId": "CUcontext context, CUstream stream, uint32_t *streamId",
    "cuptiGetStreamIdEx": "CUcontext context, CUstream stream, uint8_t perThreadStream, uint32_t *streamId",
    "cuptiGetGraphId": "CUgraph graph, uint32_t *pId",
    "cuptiGetGraphExecId": "CUgraphExec graphExec, uint32_t *pId",
    "cuptiGetGraphNodeId": "CUgraphNode node, uint64_t *nodeId",
    "cuptiGetResultString": "int result, const char **str",
    "cuptiGetErrorMessage": "int result, const char **str",
    "cuptiGetLastError": "void",
}

# What a driver function does, for the records of its calls: by the prefix of its name, the longest first.
CLASSES = (
    ("cuLaunchKernelEx", "LAUNCH_EX"),
    ("cuLaunchHostFunc", "OTHER"),
    ("cuLaunch", "LAUNCH"),
    ("cuGraphLaunch", "GRAPH"),
    ("cuMemcpyHtoD", "COPY_TO_DEVICE"),
    ("cuMemcpyDtoH", "COPY_TO_HOST"),
    ("cuMemcpyPeer", "COPY_PEER"),
    ("cuMemcpy3DPeer", "COPY"),
    ("cuMemcpyBatch", "COPY"),
    ("cuMemcpy2D", "COPY"),
    ("cuMemcpy3D", "COPY"),
    ("cuMemcpyDtoD", "COPY"),
    ("cuMemcpyAtoD", "COPY"),
    ("cuMemcpyDtoA", "COPY"),
    ("cuMemcpyAtoA", "COPY"),
    ("cuMemcpyAtoH", "COPY"),
    ("cuMemcpyHtoA", "COPY"),
    ("cuMemcpy", "COPY_EITHER"),
    ("cuMemset", "FILL"),
    ("cuEventRecord", "RECORD_EVENT"),
    ("cuMemAlloc", "ALLOCATE"),
    ("cuMemHostAlloc", "ALLOCATE"),
    ("cuMemFree", "FREE"),
    ("cuMemPoolCreate", "POOL_CREATE"),
    ("cuMemPoolDestroy", "POOL_DESTROY"),
    ("cuMemPoolTrimTo", "POOL_TRIM"),
    ("cuStreamSynchronize", "SYNC_STREAM"),
    ("cuCtxSynchronize", "SYNC_CONTEXT"),
    ("cuEventSynchronize", "SYNC_EVENT"),
    ("cuStreamWaitEvent", "WAIT_EVENT"),
)

# Runtime functions that make one driver call of a class, or of a range of classes: by the prefix of the name, the
# longest first. Such a driver call of NVIDIA's runtime is recorded as the runtime's (shim/cupti/vgs_cupti_runtime.c).
RUNTIME_CLASSES = (
    ("cudaLaunchHostFunc", "OTHER", "OTHER"),
    ("cudaLaunchCooperativeKernelMultiDevice", "OTHER", "OTHER"),
    ("cudaLaunch", "LAUNCH", "LAUNCH_EX"),
    ("cudaGraphLaunch", "GRAPH", "GRAPH"),
    ("cudaMemcpy", "COPY", "COPY_PEER"),
    ("cudaMemset", "FILL", "FILL"),
    ("cudaEventRecord", "RECORD_EVENT", "RECORD_EVENT"),
    ("cudaMalloc", "ALLOCATE", "ALLOCATE"),
    ("cudaHostAlloc", "ALLOCATE", "ALLOCATE"),
    ("cudaFree", "FREE", "FREE"),
    ("cudaMemPoolCreate", "POOL_CREATE", "POOL_CREATE"),
    ("cudaMemPoolDestroy", "POOL_DESTROY", "POOL_DESTROY"),
    ("cudaMemPoolTrimTo", "POOL_TRIM", "POOL_TRIM"),
    ("cudaStreamSynchronize", "SYNC_STREAM", "SYNC_STREAM"),
    ("cudaDeviceSynchronize", "SYNC_CONTEXT", "SYNC_CONTEXT"),
    ("cudaThreadSynchronize", "SYNC_CONTEXT", "SYNC_CONTEXT"),
    ("cudaEventSynchronize", "SYNC_EVENT", "SYNC_EVENT"),
    ("cudaStreamWaitEvent", "WAIT_EVENT", "WAIT_EVENT"),
)
