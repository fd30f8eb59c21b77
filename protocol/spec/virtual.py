"""Virtual memory management: address ranges, physical allocations, and mapping one to the other."""

from protocol.gen.dsl import DEVICEPTR, I32, INIT, SIZE, U32, ULL, WAITING, bytes_in, fn, out, ptr, struct_in, val

HANDLE = "CUmemGenericAllocationHandle"
DOC_HANDLE = "handle ids of kind 11 travel"

fn(
    "cuMemGetAllocationGranularity",
    [out("granularity", SIZE), ptr("prop", "const CUmemAllocationProp *"), val("option", I32)],
    need=INIT,
    doc="Allocation granularity in bytes, from the inventory.",
)
fn(
    "cuMemAddressReserve",
    [out("ptr", DEVICEPTR), val("size", SIZE), val("alignment", SIZE), val("addr", DEVICEPTR), val("flags", ULL)],
    WAITING,
    need=INIT,
    guest="custom",
    doc="Reserve an address range.",
)
fn("cuMemAddressFree", [val("ptr", DEVICEPTR), val("size", SIZE)], WAITING, need=INIT, doc="Free an address range.")
fn(
    "cuMemCreate",
    [ptr("handle", f"{HANDLE} *"), val("size", SIZE), ptr("prop", "const CUmemAllocationProp *"), val("flags", ULL)],
    WAITING,
    need=INIT,
    wire=[val("handle", U32), val("size", SIZE), struct_in("prop", "CUmemAllocationProp"), val("flags", ULL)],
    doc=f"Allocate physical memory; {DOC_HANDLE}.",
)
fn(
    "cuMemRelease",
    [ptr("handle", HANDLE)],
    WAITING,
    need=INIT,
    wire=[val("handle", U32)],
    doc="Free physical memory once nothing maps it.",
)
fn(
    "cuMemMap",
    [val("ptr", DEVICEPTR), val("size", SIZE), val("offset", SIZE), ptr("handle", HANDLE), val("flags", ULL)],
    WAITING,
    need=INIT,
    wire=[val("ptr", DEVICEPTR), val("size", SIZE), val("offset", SIZE), val("handle", U32), val("flags", ULL)],
    doc="Map physical memory into a reserved range.",
)
fn(
    "cuMemUnmap",
    [val("ptr", DEVICEPTR), val("size", SIZE)],
    WAITING,
    need=INIT,
    guest="custom",
    blocks=True,
    doc="Undo cuMemMap.",
)
fn(
    "cuMemSetAccess",
    [val("ptr", DEVICEPTR), val("size", SIZE), ptr("desc", "const CUmemAccessDesc *"), val("count", SIZE)],
    WAITING,
    need=INIT,
    wire=[val("ptr", DEVICEPTR), val("size", SIZE), val("nbytes", U32), bytes_in("desc", "nbytes", cap=4096)],
    doc="Say which devices may use a mapped range.",
)
fn(
    "cuMemGetAccess",
    [out("flags", ULL), ptr("location", "const CUmemLocation *"), val("ptr", DEVICEPTR)],
    WAITING,
    need=INIT,
    wire=[out("flags", ULL), struct_in("location", "CUmemLocation"), val("ptr", DEVICEPTR)],
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
