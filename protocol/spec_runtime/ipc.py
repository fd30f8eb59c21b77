"""Memory and events of other processes."""

from protocol.gen.runtime import forward

forward("cudaIpcGetMemHandle", "CUipcMemHandle *handle, void *devPtr", "cuIpcGetMemHandle(handle, (uintptr_t)devPtr)")
forward(
    "cudaIpcOpenMemHandle",
    "void **devPtr, CUipcMemHandle handle, unsigned int flags",
    "cuIpcOpenMemHandle_v2((CUdeviceptr *)devPtr, handle, flags)",
)
forward("cudaIpcCloseMemHandle", "void *devPtr", "cuIpcCloseMemHandle((uintptr_t)devPtr)")
forward("cudaIpcGetEventHandle", "CUipcEventHandle *handle, CUevent event", "cuIpcGetEventHandle(handle, event)")
forward("cudaIpcOpenEventHandle", "CUevent *event, CUipcEventHandle handle", "cuIpcOpenEventHandle(event, handle)")
