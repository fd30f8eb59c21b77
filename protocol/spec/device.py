"""Initialisation, devices, errors, finding functions: all answered from the inventory that came with the hello."""

from protocol.gen.dsl import (
    DEVICE,
    I32,
    INIT,
    INVALID_VALUE,
    NOT_SUPPORTED,
    NOTHING,
    SIZE,
    U32,
    U64,
    WAITING,
    array_in,
    array_out,
    fn,
    kept,
    out,
    ptr,
    val,
)

fn("cuInit", [val("Flags", U32)], need=NOTHING, doc="Connect, say hello, keep the inventory.")
fn("cuDriverGetVersion", [out("driverVersion", I32)], need=NOTHING, doc="CUDA version of the driver, 13000.")
fn(
    "cuGetErrorName",
    [val("error", I32), ptr("pStr", "const char **")],
    need=NOTHING,
    observed=False,
    doc="Name of a result code.",
)
fn(
    "cuGetErrorString",
    [val("error", I32), ptr("pStr", "const char **")],
    need=NOTHING,
    observed=False,
    doc="Description of a result code.",
)
fn(
    "cuGetProcAddress",
    [ptr("symbol", "const char *"), ptr("pfn", "void **"), val("cudaVersion", I32), val("flags", U64)],
    need=NOTHING,
    look_up=True,
    observed=False,
    doc="Function of a name at an API version.",
)
fn(
    "cuGetProcAddress_v2",
    [
        ptr("symbol", "const char *"),
        ptr("pfn", "void **"),
        val("cudaVersion", I32),
        val("flags", U64),
        ptr("symbolStatus", "int *"),
    ],
    need=NOTHING,
    look_up=True,
    observed=False,
    doc="As above, and why nothing was found.",
)
fn(
    "cuGetExportTable",
    [ptr("ppExportTable", "const void **"), ptr("pExportTableId", "const CUuuid *")],
    need=NOTHING,
    observed=False,
    doc="The private tables NVIDIA's own libraries ask for.",
)

fn(
    "cuDeviceGet",
    [kept("device", "CUdevice", "ordinal"), val("ordinal", DEVICE)],
    need=INIT,
    doc="Device of an ordinal.",
)
fn("cuDeviceGetCount", [kept("count", I32, "vgs_device_count()")], need=INIT, doc="Number of visible devices.")
fn(
    "cuDeviceGetLuid",
    [ptr("luid", "char *"), ptr("deviceNodeMask", "unsigned int *"), val("dev", DEVICE)],
    need=INIT,
    refuses={"!luid || !deviceNodeMask": INVALID_VALUE},
    asked=NOT_SUPPORTED,
    doc="Windows' name of a device: NOT_SUPPORTED elsewhere.",
)
fn("cuDeviceGetName", [ptr("name", "char *"), val("len", I32), val("dev", DEVICE)], need=INIT, doc="Name of a device.")
fn("cuDeviceGetUuid", [ptr("uuid", "CUuuid *"), val("dev", DEVICE)], need=INIT, doc="UUID of a device.")
fn(
    "cuDeviceGetUuid_v2",
    [ptr("uuid", "CUuuid *"), val("dev", DEVICE)],
    need=INIT,
    doc="UUID of a device or MIG instance.",
)
fn("cuDeviceTotalMem_v2", [out("bytes", SIZE), val("dev", DEVICE)], need=INIT, doc="Memory of a device in bytes.")
fn("cuDeviceTotalMem", [out("bytes", U32), val("dev", DEVICE)], need=INIT, doc="The 32-bit form: at most 4 GiB - 1.")
fn(
    "cuDeviceGetAttribute",
    [out("pi", I32), val("attrib", I32), val("dev", DEVICE)],
    need=INIT,
    doc="One attribute of a device.",
)
fn(
    "cuDeviceGetProperties",
    [ptr("prop", "CUdevprop *"), val("dev", DEVICE)],
    need=INIT,
    doc="The oldest property struct, from the attributes.",
)
fn(
    "cuDeviceComputeCapability",
    [out("major", I32), out("minor", I32), val("dev", DEVICE)],
    need=INIT,
    doc="Compute capability of a device.",
)
fn(
    "cuDeviceGetPCIBusId",
    [ptr("pciBusId", "char *"), val("len", I32), val("dev", DEVICE)],
    need=INIT,
    doc="PCI address of a device.",
)
fn(
    "cuDeviceGetByPCIBusId",
    [out("dev", DEVICE), ptr("pciBusId", "const char *")],
    need=INIT,
    doc="Device at a PCI address.",
)
fn(
    "cuDeviceCanAccessPeer",
    [kept("canAccessPeer", I32, "vgs_device_reaches(dev, peerDev)"), val("dev", DEVICE), val("peerDev", DEVICE)],
    need=INIT,
    doc="Whether a device can address another's memory.",
)
fn(
    "cuDeviceGetP2PAttribute",
    [out("value", I32), val("attrib", I32), val("srcDevice", DEVICE), val("dstDevice", DEVICE)],
    need=INIT,
    doc="Attributes of the link between two devices.",
)
fn(
    "cuDeviceGetTexture1DLinearMaxWidth",
    [out("maxWidthInElements", SIZE), val("format", I32), val("numChannels", U32), val("dev", DEVICE)],
    need=INIT,
    doc="Largest linear texture of a format, in elements.",
)
fn(
    "cuDeviceGetExecAffinitySupport",
    [out("pi", I32), val("type", I32), val("dev", DEVICE)],
    need=INIT,
    doc="Whether contexts can be limited to some SMs: no.",
)
# The atomic operations that a link to host memory or to another device supports; only the driver knows.
OPERATIONS_CAP = 64
ATOMICS = [
    array_out("capabilities", "unsigned int", "count", OPERATIONS_CAP),
    array_in("operations", "int", "count", OPERATIONS_CAP),
    val("count", U32, nonzero=True),
]
fn(
    "cuDeviceGetHostAtomicCapabilities",
    [*ATOMICS, val("dev", DEVICE)],
    WAITING,
    need=INIT,
    simulator=False,
    doc="Atomic operations of a device on host memory.",
)
fn(
    "cuDeviceGetP2PAtomicCapabilities",
    [*ATOMICS, val("srcDevice", DEVICE), val("dstDevice", DEVICE)],
    WAITING,
    need=INIT,
    simulator=False,
    doc="Atomic operations of a device on another's memory.",
)
fn(
    "cuDeviceRegisterAsyncNotification",
    [val("device", DEVICE), ptr("callbackFunc", "void *"), ptr("userData", "void *"), ptr("callback", "void **")],
    need=INIT,
    doc="Have a function called when the process is over its memory budget, which a vGPU's never is.",
)
fn(
    "cuDeviceUnregisterAsyncNotification",
    [val("device", DEVICE), ptr("callback", "void *")],
    need=INIT,
    doc="Undo that.",
)
