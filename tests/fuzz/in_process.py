"""Hostile records for the executor and the simulator in one process; new code that they execute guides the search.

`python -m tests.fuzz.in_process SECONDS [--records N] [--jobs N] [--sanitize WHICH] [--seed N] [--replay FILE]`
(`make fuzz-records`).
`--stalls N` lets threads sleep at random places, which shows what depends on their order without a busy machine.
`--floor` measures instead which lines of the executor are executed, and compares them with floor.tsv (`make
fuzz-floor`); `--faults N` makes one call at a time fail, in N different streams of records (`make faults`).
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from vgpud._gen.api import RECORDS, Record

from tests.fuzz import evidence, recordings
from tests.fuzz.lines import Lines, executed_lines, percent, read_floor
from tests.fuzz.stream import BY_NAME, FORMATS, HEADER, WANT_REPLY
from tests.races.build import LAYOUT, SESSIONS

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "shim"))

from native import GEN, Toolchain, is_older  # noqa: E402

HERE = Path(__file__).parent
IMAGE = b"vgt"  # image of vgt_kernels.c; its kernels write to any address given as parameter, but KERNEL has none
KERNEL = b"count_up"
OTHER_KERNEL = b"ignore"  # has two parameters, and uses none
PARAMETERS = bytes(16)
STEPS = 256  # records in a fresh input
INCLUDES = [ROOT / name for name in ("daemon/executor", "daemon/vgpusim/device", "protocol/c", "build/gen")]
# Left out: they wait for a client's answer or for memory that nobody writes. tests/fuzz/executor.py sends them to a
# worker that may be killed. Calls that end nearly everything are not left out but rare (RARE).
WAITING = ("vgpuNextCallback", "vgpuRing", "StreamWaitValue", "BatchMemOp")
LEFT_OUT = {name for name in BY_NAME if any(word in name for word in WAITING)}
LEFT_OUT -= {"vgpuRingFence", "cuGraphBatchMemOpNodeGetParams"}
# Kinds of handles. The opening makes POOL objects of each kind in POOLED, with ids from 1; objects of the kinds in
# OTHERS are used only on the channel that made them.
POOL = 6
HAS_FD = 2
AWAITED = (
    8  # the first records of the opening: the context, memory whose addresses are needed, pinned memory, the image
)
PAGE = 4096
POOLED = ("STREAM", "EVENT", "MODULE", "LIBRARY", "FUNCTION", "KERNEL", "MEMPOOL", "GRAPH")
POOLED += ("GRAPH_EXEC", "GRAPH_NODE", "ARRAY", "MIPMAP", "IPC_EVENT", "ALLOCATION", "CONTEXT")
OTHERS = ("TEXREF", "SURFREF", "GREEN", "RESOURCE_DESC", "IMAGE")
KINDS = {name: number for number, name in enumerate((*POOLED, *OTHERS), 1)}
ENDINGS = ("Destroy", "Unload", "Release", "Drop", "vgpuStreamFlag")  # the last ends a session without pinned memory
RARE = ("Reset", "PrimaryCtxRelease", "CtxCreate", "HostNode", "GetDefaultMemPool")
RARE += ("MapAt", "Callback", "vgpuRingFence")
# The first copies memory: at the others' rate it takes a quarter of the time. The others end most sessions.
SELDOM = ("MemExportToShareable", "vgpuTensorMap", "vgpuImageWrite", "vgpuHostReserve")
WITH_DESCRIPTOR = {"vgpuHostMap", "vgpuHostMapFile", "vgpuDeviceFile"}
PAGED = WITH_DESCRIPTOR | {"vgpuHostMapAt", "vgpuHostReserve"}
ATTRIBUTES = {"attrs"}  # parts that are arrays of CUlaunchAttribute
KIND_FUNCTION, KIND_KERNEL = 6, 7  # VGW_KIND_*
FLOAT, SURFACE_LDST = 0x20, 2  # CU_AD_FORMAT_FLOAT, CUDA_ARRAY3D_SURFACE_LDST
CONDITIONS = 2  # conditional handles that the opening makes and reads, for the first graphs
MORE_CONDITIONS = 13  # of the last graph, so that a few more fill the session's table
SHORT, VERY_SHORT = 4096, 255  # a reply part of at most SHORT elements is marked VERY_SHORT in the grammar


def special(record: Record, field: str) -> str | None:
    """The meaning of a number where the description has none; None: no special meaning."""
    if record.name.startswith("vgpuHost") or record.name.startswith("vgpuMemcpyPinned"):
        pinned = {"vgpuMemcpyPinnedToDevice": "src", "vgpuMemcpyPinnedToHost": "dst"}.get(record.name, "address")
        if field == pinned:
            return "VGT_WINDOW"
        if field in ("nbytes", "offset") and record.name in PAGED:
            return "VGT_PAGES"
        if field == "read_only":
            return "VGT_SMALL"
    if record.name == "vgpuHostChanges" and field in ("begin", "capacity"):
        return {"begin": "VGT_BOOL", "capacity": "VGT_PAGES"}[field]
    if record.name in ("vgpuImageWrite", "vgpuImageOffer", "vgpuImageDrop", "vgpuImageRead") and field == "image":
        return {"vgpuImageWrite": "VGT_IMAGE", "vgpuImageOffer": "VGT_CREATES"}.get(record.name, "VGT_HANDLE")
    if record.name == "vgpuLink":
        return "VGT_CREATES" if field == "result" else "VGT_ONE"
    if record.name == "vgpuGraphAddConditional" and field in ("condition", "node"):
        return {"condition": "VGT_CONDITION", "node": "VGT_CREATES"}[field]
    if record.name == "vgpuImageWrite" and field == "total":
        return "VGT_LENGTH"
    if record.name == "vgpuTensorMap" and field == "form":
        return "VGT_FORM"
    if record.name == "vgpuLibraryManaged" and field == "address":
        return "VGT_RESERVED"
    if record.name == "vgpuStreamFlag" and field == "address":
        return "VGT_RESERVED"
    if record.name == "vgpuRingFence":
        return {"executed": "VGT_SMALL", "ring": "VGT_DEVICE"}[field]
    if field == "callback":  # a host function's number: the harness calls it as a client would
        return "VGT_MARKED" if record.name.startswith("cuGraph") else "VGT_SMALL"
    whole = {"height": "VGT_ONE", "depth": "VGT_ONE", "width": "VGT_LENGTH"}
    if ("2DTo" in record.name or record.name in ("vgpuArrayWrite", "vgpuArrayRead")) and field in whole:
        return whole[field]
    if record.name == "vgpuKernelName" and field in ("kind", "object"):
        return "VGT_CONTAINER_KIND" if field == "kind" else "VGT_KERNEL"
    if record.name == "cuTexObjectCreate" and field in ("array", "viewed"):
        return "VGT_HANDLE" if field == "array" else "VGT_BOOL"
    if record.name == "vgpuTensorMap" and field in ("nbytes", "map_nbytes"):
        return "VGT_LENGTH" if field == "nbytes" else "VGT_TENSOR_MAP_NBYTES"
    if record.name == "vgpuImageOffer" and field == "total":
        return "VGT_OFFERED"
    return "VGT_ZERO" if record.name == "vgpuImageWrite" and field == "offset" else None


def meaning(record: Record, field: str) -> str:
    [kind] = [kind for kind, name in record.request if name == field]
    if (known := special(record, field)) is not None:
        return known
    what, _ = record.meanings.get(field, ("", ""))
    known = {
        "length": "VGT_LENGTH",
        "creates": "VGT_CREATES",
        "uses": "VGT_HANDLE",
        "destroys": "VGT_HANDLE",
        "device": "VGT_DEVICE",
        "kernel kind": "VGT_KERNEL_KIND",
        "kernel": "VGT_KERNEL",
    }.get(what)
    if known is not None:
        return known
    if kind not in FORMATS:
        return "VGT_FIELD_BYTES"
    if "Dim" in field:
        return "VGT_SMALL"
    return "VGT_ADDRESS" if kind == "uint64_t" else "VGT_NUMBER"


def detail(record: Record, field: str) -> int:
    """`of` in struct vgt_field: the kind of a handle, or the number of the part, from 1, whose length the field holds;
    0 or VERY_SHORT: a part of the reply."""
    _, of = record.meanings.get(field, ("", ""))
    means = meaning(record, field)
    if means == "VGT_LENGTH":
        fields = [field, "nbytes"]  # a length that belongs to no part equals `nbytes`
        found = next((n for name in fields for n, part in enumerate(record.parts, 1) if part[3] == name), 0)
        is_short = any(part[3] == field and part[2] <= SHORT for part in record.reply_parts)
        return found or (VERY_SHORT if is_short else 0)
    if means == "VGT_CREATES" and not record.simulator:
        return 0  # the simulator creates no object
    if record.name == "vgpuLink" or (field == "image" and means in ("VGT_CREATES", "VGT_HANDLE", "VGT_IMAGE")):
        return KINDS["IMAGE"]
    if record.name == "vgpuGraphAddConditional" and field == "node":
        return KINDS["GRAPH_NODE"]
    if record.name == "cuTexObjectCreate" and field == "array":
        return KINDS["ARRAY"]
    return KINDS.get(of, 0) if means in ("VGT_CREATES", "VGT_HANDLE") else 0


def part_row(record: Record, number: int) -> str:
    """A row of struct vgt_part: bytes of an element, most elements, content, and the index of the earlier part with the
    same number of elements, or its own."""
    name, of, most, length = record.parts[number]
    same = next((n for n in range(number) if record.parts[n][3] == length), number)
    nbytes = {"GRAPH_NODE": "4", "bytes": "1", "text": "1"}.get(of, f"sizeof({of})")
    what = {"GRAPH_NODE": "VGT_PART_NODES", "text": "VGT_PART_NAME"}.get(of, "VGT_PART_BYTES")
    what = "VGT_PART_ROWS" if record.name in ("vgpuMemcpy2DToDevice", "vgpuArrayWrite") else what
    what = "VGT_PART_GRAPHS" if name == "bodies" else what
    what = "VGT_PART_PAGES" if record.name == "vgpuHostChanges" else what
    what = "VGT_PART_ATTRIBUTES" if name in ATTRIBUTES else "VGT_PART_WHOLE" if name == "arguments" else what
    most = "sizeof(struct vgw_tensor_map)" if name == "arguments" else most
    return f"    {{{nbytes}, {most}, {what}, {same}}},"


KERNEL_NODE = dict.fromkeys(("gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ"), 1)
POOL_PROPS = struct.pack("<iiiiQQ56x", 1, 1, 1, 0, 0, 0)  # pinned memory of device 0; can be exported
ACCESS = struct.pack("<iii", 1, 0, 3)  # device 0 reads and writes
WRITE = struct.pack("<IIQQIIQ8x", 2, 0, 0, 0, 0, 0, 0)  # of a word; never executed, as its address is 0
HALF_COPY = 0xE0000001  # the number of a client's function that copies pageable memory in a graph (vgw_wire.h)
# Graph number to the name, fields and last part of the record that adds its node; without one: an empty node.
NODES: dict[int, tuple[str, dict[str, int | bytes], bytes]] = {
    1: ("cuGraphAddHostNode", {"callback": HALF_COPY}, b""),
    2: ("cuGraphAddMemAllocNode", {"bytesize": 4096, "accessDescCount": 1, "poolProps": POOL_PROPS}, ACCESS),
    3: ("cuGraphAddBatchMemOpNode", {"ctx": 1, "count": 1}, WRITE),
    4: ("cuGraphAddChildGraphNode", {"childGraph": 1}, b""),
    5: ("cuGraphAddKernelNode_v2", {**KERNEL_NODE, "kind": KIND_KERNEL, "object": 1}, b""),
    6: (
        "cuGraphAddKernelNode_v2",
        {**KERNEL_NODE, "kind": KIND_FUNCTION, "object": POOL, "params_nbytes": len(PARAMETERS)},
        PARAMETERS,
    ),
}


def encode_structs(name: str, sequence: int, fields: dict[str, int | bytes], tail: bytes = b"") -> bytes:
    """As tests.fuzz.stream.encode, of records with structs, which are given as bytes."""
    record = BY_NAME[name]
    values = [fields.get(field, 0) for _, field in record.request]
    body = b"".join(
        value if isinstance(value, bytes) else struct.pack("<" + FORMATS[kind], value)
        for value, (kind, _) in zip(values, record.request, strict=True)
    )
    body += bytes(-len(body) % 8) + tail + bytes(-len(tail) % 8)
    return HEADER.pack(HEADER.size + len(body), record.opcode, 0, sequence, int(sequence > 1)) + body


def make_array(number: int, sequence: int) -> bytes:
    """A record that creates an array of eight by eight floats for textures and surfaces."""
    record = BY_NAME["cuArray3DCreate_v2"]
    body = struct.pack("<QQQIIIIII", 8, 8, 0, FLOAT, 1, SURFACE_LDST, 0, number, 0)
    return HEADER.pack(HEADER.size + len(body), record.opcode, 0, sequence, 1) + body


def make_mipmap(number: int, sequence: int) -> bytes:
    """A record that creates a mipmapped array of two levels."""
    record = BY_NAME["cuMipmappedArrayCreate"]
    body = struct.pack("<QQQIIIIII", 8, 8, 0, FLOAT, 1, SURFACE_LDST, 0, number, 2)
    return HEADER.pack(HEADER.size + len(body), record.opcode, 0, sequence, 1) + body


def make_allocation(number: int, sequence: int) -> bytes:
    """A record that creates physical memory which can be exported."""
    record = BY_NAME["cuMemCreate"]
    prop = struct.pack("<iiiiQQ", 1, 1, 1, 0, 0, 0)  # pinned, by descriptor, on device 0
    values = {"size": struct.pack("<Q", 2 << 20), "flags": bytes(8), "prop": prop, "handle": struct.pack("<I", number)}
    body = b"".join(values[field] for _, field in record.request)
    body += bytes(-len(body) % 8)
    return HEADER.pack(HEADER.size + len(body), record.opcode, 0, sequence, 1) + body


def add_node(number: int) -> tuple[str, dict[str, int | bytes], bytes]:
    name, fields, tail = NODES[number]
    return name, {"phGraphNode": number, "hGraph": number, **fields}, tail


MAKERS = (make_array, make_mipmap, make_allocation)


def opening() -> bytes:
    """The first records of a session: they create a context, memory, and POOL objects of each kind in POOLED."""
    image: dict[str, int | bytes] = {"image": 1, "total": len(IMAGE), "offset": 0, "nbytes": len(IMAGE)}
    calls: list[tuple[str, dict[str, int | bytes], bytes]] = [
        ("cuDevicePrimaryCtxRetain", {"pctx": 1, "dev": 0}, b""),
        *(("cuMemAlloc_v2", {"bytesize": nbytes}, b"") for nbytes in (64, 1 << 16, 1 << 21)),
        ("cuMemPoolCreate", {"poolProps": POOL_PROPS, "pool": POOL}, b""),
        ("cuMemAllocFromPoolAsync", {"bytesize": 4096, "pool": POOL}, b""),
        ("vgpuHostMap", {"address": 0, "nbytes": 4 * PAGE}, b""),
        ("vgpuHostReserve", {"address": 0, "nbytes": 2 * PAGE}, b""),
        ("vgpuImageWrite", image, IMAGE),
        ("cuModuleLoadData", {"module": 1, "image": 1}, b""),
        ("cuModuleGetFunction", {"hfunc": 1, "hmod": 1, "name_nbytes": len(KERNEL)}, KERNEL),
        ("cuLibraryLoadData", {"library": 1, "image": 1}, b""),
        ("cuLibraryGetKernel", {"pKernel": 1, "library": 1, "name_nbytes": len(KERNEL)}, KERNEL),
        ("cuStreamCreateWithPriority", {"phStream": 1, "flags": 1}, b""),
        ("cuEventCreate", {"phEvent": 1}, b""),
        ("vgpuIpcEventCreate", {"event": 1}, b""),
        ("cuDeviceGetDefaultMemPool", {"pool_out": 1}, b""),
        ("cuGraphCreate", {"phGraph": 1}, b""),
        add_node(1),
        ("cuGraphInstantiateWithFlags", {"phGraphExec": 1, "hGraph": 1}, b""),
    ]
    data = b""
    for number in range(2, POOL + 1):
        kernel = OTHER_KERNEL if number == POOL else KERNEL
        if number < POOL:
            calls.append(("cuDeviceGetDefaultMemPool", {"pool_out": number}, b""))
        calls += [
            ("cuModuleLoadData", {"module": number, "image": 1}, b""),
            ("cuModuleGetFunction", {"hfunc": number, "hmod": number, "name_nbytes": len(kernel)}, kernel),
            ("cuLibraryLoadData", {"library": number, "image": 1}, b""),
            ("cuLibraryGetKernel", {"pKernel": number, "library": number, "name_nbytes": len(KERNEL)}, KERNEL),
            ("cuStreamCreateWithPriority", {"phStream": number, "flags": number % 2}, b""),
            ("cuEventCreate", {"phEvent": number}, b""),
            ("vgpuIpcEventCreate", {"event": number}, b""),
            ("cuGraphCreate", {"phGraph": number}, b""),
            add_node(number),
            ("cuGraphInstantiateWithFlags", {"phGraphExec": number, "hGraph": number}, b""),
        ]
    calls += [
        ("cuGraphConditionalHandleCreate", {"hGraph": graph, "ctx": 1}, b"")
        for graph in [POOL] * MORE_CONDITIONS + [*range(1, CONDITIONS + 1)]
    ]
    # Only the first ones and the last are waited for: a switch of threads for each would take most of a session's time.
    for sequence, (name, fields, tail) in enumerate(calls, 1):
        if sequence == len(calls):
            data += b"".join(make(n, n) for n in range(1, POOL + 1) for make in MAKERS)
        record = bytearray(encode_structs(name, sequence, fields, tail))
        waits = BY_NAME[name].waits and (sequence <= AWAITED or sequence > len(calls) - CONDITIONS)
        record[6:8] = struct.pack("<H", (WANT_REPLY if waits else 0) | (HAS_FD if name in WITH_DESCRIPTOR else 0))
        data += bytes(record)
    assert BY_NAME[calls[-1][0]].waits
    return data


def only_on_socket() -> set[str]:
    """Names of the records that no ring may have."""
    text = (GEN / "vgx_dispatch.c").read_text()
    return set(re.findall(r'\{"(\w+)", dispatch_\w+, [^,]*VGX_NOT_IN_RING', text))


def write_grammar(path: Path) -> None:
    fields: list[str] = []
    parts: list[str] = []
    records = []
    made = {kind for record in RECORDS for what, kind in record.meanings.values() if what == "creates"} | {"IMAGE"}
    assert made >= set(KINDS), set(KINDS) - made
    on_socket = only_on_socket()
    assert on_socket >= WITH_DESCRIPTOR
    for record in RECORDS:
        unmade = {kind for what, kind in record.meanings.values() if what in ("uses", "destroys")} - set(KINDS)
        if record.name in LEFT_OUT or unmade:
            continue
        rare = 4 if any(word in record.name for word in RARE) else 0
        rare = 100 if not rare and any(word in record.name for word in ENDINGS) else rare
        rare = 25 if any(word in record.name for word in SELDOM) else rare
        flags = [record.waits, record.needs_context, record.name in on_socket, record.name in WITH_DESCRIPTOR]
        records.append(
            f'    {{"{record.name}", {record.opcode}, {len(fields)}, {len(record.request)}, {len(parts)}, '
            f"{len(record.parts)}, {rare}, {', '.join(str(int(flag)) for flag in flags)}}},"
        )
        for _, name in record.request:
            nbytes = f"sizeof ((struct vgw_req_{record.name} *)0)->{name}"
            fields.append(f"    {{{nbytes}, {meaning(record, name)}, {detail(record, name)}}},")
        parts += [part_row(record, number) for number in range(len(record.parts))]
    lines = [
        "/* Generated from the description by tests/fuzz/in_process.py; do not edit. */",
        f"enum {{ VGT_RECORDS = {len(records)}, VGT_POOL = {POOL}, VGT_POOLED = {len(POOLED)} }};",
        f"enum {{ VGT_KIND_STREAM = {KINDS['STREAM']}, VGT_KIND_CONTEXT = {KINDS['CONTEXT']}, "
        f"VGT_KIND_EVENT = {KINDS['EVENT']} }};",
        f"enum {{ VGT_KIND_GRAPH_NODE = {KINDS['GRAPH_NODE']}, VGT_KIND_GRAPH = {KINDS['GRAPH']} }};",
        f"enum {{ VGT_KINDS = {len(KINDS) + 1} }};",
        f'static const char vgt_kernel_name[] = "{KERNEL.decode()}";',
        *("static const struct vgt_field vgt_fields[] = {", *fields, "};"),
        *("static const struct vgt_part vgt_parts[] = {", *parts, "};"),
        *("static const struct vgt_record vgt_records[] = {", *records, "};"),
        "static const uint8_t vgt_opening_records[] = {" + ",".join(map(str, opening())) + "};\n",
    ]
    text = "\n".join(lines)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def write_driver(path: Path) -> None:
    """VGT_DRIVER(name, (parameters), (arguments)) for each function of struct vgx_backend that can fail."""
    text = (GEN / "vgx_backend.h").read_text()
    lines = []
    for name, parameters in re.findall(r"^  CUresult \(\*(\w+)\)\(([^()]*)\);", text, re.MULTILINE):
        of = [] if parameters == "void" else [re.findall(r"\w+", each)[-1] for each in parameters.split(",")]
        lines.append(f"VGT_DRIVER({name}, ({' '.join(parameters.split())}), ({', '.join(of)}))\n")
    assert len(lines) > 200
    if not path.exists() or path.read_text() != "".join(lines):
        path.write_text("".join(lines))


# Whether a session's threads ended in time, the program learns from this call (vgt_fuzz_session.c).
ENDED = "-Wl,--wrap=vgx_handles_free"
SHORT_OF_MEMORY = [f"-Wl,--wrap={name}" for name in ("vgx_charge_add", "vgx_charge_map", "writev")]  # vgt_fuzz_short.c
NVML = "-Wl,--export-dynamic-symbol=nvml*"  # vgt_fuzz_nvml.c, which is loaded as a library


def build(name: str, *, sanitize: str = "", more: tuple[str, ...] = (), all_traced: bool = False) -> Path:
    """Build the program; return its path. `more`: options for the executor's files, or with all_traced for the
    simulator's, too. Raises subprocess.CalledProcessError."""
    toolchain = Toolchain.from_environment(sanitize, whole_program=False)
    # With so much instrumentation the compiler wrongly warns of uninitialised variables.
    layout = (*LAYOUT, *SESSIONS) if "thread" in sanitize else ()
    toolchain = replace(toolchain, cflags=(*toolchain.cflags, "-Wno-maybe-uninitialized", *layout))
    folder = toolchain.objects(name)
    write_grammar(folder / "vgt_grammar.h")
    write_driver(folder / "vgt_driver.h")
    includes = [*INCLUDES, folder, HERE / "c"]
    executor = [*sorted((ROOT / "daemon/executor").glob("*.c")), *sorted(GEN.glob("vgx_*.c"))]
    others = [*sorted((ROOT / "daemon/vgpusim/device").glob("*.c")), ROOT / "tests/vgpusim/device/vgt_kernels.c"]
    traced = replace(toolchain, cflags=(*toolchain.cflags, *(flag for flag in more if not flag.startswith("-Wl"))))
    if all_traced:
        executor, others = [*executor, *others], []
    objects = [*traced.compile(executor, folder, includes).values()]
    defined = replace(toolchain, cflags=(*toolchain.cflags, *(flag for flag in more if flag.startswith("-D"))))
    objects += defined.compile([*others, *sorted((HERE / "c").glob("*.c"))], folder, includes).values()
    target = folder / "vgt_fuzz"
    if is_older(target, objects):
        flags = [
            *toolchain.cflags,
            ENDED,
            *SHORT_OF_MEMORY,
            NVML,
            *(flag for flag in more if flag == "--coverage" or flag.startswith("-Wl")),
        ]
        subprocess.run([*toolchain.compiler, *flags, *map(str, objects), "-ldl", "-lm", "-o", str(target)], check=True)
    return target


WRAPPED = ["malloc", "calloc", "realloc", "mmap", "memfd_create", "pthread_create", "sendmsg", "fallocate", "mprotect"]
FAILING = [*WRAPPED, "driver"]  # the last: all functions of the driver's table together

FAULTS = ("-DVGT_FAULTS", *(f"-Wl,--wrap={name}" for name in WRAPPED))


def faults(streams: int, most: int = 1 << 20) -> tuple[int, int]:
    """In `streams` streams of records, make each call to a function of FAILING fail, one at a time, each in a session
    of its own; at most about `most` calls of each function, spread over the stream.

    Returns how many calls failed, and in how many of their sessions descriptors were counted. Raises RuntimeError, with
    the command to repeat it, when a session's process fails, or when the executor leaves memory that nothing points to,
    or descriptors. These are not counted where a thread still waits in the simulator for what will not happen, when a
    worker would exit: a word that no other stream has written, because the rings' records had another order.
    """
    tried, counted = fail_calls(build("faults", sanitize="address,undefined", more=FAULTS), streams, most)
    print(f"{streams} streams, {tried} calls failed one at a time, no session ended by a signal")
    print(f"{counted} of them ended in time, with no descriptor left open")
    return tried, counted


def fail_calls(program: Path, streams: int, most: int) -> tuple[int, int]:
    """As faults(), with a program that was built with FAULTS."""

    def session(seed: int, fault: str) -> dict[str, int]:
        command = [program, "0", str(seed), str(STEPS), "/dev/null", "--fixed"]
        environment = os.environ | LEAKS | {"VGPU_FAULTS": fault}
        # longer than END_MS of vgt_fuzz_session.c, after which the session ends itself
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"VGPU_FAULTS={fault} {' '.join(map(str, command))}: {done.returncode}\n{done.stderr}")
        words = done.stdout.split()
        return {key: int(value) for key, value in zip(words[::2], words[1::2], strict=True)}

    tried = counted = 0
    for seed in range(1, streams + 1):
        counts = session(seed, "none:0")
        for name in FAILING:
            for number in range(1, counts[name] + 1, 1 + counts[name] // most):
                found = session(seed, f"{name}:{number}")
                if found["descriptors"] > 0:
                    raise RuntimeError(
                        f"VGPU_FAULTS={name}:{number}, seed {seed}: {found['descriptors']} descriptors are left open"
                    )
                tried += 1
                counted += not found["late"]
    return tried, counted


OPTIONS = {
    # What is freed is kept from being used again for some hundred sessions; fewer pages are touched for the first time.
    "ASAN_OPTIONS": "detect_leaks=0:handle_segv=0:handle_sigbus=0:allow_user_segv_handler=1:abort_on_error=1"
    ":quarantine_size_mb=32",
    "TSAN_OPTIONS": "halt_on_error=1:abort_on_error=1:handle_segv=0:handle_sigbus=0:history_size=4:"
    f"atexit_sleep_ms=0:suppressions={ROOT}/tests/races/suppressions.txt",
}

LEAKS = OPTIONS | {
    "ASAN_OPTIONS": OPTIONS["ASAN_OPTIONS"].replace("detect_leaks=0", "detect_leaks=1"),
    "LSAN_OPTIONS": f"print_suppressions=0:suppressions={HERE}/leaks.txt",
}


def run(
    program: Path,
    seconds: float,
    seed: int,
    more: str | None = None,
    processor: int | None = None,
    out: Path | None = None,
) -> tuple[int, dict[str, int]]:
    """Run the program, `more` being a file to replay or --records=N, on `processor` or on all of them; return its exit
    status and its counts. A batch that failed leaves its inputs and a report in the program's folder, or in `out`; that
    has the counts after each batch, too."""
    crash = (out or program.parent) / f"crash-{seed}.bin"
    environment = os.environ | OPTIONS
    if out:
        environment |= evidence.sanitizer_options(OPTIONS, crash) | {"VGT_COUNTS": str(out / f"counts-{seed}.txt")}
    # ThreadSanitizer's own addresses must be free, which random ones may not leave them.
    alone = ["setarch", "-R"] if "thread" in program.parent.name else []
    if processor is not None:
        alone += ["taskset", "-c", str(processor)]
    command = [*alone, program, str(seconds), str(seed), str(STEPS), crash, *([more] if more else [])]
    evidence.report_path(crash).unlink(missing_ok=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
    if done.returncode:
        evidence.complete(crash, program)
    words = done.stdout.split()
    print(done.stdout, end="", flush=True)
    return done.returncode, {key: int(value) for key, value in zip(words[::2], words[1::2], strict=False)}


def measure_lines(seconds: float, seed: int, streams: int = 2, most: int = 15, searches: int = 1) -> Iterator[Lines]:
    """The lines of each file that have been executed by `streams` streams in which at most about `most` calls of
    each function of WRAPPED fail, and by 1, 2, … `searches` searches. Raises RuntimeError when a session's process
    fails."""
    traced = ("--coverage", "-fprofile-update=atomic", "-O0", "-fsanitize-coverage=trace-pc")
    program = build("fuzz-lines", more=(*traced, *FAULTS))
    for left in program.parent.glob("*.gcda"):
        left.unlink()
    fail_calls(program, streams, most)
    for number in range(searches):
        status, _ = run(program, seconds, seed + number)
        if status != 0:
            raise RuntimeError(f"the search ended with status {status}: seed {seed + number}")
        yield executed_lines(program.parent)


def measure(seconds: float, seed: int, searches: int = 1) -> Iterator[dict[str, int]]:
    """measure_lines in percent."""
    yield from map(percent, measure_lines(seconds, seed, searches=searches))


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzz.in_process")
    parser.add_argument("seconds", type=float, nargs="?", default=60.0)
    parser.add_argument("--sanitize", default="address,undefined", help="as in -fsanitize=; empty: none")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    parser.add_argument("--records", type=int, help="end when so many have been executed")
    parser.add_argument("--jobs", type=int, default=1, help="searches beside each other, every second on one processor")
    parser.add_argument("--out", type=Path, help="folder of the counts after each batch and of inputs that failed")
    parser.add_argument("--go-on", action="store_true", help="after a failure, with other seeds, till the time is over")
    parser.add_argument("--replay", help="a file that a failure left")
    parser.add_argument("--recordings", type=Path, help="a folder of recorded sessions to mutate, too")
    parser.add_argument("--stalls", type=int, metavar="N", help="a thread sleeps before one of N basic blocks")
    parser.add_argument("--floor", action="store_true", help="executed lines, compared with floor.tsv")
    parser.add_argument("--faults", type=int, metavar="N", help="fail one call at a time, in N streams")
    given = parser.parse_args()
    if given.faults:
        return 0 if all(faults(given.faults)) else 1
    if given.floor:
        floor, [found] = read_floor(), measure(given.seconds, given.seed)
        for name, percent in found.items():
            print(f"{name}\t{percent}\tfloor {floor.get(name, 'none')}")
        return any(found.get(name, 0) < percent for name, percent in floor.items())
    name = "fuzz-stalls" if given.stalls else "fuzz"
    edges = ("-fsanitize-coverage=trace-pc",)
    program = build(name, sanitize=given.sanitize, more=edges, all_traced=bool(given.stalls))
    os.environ["VGT_STALL"] = str(given.stalls or 0)
    if given.jobs > 2 * len(os.sched_getaffinity(0)):
        os.environ.setdefault("VGT_POLL_US", "1000")
    if given.recordings:
        seeds = program.parent / "seeds.bin"
        files = sorted(given.recordings.rglob("*.vgpurec"))
        count = recordings.write_inputs(seeds, files, only_on_socket(), LEFT_OUT)
        print(f"{count} inputs from {len(files)} recorded sessions")
        os.environ["VGT_SEEDS"] = str(seeds)
    most = f"--records={-(-given.records // given.jobs)}" if given.records else None
    began = time.monotonic()
    usable = sorted(os.sched_getaffinity(0))

    def search(job: int) -> tuple[int, dict[str, int]]:
        # Threads on one processor wake each other without an interrupt; on several they execute at the same time.
        processor = usable[job // 2 % len(usable)] if job % 2 else None
        worst, sums, first = 0, dict.fromkeys(("sessions", "records"), 0), given.seed + (job << 32)
        for seed in range(first, first + (1 << 32), 1 << 24):
            seconds = given.seconds - (time.monotonic() - began)
            status, counts = run(program, seconds, seed, given.replay or most, processor, given.out)
            worst, sums = worst or status, {name: sums[name] + counts.get(name, 0) for name in sums}
            if not (status and given.go_on and time.monotonic() - began < given.seconds):
                break
        return worst, sums

    with ThreadPoolExecutor(given.jobs) as pool:  # each thread waits for a process
        done = list(pool.map(search, range(given.jobs)))
    if given.jobs > 1:
        told = {name: sum(counts.get(name, 0) for _, counts in done) for name in ("sessions", "records")}
        seconds = time.monotonic() - began
        alone = sum(counts.get("records", 0) for _, counts in done[1::2])
        print(f"{alone} of the records in the {given.jobs // 2} jobs that had one processor each")
        print(f"{told['sessions']} sessions, {told['records']} records in {given.jobs} jobs, {seconds:.0f} s")
    executed = sum(counts.get("records", 0) for _, counts in done)
    return int(any(status for status, _ in done) or executed < (given.records or 0))


if __name__ == "__main__":
    sys.exit(main())
