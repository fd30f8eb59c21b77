"""Short names for the specification modules: types, parameters and `fn`, which registers a function."""

from __future__ import annotations

from dataclasses import replace

from protocol.gen.model import Channel, Function, Kind, Member, Need, Param, Role, Scalar, SpecError, Travel, Turn

I32 = Scalar("int", "int32_t", "i")
U32 = Scalar("unsigned int", "uint32_t", "u")
U8 = Scalar("unsigned char", "uint32_t", "u")
U16 = Scalar("unsigned short", "uint32_t", "u")
U64 = Scalar("uint64_t", "uint64_t", "u")
ULL = Scalar("unsigned long long", "uint64_t", "u")
SIZE = Scalar("size_t", "uint64_t", "u")
F32 = Scalar("float", "float", "f")
DEVICEPTR = Scalar("CUdeviceptr", "uint64_t", "x")
ADDRESS = Scalar("uint64_t", "uint64_t", "x")
DEVICE = Scalar("CUdevice", "int32_t", "i")

INVALID_VALUE, INVALID_HANDLE = "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_INVALID_HANDLE"
NOT_SUPPORTED, OUT_OF_MEMORY = "CUDA_ERROR_NOT_SUPPORTED", "CUDA_ERROR_OUT_OF_MEMORY"

# What a tenant's sessions may hold or use together. Objects of the kinds that name one are counted by the handle
# tables; the last two are amounts: bytes of images that are uploaded or loaded, processor time spent on compiling.
QUOTAS = (
    "contexts", "streams", "events", "modules", "graphs", "arrays", "pools", "image_nbytes", "compile_ns",
)  # fmt: skip

# Groups of functions that a share can be denied, in an operator's words. An entry names its group (fn's `group`):
# functions that obtain or begin something; what releases or ends it has none, and is never denied.
GROUPS = {
    "ipc": "memory and events shared with other processes: cuIpcGet*, cuIpcOpen*",
    "export": "physical memory and pools as descriptors: cuMemExport*, cuMemImport*, cuMemPoolExport*, "
    "cuMemPoolImport*, cuImportExternalMemory",
    "register": "the program's own memory mapped for the device: cuMemHostRegister with DEVICEMAP",
    "vmm": "virtual memory management: cuMemCreate, cuMemAddressReserve, cuMemMap, cuMemSetAccess",
    "peer": "kernels that access another device's memory: cuCtxEnablePeerAccess, cuMemPoolSetAccess",
    "graphs": "CUDA graphs: cuGraphCreate, cuStreamBeginCapture*",
    "memops": "streams that wait for words of memory or write them: cuStreamWaitValue*, cuStreamWriteValue*, "
    "cuStreamBatchMemOp",
    "profiling": "what the device does when, for profilers: CUPTI's activities",
}

CONTEXT = Kind("CONTEXT", 1, "CUcontext", "vgs_context", wrong="CUDA_ERROR_INVALID_CONTEXT", quota="contexts")
STREAM = Kind("STREAM", 2, "CUstream", "vgs_stream", "CONTEXT", quota="streams")
EVENT = Kind("EVENT", 3, "CUevent", "vgs_event", "CONTEXT", quota="events")
MODULE = Kind("MODULE", 4, "CUmodule", "vgs_module", "CONTEXT", quota="modules")
LIBRARY = Kind("LIBRARY", 5, "CUlibrary", "vgs_library", ready="vgs_library_ready", quota="modules")
FUNCTION = Kind("FUNCTION", 6, "CUfunction", "vgs_kernel")
KERNEL = Kind("KERNEL", 7, "CUkernel", "vgs_kernel")
MEMPOOL = Kind("MEMPOOL", 8, "CUmemoryPool", "vgs_pool", wrong=INVALID_VALUE, quota="pools")
GRAPH = Kind("GRAPH", 9, "CUgraph", "vgs_graph", wrong=INVALID_VALUE, quota="graphs", alone=True)
LINK = Kind("LINK", 10, "CUlinkState", "vgs_link")
ALLOCATION = Kind("ALLOCATION", 11, "CUmemGenericAllocationHandle", "vgs_allocation", wrong=INVALID_VALUE)
GRAPH_EXEC = Kind("GRAPH_EXEC", 12, "CUgraphExec", "vgs_graph_exec", "CONTEXT", wrong=INVALID_VALUE, quota="graphs")
GRAPH_NODE = Kind("GRAPH_NODE", 13, "CUgraphNode", "vgs_graph_node", wrong=INVALID_VALUE, alone=True)
IPC_EVENT = Kind("IPC_EVENT", 14, "CUevent", "vgs_ipc_event", "CONTEXT", quota="events")
ARRAY = Kind("ARRAY", 15, "CUarray", "vgs_array", "CONTEXT", quota="arrays")
MIPMAP = Kind("MIPMAP", 16, "CUmipmappedArray", "vgs_mipmap", "CONTEXT", quota="arrays")
TEXREF = Kind("TEXREF", 17, "CUtexref")
SURFREF = Kind("SURFREF", 18, "CUsurfref")
RESOURCE_DESC = Kind("RESOURCE_DESC", 19, "CUdevResourceDesc", wrong=INVALID_VALUE)
GREEN = Kind("GREEN", 20, "CUgreenCtx", "vgs_green", wrong="CUDA_ERROR_INVALID_CONTEXT", quota="contexts")
KINDS = (
    CONTEXT, STREAM, EVENT, MODULE, LIBRARY, FUNCTION, KERNEL, MEMPOOL, GRAPH, LINK, ALLOCATION, GRAPH_EXEC, GRAPH_NODE,
    IPC_EVENT, ARRAY, MIPMAP, TEXREF, SURFREF, RESOURCE_DESC, GREEN,
)  # fmt: skip

LOCAL, QUEUED, WAITING = Travel.LOCAL, Travel.QUEUED, Travel.WAITING
NOTHING, INIT = Need.NOTHING, Need.INIT
SOCKET, BESIDE, RING = Channel.SOCKET, Channel.BESIDE, Channel.RING
OVERTAKES, ASKS = Turn.OVERTAKES, Turn.ASKS

# Longer data is sent in pieces; must fit a record (wire.md: 4 MiB) with its fixed part.
PIECE_NBYTES = 1 << 20
ARRAY_CAP = 65536  # elements of an array, unless an entry says otherwise

functions: list[Function] = []
host_functions: list[Function] = []  # members of the backend table that no record calls
own_exports: list[str] = []
_module = ""


def begin_module(name: str) -> None:
    global _module
    _module = name


def val(name: str, scalar: Scalar, *, mask: int | None = None, most: int | None = None, nonzero: bool = False,
        among: tuple[int, ...] = (), fixed: str = "", sent: str = "") -> Param:  # fmt: skip
    """A number. `mask`, `most`, `nonzero`, `among`: the client refuses other values with INVALID_VALUE.

    A device is checked and translated.
    `sent`: what is sent instead of it; `fixed`: what the worker's driver receives instead of it (C).
    """
    return Param(
        name, Role.VALUE, scalar.c, scalar=scalar, mask=mask, most=most, nonzero=nonzero, among=among, fixed=fixed,
        sent=sent,
    )  # fmt: skip


def handle(name: str, kind: Kind, *, optional: bool = False, wrong: str = "", ends: bool = False, otherwise: str = "",
           ready: str = "", named: bool = False, uncaptured: bool = False, ending: str = "") -> Param:  # fmt: skip
    """An object that exists. NULL is refused unless `optional`; a stream's NULL is the default stream."""
    return Param(
        name, Role.HANDLE, kind.c, kind=kind, optional=optional or kind is STREAM, wrong=wrong, ends=ends,
        otherwise=otherwise, ready=ready, named=named, uncaptured=uncaptured, ending=ending,
    )  # fmt: skip


def function(name: str, *, loaded: bool = False) -> Param:
    """A CUfunction or CUkernel. `loaded`: the driver's function takes no CUkernel."""
    return Param(name, Role.FUNCTION, "CUfunction", loaded=loaded)


def out(name: str, scalar: Scalar, *, optional: bool = False) -> Param:
    """A result; NULL in the program's call is INVALID_VALUE unless `optional`."""
    return Param(name, Role.OUT, f"{scalar.c} *", scalar=scalar, optional=optional)


def kept(name: str, c: str | Scalar, value: str) -> Param:
    """A result that the client knows: `value` is C, in which the object of handle x is `x_object`."""
    return Param(name, Role.KEPT, f"{c if isinstance(c, str) else c.c} *", kept=value)


def out_range(
    name: str, nbytes: str, kind: str, undo: str, *, ordered: bool = False, device: str = "vgs_context_entered->device"
) -> Param:
    """The address of new device memory, claimed in the program's address space and known as a range from then on.

    Args:
        nbytes: its length, C, in which result x is `x_told`.
        kind: of the range, C (enum vgs_range_kind); empty: only addresses, claimed but not recorded as a range.
        undo: C that frees the memory at `taken`, if the program uses that address or the range cannot be recorded.
        ordered: allocated in the order of a stream, from a pool or in a graph.
        device: on which the memory is, C.
    """
    of_range = {"range_kind": kind, "range_nbytes": nbytes, "undo": undo, "ordered": ordered, "range_device": device}
    return Param(name, Role.OUT, "CUdeviceptr *", scalar=DEVICEPTR, **of_range)  # type: ignore[arg-type]


def out_handle(
    name: str, kind: Kind, *, parent: str = "", make: str = "", made: str = "", **keep: str
) -> Param:  # fmt: skip
    """A new object. The client chooses its id, so that creating needs no answer.

    Args:
        parent: the parameter whose object it dies with, where that is not the kind's context.
        make: C that makes the client's object, if clearing it is not enough.
        made: C statement in the client, after the worker has created the object.
        keep: members of the client's object and what they are set to, as `flags="Flags"`.
    """
    return Param(
        name, Role.OUT_HANDLE, f"{kind.c} *", kind=kind, parent=parent, make=make, made=made, keep=tuple(keep.items())
    )  # fmt: skip


def found(name: str, kind: Kind) -> Param:
    """A result that is an existing object."""
    return Param(name, Role.FOUND, f"{kind.c} *", kind=kind)


def count(name: str, scalar: Scalar) -> Param:
    """The capacity of the arrays of this `size`, in elements; when the call returns, their number of elements."""
    return Param(name, Role.COUNT, f"{scalar.c} *", scalar=scalar)


def handles_in(name: str, kind: Kind, size: str, cap: int = ARRAY_CAP) -> Param:
    return Param(name, Role.HANDLES_IN, f"const {kind.c} *", kind=kind, size=size, cap=cap)


def handles_out(name: str, kind: Kind, size: str, cap: int = ARRAY_CAP) -> Param:
    return Param(name, Role.HANDLES_OUT, f"{kind.c} *", kind=kind, size=size, cap=cap, optional=True)


def array_in(name: str, c: str, size: str, cap: int = ARRAY_CAP, members: tuple[Member, ...] = ()) -> Param:
    return Param(name, Role.ARRAY_IN, f"const {c} *", element=c, size=size, cap=cap, members=members)


def array_out(name: str, c: str, size: str, cap: int = ARRAY_CAP) -> Param:
    return Param(name, Role.ARRAY_OUT, f"{c} *", element=c, size=size, cap=cap, optional=True)


def bytes_in(name: str, size: str, cap: int = PIECE_NBYTES, *, data: bool = False) -> Param:
    return Param(name, Role.BYTES_IN, "const void *", size=size, cap=cap, data=data)


def bytes_out(name: str, size: str, cap: int = PIECE_NBYTES) -> Param:
    return Param(name, Role.BYTES_OUT, "void *", size=size, cap=cap)


def text_in(name: str, cap: int = 65536) -> Param:
    return Param(name, Role.TEXT_IN, "const char *", cap=cap)


def struct_in(name: str, c: str, *members: Member) -> Param:
    return Param(name, Role.STRUCT_IN, f"const {c} *", element=c, members=members)


def struct_value(name: str, c: str) -> Param:
    """A struct that is passed to the driver's function unchanged."""
    return Param(name, Role.STRUCT_VALUE, c, element=c)


def struct_out(name: str, c: str) -> Param:
    return Param(name, Role.STRUCT_OUT, f"{c} *", element=c)


def word_in(name: str, wide: str) -> Param:
    """The target of a void *: 64 bits if `wide` (a C condition) holds, else an int."""
    return Param(name, Role.WORD_IN, "void *", scalar=U64, wide=wide)


def word_out(name: str, wide: str) -> Param:
    return Param(name, Role.WORD_OUT, "void *", scalar=U64, wide=wide)


def device_at(path: str) -> Member:
    """A struct's member that is a device."""
    return Member(path, device=True)


def handle_at(path: str, kind: Kind, *, optional: bool = True) -> Member:
    return Member(path, kind=kind, optional=optional)


def fixed_at(path: str, value: str = "0") -> Member:
    """A struct's member that is replaced by this value (C) before the driver sees it: a pointer of the client becomes
    NULL, for instance.
    """
    return Member(path, fixed=value)


def sent(param: Param, c: str) -> Param:
    """The value that is sent for a parameter that the program does not pass itself (with wire=)."""
    return replace(param, sent=c)


def struct(c: str, **members: str) -> str:
    """C for a struct that is passed to the driver's function."""
    return f"&({c}){{{', '.join(f'.{name} = {value}' for name, value in members.items()) or '0'}}}"


def ptr(name: str, c: str = "void *") -> Param:
    """A pointer into the program's memory that only the client follows."""
    return Param(name, Role.POINTER, c)


def fn(
    name: str,
    args: list[Param],
    travel: Travel = LOCAL,
    *,
    doc: str,
    need: Need = Need.CONTEXT,
    wire: list[Param] | None = None,
    guest: str = "",
    host: str = "",
    backend: bool = True,
    blocks: bool = False,
    leaves_work: bool | None = None,
    channel: Channel = Channel.ANY,
    turn: Turn = Turn.IN_TURN,
    descriptor: bool = False,
    pieces: str = "",
    in_place: bool = False,
    awaited: bool = False,
    submits: bool = False,
    alone: bool = False,
    ordered_by_all: bool = False,
    unsafe: bool = False,
    refuses: dict[str, str] | None = None,
    answers: dict[str, str] | None = None,
    checks: list[str] | None = None,
    client_before: str = "",
    client_after: str = "",
    client_failed: str = "",
    asked: str = "",
    waits: str = "",
    forms: list[str] | None = None,
    calls: str = "",
    given: list[str] | None = None,
    worker: str = "",
    violations: dict[str, str] | None = None,
    worker_answers: dict[str, str] | None = None,
    worker_before: str = "",
    worker_checks: list[str] | None = None,
    worker_after: str = "",
    worker_done: str = "",
    look_up: bool = False,
    stacked: bool = False,
    observed: bool = True,
    simulator: bool = True,
    since: int = 0,
    aliases: list[str] | None = None,
    group: str = "",
) -> None:
    """Register one function.

    Args:
        wire: what travels, if not `args`: parameters of the same name, others by `sent`, or results, which this
            entry's C names `x_told`.
        guest: "custom" when `vgs_NAME` is hand-written; local functions always are.
        host: "custom" when `vgx_NAME` is hand-written; the channel's own are, unless they have calls= or worker=.
        asked: as in the model; the object of a handle x is looked up only if this C names `x_id` or `x_object`.
        forms: names of functions without the stream parameter, which use the default stream and are complete for the
            host when they return; for them `sync` is true in this entry's C.
        backend: False when the backend has no function of this name.
        refuses: C conditions under which the client answers with an error, as {"size % 4": INVALID_VALUE}.
        answers: likewise, conditions under which the client knows the result without the worker; may contain a C call.
        aliases: other exported names with the same signature and meaning (unsuffixed or older ABI versions).

    For the other arguments see model.Function.
    """
    if any(f.name == name for f in functions):
        raise SpecError(f"{name}: described twice")
    cuda = name.startswith("cu")
    travels = travel is not LOCAL
    entry = Function(
        name,
        args,
        travel,
        need,
        doc,
        wire,
        guest_custom=guest == "custom" or not (travels or asked or any(p.role is Role.KEPT for p in args)),
        host_custom=travels and (host == "custom" or (not cuda and not calls and not worker)),
        backend=backend and cuda and travels,
        blocks=blocks,
        leaves_work=leaves_work,
        channel=channel,
        turn=turn,
        descriptor=descriptor,
        pieces=pieces,
        in_place=in_place,
        awaited=awaited,
        submits=submits,
        alone=alone,
        ordered_by_all=ordered_by_all,
        unsafe=unsafe,
        answers=tuple(((refuses or {}) | (answers or {})).items()),
        checks=tuple(checks or ()),
        client_before=client_before,
        client_after=client_after,
        client_failed=client_failed,
        asked=asked,
        waits=waits,
        forms=tuple(forms or ()),
        calls=calls,
        given=tuple(given or ()),
        worker=worker,
        violations=tuple((violations or {}).items()),
        worker_answers=tuple((worker_answers or {}).items()),
        worker_before=worker_before,
        worker_checks=tuple(worker_checks or ()),
        worker_after=worker_after,
        worker_done=worker_done,
        look_up=look_up,
        stacked=stacked,
        observed=observed,
        simulator=simulator,
        since=since,
        exported=cuda,
        aliases=aliases or [],
        group=group,
        module=_module,
    )
    entry.check()
    if group and (group not in GROUPS or not travels):
        raise SpecError(f"{name}: its group is one of GROUPS, and a call of a group travels")
    functions.append(entry)
    for form in entry.forms:
        in_stream = entry.stream_param()
        functions.append(
            Function(
                form,
                [p for p in args if p is not in_stream],
                LOCAL,
                need,
                f"{name} in the default stream, complete for the host on return.",
                backend=False,
                form_of=name,
                module=_module,
            )
        )


def host_only(name: str, args: list[Param], doc: str, *, simulator: bool = True) -> None:
    """A driver function that the executor itself calls: a member of the backend table, no message, no export."""
    entry = Function(
        name, args, LOCAL, NOTHING, doc, guest_custom=True, backend=True, exported=False, module=_module,
        simulator=simulator,
    )  # fmt: skip
    entry.check()
    host_functions.append(entry)


def own_export(name: str) -> None:
    """Export a function of vgpu that no driver has; its prototype is in a header."""
    own_exports.append(name)
