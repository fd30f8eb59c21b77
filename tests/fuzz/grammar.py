"""What the search in one process (in_process.py) knows of each record: a table in C, written from the description."""

from __future__ import annotations

import re
from pathlib import Path

from vgpud._gen.api import RECORDS, Record

from tests.fuzz.opening import KERNEL, KINDS, POOL, POOLED, WITH_DESCRIPTOR, opening
from tests.fuzz.stream import BY_NAME, FORMATS

GEN = Path(__file__).resolve().parents[2] / "build/gen"
# Left out: they wait for a client's answer or for memory that nobody writes. tests/fuzz/executor.py sends them to a
# worker that may be killed. Calls that end nearly everything are not left out but rare (RARE).
WAITING = ("vgpuNextCallback", "vgpuRing", "StreamWaitValue", "BatchMemOp")
LEFT_OUT = {name for name in BY_NAME if any(word in name for word in WAITING)}
LEFT_OUT -= {"vgpuRingFence", "cuGraphBatchMemOpNodeGetParams"}
ENDINGS = ("Destroy", "Unload", "Release", "Drop", "vgpuStreamFlag")  # the last ends a session without pinned memory
RARE = ("Reset", "PrimaryCtxRelease", "CtxCreate", "HostNode", "GetDefaultMemPool")
RARE += ("MapAt", "Callback", "vgpuRingFence")
# The first copies memory: at the others' rate it takes a quarter of the time. The others end most sessions.
SELDOM = ("MemExportToShareable", "vgpuTensorMap", "vgpuImageWrite", "vgpuHostReserve")
PAGED = WITH_DESCRIPTOR | {"vgpuHostMapAt", "vgpuHostReserve"}
ATTRIBUTES = {"attrs"}  # parts that are arrays of CUlaunchAttribute
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
        "/* Generated from the description by tests/fuzz/grammar.py; do not edit. */",
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
