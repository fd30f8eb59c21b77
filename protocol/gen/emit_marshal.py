"""The client's marshalling: `vgs_send_NAME`, one record each, and `vgs_begin_NAME`, serialised in place.

Handles are ids here, and the members of structs are already translated (by emit_forward).
"""

from __future__ import annotations

from protocol.gen.emit_records import (
    element_nbytes,
    part_in,
    part_nbytes,
    part_out,
    parts_out,
    reply_fields,
    request_fields,
)
from protocol.gen.load import Api
from protocol.gen.model import ARRAY_OUT_ROLES, Channel, Function, Param, Role, SpecError, Travel


def declare(p: Param) -> str:
    """One parameter of `vgs_send_NAME`: declared as in the driver's function, but handles are ids."""
    if p.role in (Role.HANDLE, Role.OUT_HANDLE):
        return f"uint32_t {p.name}"
    if p.role is Role.FUNCTION:
        return "uint32_t kind, uint32_t object"
    if p.role in (Role.FOUND, Role.HANDLES_OUT):
        return f"uint32_t *{p.name}"
    if p.role is Role.HANDLES_IN:
        return f"const uint32_t *{p.name}"
    if p.role is Role.WORD_IN:
        return f"uint64_t {p.name}"
    if p.role is Role.WORD_OUT:
        return f"uint64_t *{p.name}"
    if p.role is Role.STRUCT_VALUE:
        return f"const {p.element} *{p.name}"
    return p.declaration


def send_params(f: Function) -> str:
    out = [declare(p) for p in f.sent]
    if f.travel is Travel.QUEUED:
        out.append("bool wait")
    if f.descriptor:
        out.append("int fd")
    return ", ".join(out) or "void"


def in_place(api: Api) -> list[Function]:
    return [f for f in api.travelling() if f.in_place]


def begin_head(f: Function) -> str:
    [part] = part_in(f)
    declared = [declare(p) for p in f.sent if p is not part]
    return f"bool vgs_begin_{f.name}(struct vgs_record *record, {', '.join(declared)}, void **{part.name})"


def _is_counted(f: Function) -> bool:
    """Whether a queued function creates an object of a kind that a quota can bound. Under a quota the call waits, after
    all earlier calls of all threads: one of them may destroy an object and so make room."""
    return f.travel is Travel.QUEUED and any(p.role is Role.OUT_HANDLE and p.kind and p.kind.quota for p in f.sent)


def _touches(f: Function) -> list[str]:
    """The streams and events a call is ordered by; none: it is ordered with every call of every thread."""
    if f.ordered_by_all:
        return []
    touched = [p for p in f.sent if p.kind is not None and p.kind.name in ("STREAM", "EVENT")]
    touched = [p for p in touched if p.role in (Role.HANDLE, Role.OUT_HANDLE)]
    if not touched:
        return []
    inner = ", ".join(f"{{VGW_KIND_{p.kind.name}, {p.name}}}" for p in touched if p.kind)
    count = f"limited ? 0 : {len(touched)}" if _is_counted(f) else len(touched)
    lines = [f"      .touched_count = {count},", f"      .touched = {{{inner}}},"]
    if any(p.role is Role.OUT_HANDLE for p in touched):
        lines.append("      .creates = true,")
    return lines


def _fill_request(f: Function) -> list[str]:
    lines = [f"  struct vgw_req_{f.name} req;", "  memset(&req, 0, sizeof req);"]
    for p in f.sent:
        if p.role in (Role.STRUCT_IN, Role.STRUCT_VALUE, Role.COUNT):
            lines.append(f"  req.{p.name} = *{p.name};")
        elif p.role is Role.TEXT_IN:
            lines.append(f"  req.{p.name}_nbytes = (uint32_t){p.name}_nbytes;")
        elif p.role is Role.FUNCTION:
            lines.append("  req.kind = kind;\n  req.object = object;")
        elif p.role in (Role.VALUE, Role.HANDLE, Role.OUT_HANDLE, Role.WORD_IN):
            lines.append(f"  req.{p.name} = {p.name};")
    return lines


def begin(f: Function) -> str:
    """Serialise the fixed fields in place; returns the address of the part, after its padding."""
    [part] = part_in(f)
    [stream] = [p for p in f.sent if p.kind is not None]
    lines = [
        f"{begin_head(f)} {{",
        *_fill_request(f),
        "  enum { FIXED_NBYTES = (sizeof req + 7) & ~7 };",
        f"  uint64_t nbytes = vgw_pad8({part_nbytes(f, part, '')});",
        f"  uint8_t *at = vgs_record_begin(record, VGW_OP_{f.name}, {stream.name}, FIXED_NBYTES + nbytes);",
        "  if (!at) return false;",
        "  memset(at + FIXED_NBYTES - 8, 0, 8);",
        "  memcpy(at, &req, sizeof req);",
        "  if (nbytes) memset(at + FIXED_NBYTES + nbytes - 8, 0, 8);",
        f"  *{part.name} = at + FIXED_NBYTES;",
        "  return true;",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _arrays(f: Function) -> tuple[list[str], list[str]]:
    """For variable results that are arrays: code before the call, and code that copies them out after it."""
    arrays = [p for p in parts_out(f) if p.role in ARRAY_OUT_ROLES]
    if not arrays:
        return [], []
    counted = {p.name: p for p in f.sent if p.role is Role.COUNT}
    sizes = [f"vgw_pad8({'req.' if p.size in counted else ''}{p.size} * {element_nbytes(p)})" for p in arrays]
    before = [f"  uint64_t arrays_nbytes = {' + '.join(sizes)};"]
    before.append("  VGS_FREED char *arrays = malloc(arrays_nbytes + 1);")
    before.append("  if (!arrays) return CUDA_ERROR_OUT_OF_MEMORY;")
    after = []
    for i, p in enumerate(arrays):
        place = " + ".join(["arrays", *sizes[:i]])
        limit = f"{'req.' if p.size in counted else ''}{p.size}"
        have = f"rep.{p.size} < {limit} ? rep.{p.size} : {limit}" if p.size in counted else limit
        after.append(f"  if ({p.name}) memcpy({p.name}, {place}, ({have}) * {element_nbytes(p)});")
    return before, after


def _waits(f: Function) -> str:
    if _is_counted(f):
        return "wait || limited"
    return "wait" if f.travel is Travel.QUEUED else "true"


def _call(f: Function) -> list[str]:
    """The members of `struct vgs_call` that are the same for every piece of a call."""
    lines = [f"      .opcode = VGW_OP_{f.name},", f"      .wait = {_waits(f)},"]
    lines.append(f"      .fd = {'fd' if f.descriptor else '-1'},")
    if f.channel is not Channel.ANY:
        lines.append("      .on_socket = true,")
    lines += _touches(f)
    if f.is_settled:
        lines.append("      .settled = true,")
    return lines


def _send_pieces(f: Function) -> str:
    """A sender that splits its variable result into calls that a record can answer, up to VGS_AHEAD at once."""
    tail = part_out(f)
    if not tail or not f.is_settled or reply_fields(f) or part_in(f) or f.travel is not Travel.WAITING:
        raise SpecError(f"{f.name}: only a waiting call whose one result is bytes goes in pieces")
    lines = [
        f"CUresult vgs_send_{f.name}({send_params(f)}) {{",
        *_fill_request(f),
        f"  struct vgw_req_{f.name} requests[VGS_AHEAD];",
        "  struct vgs_call calls[VGS_AHEAD];",
        f"  for (uint64_t done = 0; done < {tail.size};) {{",
        "    uint32_t count = 0;",
        f"    for (; count < VGS_AHEAD && done < {tail.size}; count++) {{",
        f"      uint64_t piece = {tail.size} - done < {tail.cap} ? {tail.size} - done : {tail.cap};",
        "      requests[count] = req;",
        f"      requests[count].{f.pieces} += done;",
        f"      requests[count].{tail.size} = piece;",
        "      calls[count] = (struct vgs_call){",
        *(f"    {line}" for line in _call(f)),
        "          .fixed = &requests[count],\n          .fixed_nbytes = sizeof req,",
        f"          .reply_part = (char *){tail.name} + done,\n          .reply_part_capacity = piece,",
        "      };",
        "      done += piece;",
        "    }",
        "    CUresult outcome = vgs_session_call_all(calls, count);",
        "    if (outcome != CUDA_SUCCESS) return outcome;",
        "  }",
        "  return CUDA_SUCCESS;",
        "}\n",
    ]
    return "\n".join(lines)


def send(f: Function) -> str:
    if f.pieces:
        return _send_pieces(f)
    lines = [f"CUresult vgs_send_{f.name}({send_params(f)}) {{"]
    fields = request_fields(f)
    for p in f.sent:
        if p.role is Role.TEXT_IN:
            lines.append(f"  uint64_t {p.name}_nbytes = strlen({p.name});")
            lines.append(f"  if ({p.name}_nbytes > {p.cap}) return CUDA_ERROR_INVALID_VALUE;")
    if fields:
        lines += _fill_request(f)
    replies = reply_fields(f)
    if replies:
        lines.append(f"  struct vgw_rep_{f.name} rep;")
    before, after = _arrays(f)
    lines += before
    if _is_counted(f):
        lines.append("  bool limited = vgs_session_is_limited();")
    lines.append("  struct vgs_call call = {")
    lines += _call(f)
    if fields:
        lines.append("      .fixed = &req,\n      .fixed_nbytes = sizeof req,")
    if replies:
        lines.append("      .reply_fixed = &rep,\n      .reply_fixed_nbytes = sizeof rep,")
    parts = part_in(f)
    if parts:
        lines.append(f"      .part_count = {len(parts)},")
        inner = ", ".join(f"{{(void *){p.name}, {part_nbytes(f, p, '')}}}" for p in parts)
        lines.append(f"      .parts = {{{inner}}},")
    tail = part_out(f)
    if tail:
        lines.append(f"      .reply_part = {tail.name},\n      .reply_part_capacity = (uint64_t){tail.size},")
    elif before:
        lines.append("      .reply_part = arrays,\n      .reply_part_capacity = arrays_nbytes,")
    lines.append("  };")
    outs = [p for p in f.sent if p.role in (Role.OUT, Role.STRUCT_OUT, Role.FOUND, Role.WORD_OUT, Role.COUNT)]
    if not outs and not before:
        lines.append("  return vgs_session_call(&call);")
    else:
        lines.append("  CUresult outcome = vgs_session_call(&call);")
        lines.append("  if (outcome != CUDA_SUCCESS) return outcome;")
        if before:
            lines.append("  if (call.reply_part_nbytes != arrays_nbytes) return CUDA_ERROR_UNKNOWN;")
        lines += after
        for p in outs:
            cast = f"({p.scalar.c})" if p.scalar else ""
            lines.append(f"  if ({p.name}) *{p.name} = {cast}rep.{p.name};")
        lines.append("  return CUDA_SUCCESS;")
    lines.append("}\n")
    return "\n".join(lines)
