"""Virtual memory management: address ranges, physical allocations, and mapping one to the other."""

from protocol.gen.dsl import (
    ALLOCATION,
    DEVICEPTR,
    I32,
    INIT,
    INVALID_VALUE,
    NOT_SUPPORTED,
    SIZE,
    ULL,
    WAITING,
    array_in,
    device_at,
    fixed_at,
    fn,
    handle,
    out,
    out_handle,
    out_range,
    ptr,
    struct_in,
    struct_out,
    val,
)

HANDLE = "CUmemGenericAllocationHandle"

fn(
    "cuMemGetAllocationGranularity",
    [out("granularity", SIZE), ptr("prop", "const CUmemAllocationProp *"), val("option", I32)],
    need=INIT,
    doc="Allocation granularity in bytes, from the inventory.",
)
fn(
    "cuMemAddressReserve",
    [
        out_range("ptr", "size", "", "vgs_send_cuMemAddressFree(taken, size)"),
        val("size", SIZE),
        val("alignment", SIZE),
        val("addr", DEVICEPTR),
        val("flags", ULL),
    ],
    WAITING,
    need=INIT,
    doc="Reserve an address range.",
    group="vmm",
)
fn(
    "cuMemAddressFree",
    [val("ptr", DEVICEPTR), val("size", SIZE)],
    WAITING,
    need=INIT,
    doc="Free an address range.",
)
fn(
    "cuMemCreate",
    [
        out_handle("handle", ALLOCATION, handles="1", prop="*prop"),
        val("size", SIZE, nonzero=True),
        struct_in("prop", "CUmemAllocationProp", device_at("location.id"), fixed_at("win32HandleMetaData")),
        val("flags", ULL, mask=0),
    ],
    WAITING,
    need=INIT,
    refuses={"vgs_allocation_check(prop)": "vgs_allocation_check(prop)"},
    doc="Allocate physical memory.",
    group="vmm",
)
fn(
    "cuMemRelease",
    [handle("handle", ALLOCATION, ends=True)],
    WAITING,
    need=INIT,
    asked="vgs_allocation_release(handle)",
    worker_before="vgx_share_released(s, VGX_IPC_ALLOCATION, req->handle)",
    doc="Free physical memory once nothing maps it.",
)
# A token of vgpud identifies the memory, as for cuIpc (vgx_share.c); the client passes it in a descriptor.
SHARED = "CUipcMemHandle"
fn(
    "cuMemExportToShareableHandle",
    [ptr("shareableHandle", "void *"), ptr("handle", HANDLE), val("handleType", I32), val("flags", ULL)],
    WAITING,
    need=INIT,
    backend=False,
    guest="custom",
    host="custom",
    wire=[struct_out("token", SHARED), handle("handle", ALLOCATION)],
    doc="A descriptor by which another client of the tenant gets physical memory; other types are NOT_SUPPORTED.",
    group="export",
)
fn(
    "cuMemImportFromShareableHandle",
    [ptr("handle", f"{HANDLE} *"), ptr("osHandle", "void *"), val("shHandleType", I32)],
    WAITING,
    need=INIT,
    backend=False,
    guest="custom",
    host="custom",
    wire=[out_handle("handle", ALLOCATION), struct_out("prop", "CUmemAllocationProp"), struct_in("token", SHARED)],
    doc="Physical memory of another client of the tenant.",
    group="export",
)
fn(
    "cuMemMap",
    [
        val("ptr", DEVICEPTR, nonzero=True),
        val("size", SIZE, nonzero=True),
        val("offset", SIZE),
        handle("handle", ALLOCATION),
        val("flags", ULL),
    ],
    WAITING,
    need=INIT,
    refuses={"!vgs_allocation_has_handle(handle_object)": INVALID_VALUE},
    client_after="result = vgs_mapping_add(handle_object, ptr, size)",
    doc="Map physical memory into a reserved range.",
    group="vmm",
)
fn(
    "cuMemUnmap",
    [val("ptr", DEVICEPTR), val("size", SIZE)],
    WAITING,
    need=INIT,
    client_after="vgs_mappings_remove(ptr, size)",
    blocks=True,
    doc="Undo cuMemMap.",
)
fn(
    "cuMemSetAccess",
    [
        val("ptr", DEVICEPTR),
        val("size", SIZE),
        array_in("desc", "CUmemAccessDesc", "count", 64, (device_at("location.id"),)),
        val("count", SIZE, nonzero=True),
    ],
    WAITING,
    need=INIT,
    refuses={"vgs_access_is_foreign(desc, count)": NOT_SUPPORTED},
    doc="Say which devices may use a mapped range.",
    group="vmm",
)
fn(
    "cuMemGetAccess",
    [out("flags", ULL), struct_in("location", "CUmemLocation", device_at("id")), val("ptr", DEVICEPTR)],
    WAITING,
    need=INIT,
    refuses={"location->type != 1 /* device */": INVALID_VALUE},
    doc="Which access a device has to an address.",
)
fn(
    "cuMemGetAllocationPropertiesFromHandle",
    [ptr("prop", "CUmemAllocationProp *"), ptr("handle", HANDLE)],
    need=INIT,
    doc="Properties an allocation was made with; kept in the client.",
)
fn(
    "cuMemRetainAllocationHandle",
    [ptr("handle", f"{HANDLE} *"), ptr("addr", "void *")],
    need=INIT,
    doc="The handle of the physical memory that is mapped at an address, once more; kept in the client.",
)
