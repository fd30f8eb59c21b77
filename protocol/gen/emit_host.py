"""The worker's half: one decoder per record that checks everything before it calls, and the table of all of them.

The executor itself takes a record's fixed fields and looks up the handles among them (vgx_execute, vgx_use); what is
generated for a function begins with those. `VGX_GUARD(c)` is `c`: tests/protocol drops each of them in turn.
"""

from __future__ import annotations

from protocol.gen.emit_records import (
    BANNER,
    element_nbytes,
    part_in,
    part_nbytes,
    part_out,
    parts_out,
    reply_fields,
    request_fields,
)
from protocol.gen.load import Api
from protocol.gen.model import ARRAY_OUT_ROLES, Function, Param, Role


def refs(f: Function) -> list[Param]:
    """The handles that are looked up before the dispatcher runs, in the order of its `objects`."""
    return [p for p in f.sent if (p.role is Role.HANDLE and not p.ends) or p.role is Role.FUNCTION]


def _made(f: Function) -> list[Param]:
    return [p for p in f.sent if p.role is Role.OUT_HANDLE]


def _ended(f: Function) -> Param | None:
    return next((p for p in f.sent if p.ends), None)


def _looked_up(f: Function, p: Param) -> str:
    c = "CUfunction" if p.role is Role.FUNCTION else p.c
    return f"({c})(uintptr_t)objects[{refs(f).index(p)}]"


def _name_objects(f: Function) -> list[str]:
    """Locals for the handles that the entry's C may name."""
    handles = [p for p in refs(f) if p.role is Role.HANDLE]
    return [f"  {p.c} {p.name} = {_looked_up(f, p)};\n  (void){p.name};" for p in handles]


def _conditions(f: Function) -> list[str]:
    """The entry's own checks, in C, of a record whose form is valid."""
    lines = [_guard(condition, text) for condition, text in f.violations]
    return lines + [f"  if (VGX_GUARD({condition})) return {result};" for condition, result in f.worker_answers]


def _guard(condition: str, text: str) -> str:
    return f'  if (VGX_GUARD({condition})) return vgx_violation(s, "{text}");'


def _take_parts(f: Function) -> list[str]:
    """Read the variable parts, each complete and within its bound; bound the variable results."""
    caps: dict[str, Param] = {}
    for p in (*part_in(f), *parts_out(f)):
        size = f"{p.name}_nbytes" if p.role is Role.TEXT_IN else p.size
        if size not in caps or p.cap < caps[size].cap:
            caps[size] = p
    lines = [_guard(f"req->{size} > {p.cap}", f"{p.name} too long") for size, p in caps.items()]
    for p in part_in(f):
        c = {Role.TEXT_IN: "char", Role.HANDLES_IN: "uint32_t", Role.ARRAY_IN: p.element}.get(p.role, "void")
        lines.append(f"  const {c} *{_part_name(f, p)} = vgw_take(in, {part_nbytes(f, p, 'req->')});")
    if part_in(f):  # the first failed read makes every later one fail (vgw_wire.h)
        lines.append(_guard("in->fatal", "short variable part"))
    return lines


def _part_name(f: Function, p: Param) -> str:
    """The C name of a part as received; the parameter's own name is for the value that the driver receives."""
    copied = p.role is Role.ARRAY_IN and not f.host_custom
    return f"{p.name}_sent" if copied or p.role is Role.HANDLES_IN else p.name


def _part_place(f: Function) -> list[str]:
    """The addresses of the variable results: after the fixed ones, each with the capacity that the client asked for."""
    fixed = f"sizeof(struct vgw_rep_{f.name})" if reply_fields(f) else "0"
    tail = part_out(f)
    if tail:
        return [
            f"  void *{tail.name} = vgx_reply_part(out, req->{tail.size}, {fixed});",
            f"  uint64_t {tail.name}_nbytes = req->{tail.size};",
        ]
    arrays = [p for p in parts_out(f) if p.role in ARRAY_OUT_ROLES]
    if not arrays:
        return []
    sizes = [f"vgw_pad8(req->{p.size} * {element_nbytes(p)})" for p in arrays]
    lines = [f"  uint64_t arrays_nbytes = {' + '.join(sizes)};"]
    lines.append(f"  char *arrays = vgx_reply_part(out, arrays_nbytes, {fixed});")
    lines.append("  memset(arrays, 0, arrays_nbytes);")
    for i, p in enumerate(arrays):
        c = "uint32_t" if p.role is Role.HANDLES_OUT else p.element
        place = " + ".join(["arrays", *sizes[:i]])
        lines.append(f"  {c} *{p.name}{'_ids' if p.role is Role.HANDLES_OUT else ''} = (void *)({place});")
    return lines


def _members(p: Param, struct: str, at: str) -> list[str]:
    """Replace the members of a struct that must not reach the driver unchanged, in a copy."""
    lines = []
    for i, m in enumerate(p.members):
        place = f"{struct}.{m.path}"
        if m.fixed:
            lines.append(f"  {place} = {m.fixed};")
        elif m.kind:
            sent, held = f"{p.name}_id{i}", f"{p.name}_object{i}"
            lines.append(f"  uint64_t {sent} = (uint64_t)(uintptr_t){place};\n  void *{held};")
            lines.append(_guard(f"{sent} > UINT32_MAX", f"handle in {p.name}"))
            lines.append(f"  result = vgx_handle(s, VGW_KIND_{m.kind.name}, (uint32_t){sent}, &{held});")
            if not m.optional:
                lines.append(f"  if (result == CUDA_SUCCESS && VGX_GUARD(!{held})) result = {m.kind.wrong};")
            lines.append("  if (result != CUDA_SUCCESS) return result;")
            lines.append(f"  {place} = (__typeof__({place}))(uintptr_t){held};")
    return [line.replace("  ", at + "  ", 1) for line in lines]


def _prepare(f: Function) -> list[str]:
    """Locals that the driver's function reads and writes."""
    lines = []
    for p in f.sent:
        name = p.name
        if p.role is Role.OUT and p.scalar:
            lines.append(f"  {p.scalar.c} {name} = 0;")
        elif p.role is Role.FOUND and p.kind:
            lines.append(f"  {p.kind.c} {name} = 0;")
        elif p.role is Role.WORD_OUT:
            lines.append(f"  uint64_t {name} = 0;")
        elif p.role is Role.WORD_IN:
            lines.append(f"  uint64_t {name} = req->{name};")
        elif p.role is Role.COUNT and p.scalar:
            lines.append(f"  {p.scalar.c} {name} = ({p.scalar.c})req->{name};")
        elif p.role is Role.STRUCT_OUT:
            lines.append(f"  {p.element} {name};\n  memset(&{name}, 0, sizeof {name});")
        elif p.role in (Role.STRUCT_IN, Role.STRUCT_VALUE) and p.members:
            lines.append(f"  {p.element} {name} = req->{name};")
            lines += _members(p, name, "")
        elif p.role is Role.ARRAY_IN:
            lines += _copy_array(p)
        elif p.role is Role.HANDLES_IN:
            lines += _look_up_array(p)
        elif p.role is Role.HANDLES_OUT and p.kind:
            lines.append(f"  VGX_FREED {p.kind.c} *{name} = NULL;")
            lines.append(
                f"  if (req->{p.size} && !({name} = calloc(req->{p.size}, sizeof *{name}))) "
                "return CUDA_ERROR_OUT_OF_MEMORY;"
            )
        elif p.role is Role.TEXT_IN:
            lines.append(f"  char {name}_text[VGX_TEXT_NBYTES];")
            lines.append(
                f"  if (VGX_GUARD(!vgx_text({name}_text, {name}, req->{name}_nbytes))) return CUDA_ERROR_NOT_FOUND;"
            )
        elif p.role is Role.FUNCTION:
            lines += _function(f, p)
    return lines


def _function(f: Function, p: Param) -> list[str]:
    lines = [f"  CUfunction {p.name} = {_looked_up(f, p)};"]
    if p.loaded:
        lines += [
            f"  if (req->kind == VGW_KIND_KERNEL) result = s->backend->cuKernelGetFunction(&{p.name}, "
            f"(CUkernel){p.name});",
            "  if (result != CUDA_SUCCESS) return result;",
        ]
    return lines


def _look_up_array(p: Param) -> list[str]:
    assert p.kind
    return [
        f"  VGX_FREED {p.kind.c} *{p.name} = NULL;",
        f"  result = vgx_handles(s, VGW_KIND_{p.kind.name}, {p.name}_sent, (uint32_t)req->{p.size}, "
        f"(void ***)&{p.name});",
        "  if (result != CUDA_SUCCESS) return result;",
    ]


def _copy_array(p: Param) -> list[str]:
    """A copy of an array, since the contents of a ring may change at any time."""
    lines = [f"  VGX_FREED {p.element} *{p.name} = malloc(req->{p.size} * sizeof *{p.name} + 1);"]
    lines.append(f"  if (!{p.name}) return CUDA_ERROR_OUT_OF_MEMORY;")
    lines.append(f"  memcpy({p.name}, {p.name}_sent, req->{p.size} * sizeof *{p.name});")
    if p.members:
        lines.append(f"  for (uint64_t i = 0; i < req->{p.size}; i++) {{")
        lines += _members(p, f"{p.name}[i]", "  ")
        lines.append("  }")
    return lines


def _argument(f: Function, p: Param) -> str:
    """The arguments of the driver's function."""
    if p.role is Role.VALUE:
        assert p.scalar
        return p.fixed or f"({p.scalar.c})req->{p.name}"
    if p.role is Role.HANDLE:
        return p.name
    if p.role in (Role.OUT, Role.OUT_HANDLE, Role.FOUND, Role.STRUCT_OUT, Role.WORD_IN, Role.WORD_OUT, Role.COUNT):
        return f"&{p.name}"
    if p.role is Role.STRUCT_IN:
        return f"&{p.name}" if p.members else f"&req->{p.name}"
    if p.role is Role.STRUCT_VALUE:
        return p.name if p.members else f"req->{p.name}"
    if p.role is Role.ARRAY_OUT:
        return f"req->{p.size} ? {p.name} : NULL"
    return f"{p.name}_text" if p.role is Role.TEXT_IN else p.name


def _custom_arguments(f: Function) -> list[str]:
    arguments = ["s"] + (["req"] if request_fields(f) else []) + (["fd"] if f.descriptor else [])
    arguments += [p.name for p in refs(f)]
    arguments += [_ended_name(f)] if _ended(f) else []
    arguments += [f"&{p.name}" for p in _made(f)] + [p.name for p in part_in(f)]
    tail = part_out(f)
    return arguments + (["&rep"] if reply_fields(f) else []) + ([tail.name, f"&{tail.name}_nbytes"] if tail else [])


def _ended_name(f: Function) -> str:
    ended = _ended(f)
    assert ended
    return ended.name


def _begin_objects(f: Function) -> list[str]:
    """Ids of new objects, and the object to destroy. Last, so that no early return leaves an id reserved."""
    lines = []
    for p in _made(f):
        assert p.kind
        lines.append(f"  {p.kind.c} {p.name} = 0;")
        lines.append(
            f"  enum vgx_reserved reserved_{p.name} = vgx_handle_reserve(s, VGW_KIND_{p.kind.name}, req->{p.name});"
        )
        lines.append(_guard(f"reserved_{p.name} == VGX_TAKEN", f"{p.name} taken"))
        undo = [f"{f.worker_done};"] if f.worker_done else []
        undo += ["close(fd);"] if f.descriptor else []
        short = " ".join([*undo, "return CUDA_ERROR_OUT_OF_MEMORY;"])
        lines.append(f"  if (reserved_{p.name} != VGX_RESERVED) {{ {short} }}")
    ended = _ended(f)
    if ended and ended.kind:
        lines.append("  void *ended;")
        lines.append(f"  result = vgx_handle_end(s, VGW_KIND_{ended.kind.name}, req->{ended.name}, &ended);")
        lines.append(f"  if (VGX_GUARD(result != CUDA_SUCCESS)) return {_wrong(ended)};")
        lines.append(f"  {ended.kind.c} {ended.name} = ({ended.kind.c})(uintptr_t)ended;")
    return lines


def _wrong(p: Param) -> str:
    """C for the error of a failed look-up: for NULL as in the client; for a destroyed object `result`."""
    assert p.kind
    return f"req->{p.name} ? result : {p.wrong or p.kind.wrong}"


def _end_objects(f: Function) -> list[str]:
    lines = []
    for p in _made(f):
        assert p.kind
        parent = next((q for q in f.sent if q.name == p.parent), None)
        kind, owner = ("CONTEXT", "vgx_context_id()") if p.kind.within and not parent else ("COUNT", "0")
        if parent and parent.kind:
            kind, owner = parent.kind.name, f"req->{parent.name}"
        lines.append(
            f"  vgx_handle_set(s, VGW_KIND_{p.kind.name}, req->{p.name}, "
            f"result == CUDA_SUCCESS ? (void *)(uintptr_t){p.name} : NULL, VGW_KIND_{kind}, {owner});"
        )
    ended = _ended(f)
    if ended and ended.kind:
        lines.append(f"  vgx_handle_ended(s, VGW_KIND_{ended.kind.name}, req->{ended.name}, result == CUDA_SUCCESS);")
    return lines


def _call(f: Function) -> str:
    if f.worker:
        return f.worker
    by_name = {p.name: p for p in f.sent}
    given = [_argument(f, by_name[c]) if c in by_name else c for c in f.given or [p.name for p in f.args]]
    return f"s->backend->{f.member}({', '.join(given)})"


def _before(f: Function) -> list[str]:
    lines = [f"  {f.worker_before};"] if f.worker_before else []
    for check in f.worker_checks:
        lines.append(f"  result = {check};\n  if (VGX_GUARD(result != CUDA_SUCCESS)) return result;")
    return lines


def _call_driver(f: Function) -> list[str]:
    lines = [f"  result = {_call(f)};"]
    if f.descriptor:
        lines.append("  close(fd);")
    lines += [f"  {f.worker_done};"] if f.worker_done else []
    lines += _end_objects(f)
    if f.worker_after:
        lines.append(f"  if (result == CUDA_SUCCESS) {f.worker_after};")
    ids = [p for p in f.sent if p.role in (Role.FOUND, Role.HANDLES_OUT)]
    owner = next((p for p in f.sent if p.role is Role.HANDLE and p.kind and p.kind.name == "GRAPH"), None)
    within = f"req->{owner.name}" if owner else "0"
    for p in ids:
        assert p.kind
        many = p.role is Role.HANDLES_OUT
        if not many:
            lines.append(f"  uint32_t {p.name}_ids[1];")
        objects = f"(void *const *){p.name}" if many else f"(void *[]){{(void *)(uintptr_t){p.name}}}"
        count = f"{p.size} < req->{p.size} ? {p.size} : req->{p.size}" if many else "1"
        lines.append(
            f"  if (result == CUDA_SUCCESS) result = vgx_handle_ids(s, VGW_KIND_{p.kind.name}, {within}, {objects}, "
            f"{count}, {p.name}_ids);"
        )
    return lines


def _reply(f: Function) -> list[str]:
    fields, tail = reply_fields(f), part_out(f)
    lines = []
    if fields and not f.host_custom:
        lines.append(f"  struct vgw_rep_{f.name} rep;\n  memset(&rep, 0, sizeof rep);")
        lines += [f"  rep.{p.name} = {p.name};" for p in f.sent if p.role in VALUE_RESULTS]
        lines += [
            f"  rep.{p.name} = result == CUDA_SUCCESS ? *{p.name}_ids : 0;" for p in f.sent if p.role is Role.FOUND
        ]
    nbytes = f"{tail.name}_nbytes" if tail else "arrays_nbytes" if parts_out(f) else ""
    if fields or nbytes:
        fixed = "&rep, sizeof rep" if fields else "NULL, 0"
        lines.append(f"  if (result == CUDA_SUCCESS) vgx_reply_finish(out, {fixed}, {nbytes or '0'});")
    return lines


VALUE_RESULTS = (Role.OUT, Role.STRUCT_OUT, Role.WORD_OUT, Role.COUNT)


def dispatch(f: Function) -> str:
    """The decoder of one function's records."""
    lines = [
        f"static CUresult dispatch_{f.name}(struct vgx_session *s, const void *fixed, void *const *objects,\n"
        "    struct vgw_cursor *in, struct vgx_reply *out) {",
        "  (void)s, (void)fixed, (void)objects, (void)in, (void)out;",
        "  CUresult result = CUDA_SUCCESS;",
    ]
    if request_fields(f):
        lines.append(f"  const struct vgw_req_{f.name} *req = fixed;\n  (void)req;")
    lines += _take_parts(f)
    if f.member:
        lines.append(f'  if (VGX_GUARD(!s->backend->{f.member})) return vgx_not_offered(s, "{f.member}");')
    if f.descriptor:
        lines.append("  int fd = vgx_pop_fd(s);")
        lines.append(_guard("fd < 0", f"{f.name} without a descriptor"))
    if f.group:
        group = f"VGW_GROUP_{f.group.upper()}"
        denial = f"{'close(fd); ' if f.descriptor else ''}return vgx_deny(s, VGW_OP_{f.name}, {group});"
        lines.append(f"  if (VGX_GUARD(vgx_is_denied(s, {group}))) {{ {denial} }}")
    lines += _part_place(f) + _name_objects(f) + _conditions(f)
    if f.host_custom:
        lines += [line for p in f.sent if p.role is Role.HANDLES_IN for line in _look_up_array(p)]
        lines += [line for p in f.sent if p.role is Role.FUNCTION for line in _function(f, p)]
        lines += _begin_objects(f)
        if reply_fields(f):
            lines.append(f"  struct vgw_rep_{f.name} rep;\n  memset(&rep, 0, sizeof rep);")
        lines.append(f"  result = vgx_{f.name}({', '.join(_custom_arguments(f))});")
        lines += _end_objects(f)
    else:
        lines += _prepare(f) + _before(f) + _begin_objects(f) + _call_driver(f)
    return "\n".join([*lines, *_reply(f), "  return result;\n}\n"])


def custom_prototype(f: Function) -> str:
    parameters = ["struct vgx_session *s"] + ([f"const struct vgw_req_{f.name} *req"] if request_fields(f) else [])
    parameters += ["int fd"] if f.descriptor else []
    parameters += [f"CUfunction {p.name}" if p.role is Role.FUNCTION else p.declaration for p in refs(f)]
    ended = _ended(f)
    parameters += [ended.declaration] if ended else []
    parameters += [p.declaration for p in _made(f)]
    parameters += [p.declaration for p in part_in(f)]
    parameters += [f"struct vgw_rep_{f.name} *rep"] if reply_fields(f) else []
    tail = part_out(f)
    parameters += [f"void *{tail.name}", f"uint64_t *{tail.name}_nbytes"] if tail else []
    return f"CUresult vgx_{f.name}({', '.join(parameters)});\n"


def emit_custom(api: Api) -> str:
    out = [BANNER, '#ifndef VGX_CUSTOM_H\n#define VGX_CUSTOM_H\n\n#include "vgw_records.h"\n\nstruct vgx_session;\n\n']
    out.append(
        "/* Hand-written halves. Lengths are checked, and ids looked up: objects come after `req`, and stay until the\n"
        " * function returns. A new object goes to where the pointer points; its id is the dispatcher's business. A\n"
        " * descriptor is the function's own. A variable result's capacity comes in through *_nbytes, its size goes\n"
        " * out the same way. */\n"
    )
    out += [custom_prototype(f) for f in api.travelling() if f.host_custom]
    out.append("\n#endif\n")
    return "".join(out)
