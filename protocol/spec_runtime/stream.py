"""Streams, events, host functions."""

from protocol.gen.runtime import Ready, forward

forward("cudaStreamCreate", "CUstream *stream", "cuStreamCreate(stream, 0)")
forward("cudaStreamCreateWithFlags", "CUstream *stream, unsigned int flags", "cuStreamCreate(stream, flags)")
forward(
    "cudaStreamCreateWithPriority",
    "CUstream *stream, unsigned int flags, int priority",
    "cuStreamCreateWithPriority(stream, flags, priority)",
)
forward("cudaStreamDestroy", "CUstream stream", "cuStreamDestroy_v2(stream)")
forward("cudaStreamQuery", "CUstream stream", "cuStreamQuery(stream)")
forward("cudaStreamSynchronize", "CUstream stream", "cuStreamSynchronize(stream)")
forward("cudaStreamGetFlags", "CUstream stream, unsigned int *flags", "cuStreamGetFlags(stream, flags)")
forward("cudaStreamGetPriority", "CUstream stream, int *priority", "cuStreamGetPriority(stream, priority)")
forward("cudaStreamGetId", "CUstream stream, unsigned long long *id", "cuStreamGetId(stream, id)", majors=(12, 13))
forward("cudaStreamGetDevice", "CUstream stream, int *device", "cuStreamGetDevice(stream, device)", majors=(12, 13))
forward(
    "cudaStreamWaitEvent",
    "CUstream stream, CUevent event, unsigned int flags",
    "cuStreamWaitEvent(stream, event, flags)",
)
forward(
    "cudaStreamAttachMemAsync",
    "CUstream stream, void *devPtr, size_t length, unsigned int flags",
    "cuStreamAttachMemAsync(stream, (uintptr_t)devPtr, length, flags)",
)
forward("cudaStreamCopyAttributes", "CUstream to, CUstream from", "cuStreamCopyAttributes(to, from)")
forward("cudaStreamGetAttribute", "CUstream stream, int attr, void *value", "cuStreamGetAttribute(stream, attr, value)")
forward(
    "cudaStreamSetAttribute",
    "CUstream stream, int attr, const void *value",
    "cuStreamSetAttribute(stream, attr, value)",
)
# A callback's second argument is a result code; the runtime's and the driver's have the same numbers.
forward(
    "cudaStreamAddCallback",
    "CUstream stream, CUstreamCallback callback, void *userData, unsigned int flags",
    "cuStreamAddCallback(stream, callback, userData, flags)",
)
forward("cudaLaunchHostFunc", "CUstream stream, CUhostFn fn, void *userData", "cuLaunchHostFunc(stream, fn, userData)")

forward("cudaEventCreate", "CUevent *event", "cuEventCreate(event, 0)")
forward("cudaEventCreateWithFlags", "CUevent *event, unsigned int flags", "cuEventCreate(event, flags)")
forward("cudaEventRecord", "CUevent event, CUstream stream", "cuEventRecord(event, stream)")
forward(
    "cudaEventRecordWithFlags",
    "CUevent event, CUstream stream, unsigned int flags",
    "cuEventRecordWithFlags(event, stream, flags)",
)
forward("cudaEventQuery", "CUevent event", "cuEventQuery(event)")
forward("cudaEventSynchronize", "CUevent event", "cuEventSynchronize(event)")
forward("cudaEventDestroy", "CUevent event", "cuEventDestroy_v2(event)")
forward("cudaEventElapsedTime", "float *ms, CUevent start, CUevent end", "cuEventElapsedTime(ms, start, end)")
forward(
    "cudaEventElapsedTime_v2",
    "float *ms, CUevent start, CUevent end",
    "cuEventElapsedTime_v2(ms, start, end)",
    majors=(12,),
)

forward("cudaThreadExchangeStreamCaptureMode", "int *mode", "cuThreadExchangeStreamCaptureMode(mode)", Ready.DRIVER)
