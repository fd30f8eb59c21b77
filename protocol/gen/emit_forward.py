"""The client's bodies that only forward: handles to ids, structs translated, objects made and destroyed, one record."""

from __future__ import annotations

import re

from protocol.gen.model import Function, Member, Param, Role, Travel

RESULT = "  if (result != CUDA_SUCCESS) return result;"


def declarations(params: list[Param]) -> str:
    return ", ".join(p.declaration for p in params) or "void"


class Body:
    """The statements of one function, while they are assembled."""

    def __init__(self, f: Function) -> None:
        self.f = f
        self.lines: list[str] = []
        self.sent: dict[str, str] = {}

    def add(self, *lines: str) -> None:
        self.lines += lines

    def refuse(self, condition: str, result: str = "CUDA_ERROR_INVALID_VALUE") -> None:
        self.add(f"  if ({condition}) return {result};")

    def statements(self) -> str:
        f = self.f
        for p in sorted(f.args, key=lambda p: p.role is not Role.KEPT):
            if not f.asked or self._is_named(p):
                self._argument(p)
        for p in f.sent:
            if p not in f.args and p.role is Role.OUT and p.scalar:
                self.add(f"  {p.scalar.c} {p.name}_told = 0;")
                self.sent[p.name] = f"&{p.name}_told"
        if f.unsafe:
            self.add("  result = vgs_capture_check_unsafe();", RESULT)
        if f.client_before:
            self.add(f"  {f.client_before};")
        for check in f.checks:
            self.add(f"  result = {check};", RESULT)
        for condition, result in f.answers:
            self.refuse(condition, result)
        if f.is_kept:
            self.add(*(f"  *{p.name} = {p.kept};" for p in f.args if p.kept), "  return CUDA_SUCCESS;")
        elif f.asked:
            self.add(f"  return {f.asked};")
        else:
            self._make_and_send()
        text = "\n".join(self.lines)
        for p in f.args:
            if not re.search(rf"\b{p.name}\b", text):
                self.lines.insert(0, f"  (void){p.name};")
        if "result" in text:
            self.lines.insert(0, "  CUresult result = CUDA_SUCCESS;")
        return "\n".join(self.lines) + "\n"

    def _is_named(self, p: Param) -> bool:
        """Whether the entry's C names the object of a parameter, or the parameter is always processed."""
        said = " ".join((self.f.asked, self.f.client_before, *self.f.checks, *sum(self.f.answers, ())))
        named = re.search(rf"\b{p.name}_(id|object)\b", said)
        return bool(named) or p.uncaptured or p.role in (Role.VALUE, Role.OUT, Role.STRUCT_OUT)

    def _make_and_send(self) -> None:
        made = [p for p in self.f.args if p.role is Role.OUT_HANDLE]
        for p in made:
            self._make(p, made[: made.index(p)])
        self._send(made)

    def _argument(self, p: Param) -> None:
        """Check one parameter; returns what is sent for it."""
        value = p.name
        if p.role is Role.VALUE:
            value = self._number(p)
        elif p.role is Role.HANDLE:
            value = self._handle(p)
        elif p.role is Role.FUNCTION:
            self.add(f"  struct vgs_kernel *{p.name}_object = vgs_kernel_find({p.name});")
            self.refuse(f"!{p.name}_object", "CUDA_ERROR_INVALID_HANDLE")
            value = f"{p.name}_object->object.kind, {p.name}_object->object.id"
        elif p.role is Role.OUT_HANDLE:
            self.refuse(f"!{p.name}")
            value = f"((struct vgs_object *){p.name}_object)->id"
        elif p.role in (Role.STRUCT_IN, Role.STRUCT_OUT, Role.TEXT_IN, Role.OUT, Role.KEPT) and not p.optional:
            self.refuse(f"!{p.name}")
        if p.role is Role.OUT and p.scalar and _is_told(self.f):  # the entry's C uses unwanted results, too
            self.add(f"  {p.scalar.c} {p.name}_told = 0;")
            value = f"&{p.name}_told"
        if p.role is Role.STRUCT_IN and p.members:
            self.add(f"  {p.element} {p.name}_sent = *{p.name};")
            self._translate(p, f"{p.name}_sent")
            value = f"&{p.name}_sent"
        elif p.role is Role.STRUCT_VALUE:
            value = f"&{p.name}"
        elif p.role in (Role.BYTES_IN, Role.BYTES_OUT):
            self.refuse(f"!{p.name} && {p.size}")
            self.refuse(f"{p.size} > {p.cap}")
        elif p.role is Role.HANDLES_IN:
            value = self._handles(p)
        elif p.role is Role.ARRAY_IN:
            value = self._array(p)
        elif p.role is Role.WORD_IN:
            self.refuse(f"!{p.name}")
            wide, narrow = f"*(const uint64_t *){p.name}", f"(uint64_t)(int64_t)*(const int *){p.name}"
            value = f"{p.wide} ? {wide} : {narrow}"
        elif p.role in (Role.WORD_OUT, Role.FOUND):
            self.refuse(f"!{p.name}")
            c = "uint64_t" if p.role is Role.WORD_OUT else "uint32_t"
            self.add(f"  {c} {p.name}_told;")
            value = f"&{p.name}_told"
        elif p.role is Role.COUNT:
            self._count(p)
            value = f"&{p.name}_told"
        elif p.role is Role.HANDLES_OUT:
            value = f"{p.name}_ids"
        if p.role is not Role.POINTER:
            self.sent[p.name] = value

    def _number(self, p: Param) -> str:
        assert p.scalar
        if p.mask is not None:
            self.refuse(f"{p.name} & ~({p.scalar.c}){p.mask}" if p.mask else p.name)
        if p.most is not None:
            low = f"{p.name} < 0 || " if p.scalar.trace == "i" else ""
            self.refuse(f"{low}{p.name} > {p.most}")
        if p.nonzero:
            self.refuse(f"!{p.name}")
        if p.among:
            self.refuse(" && ".join(f"{p.name} != {value}" for value in p.among))
        if p.scalar.c == "CUdevice":
            self.refuse(f"!vgs_device({p.name})", "CUDA_ERROR_INVALID_DEVICE")
            return f"vgs_device_wire({p.name})"
        return p.sent or p.name

    def _handle(self, p: Param) -> str:
        """Look up the object; returns its id on the wire."""
        assert p.kind
        kind, name = p.kind, p.name
        wrong = p.wrong or kind.wrong
        if kind.name == "STREAM":
            self.add(f"  uint32_t {name}_id;\n  struct vgs_stream *{name}_object;")
            find = "vgs_stream_find" if self.f.is_kept or p.named or p.ends else "vgs_stream_id"
            self.add(f"  result = {find}({name}, &{name}_id, &{name}_object);", RESULT)
            if p.uncaptured:
                self.refuse(
                    f"{name}_object && vgs_capture_status({name}_object->capture)",
                    f"vgs_capture_forbid({name}_object->capture)",
                )
            if p.ends:
                self.refuse(f"!{name}_object", wrong)
            return f"{name}_id"
        if kind.name == "CONTEXT":
            self.add(f"  struct vgs_context *{name}_object = vgs_context_find({name});")
            self.refuse(f"!{name}_object" + ("" if p.optional else f" || !{name}"), wrong)
            return f"{name}_object->wire_id"
        self.add(
            f"  struct {kind.struct} *{name}_object = vgs_object_find(VGW_KIND_{kind.name}, (void *)(uintptr_t){name});"
        )
        if p.otherwise:
            arguments = ", ".join(q.name for q in self.f.args)
            self.refuse(f"!{name}_object", f"{p.otherwise}({arguments})")
        elif p.optional:
            self.refuse(f"!{name}_object && {name}", wrong)
        else:
            self.refuse(f"!{name}_object", wrong)
        for ready in (kind.ready, p.ready):
            if ready and not p.ends:
                self.add(f"  result = {ready}({name}_object);", "  if (result != CUDA_SUCCESS) return result;")
        if self.f.is_kept:
            return ""
        found = f"((struct vgs_object *){name}_object)->id"
        self.add(f"  uint32_t {name}_id = {f'{name}_object ? {found} : 0' if p.optional else found};")
        return f"{name}_id"

    def _translate(self, p: Param, struct: str, indent: str = "  ") -> None:
        for m in p.members:
            place = f"{struct}.{m.path}"
            if m.fixed:
                self.add(f"{indent}{place} = {m.fixed};")
            elif m.device:
                self.add(f"{indent}if (!vgs_device({place})) return CUDA_ERROR_INVALID_DEVICE;")
                self.add(f"{indent}{place} = vgs_device_wire({place});")
            else:
                self.add(*(indent + line for line in _member_handle(m, place)))

    def _handles(self, p: Param) -> str:
        assert p.kind
        self.refuse(f"{p.size} > {p.cap}")
        self.add(f"  VGS_FREED uint32_t *{p.name}_ids = NULL;")
        self.add(
            f"  result = vgs_handle_ids(VGW_KIND_{p.kind.name}, (const void *const *){p.name}, {p.size}, "
            f"{p.wrong or p.kind.wrong}, &{p.name}_ids);",
            RESULT,
        )
        return f"{p.name}_ids"

    def _array(self, p: Param) -> str:
        self.refuse(f"!{p.name} && {p.size}")
        self.refuse(f"{p.size} > {p.cap}")
        if not p.members:
            return p.name
        self.add(f"  VGS_FREED {p.element} *{p.name}_sent = malloc({p.size} * sizeof *{p.name}_sent + 1);")
        self.refuse(f"!{p.name}_sent", "CUDA_ERROR_OUT_OF_MEMORY")
        self.add(f"  for (size_t i = 0; i < {p.size}; i++) {{", f"    {p.name}_sent[i] = {p.name}[i];")
        self._translate(p, f"{p.name}_sent[i]", "    ")
        self.add("  }")
        return f"{p.name}_sent"

    def _count(self, p: Param) -> None:
        """The capacity of the arrays with this count: 0 if the program passes no array; at most the host's limit."""
        assert p.scalar
        arrays = [q for q in self.f.args if q.size == p.name]
        self.refuse(f"!{p.name}")
        wanted = " || ".join(q.name for q in arrays)
        cap = min(q.cap for q in arrays)
        self.add(f"  {p.scalar.c} {p.name}_room = {wanted} ? *{p.name} : 0;")
        self.add(f"  {p.scalar.c} {p.name}_told = {p.name}_room > {cap} ? {cap} : {p.name}_room;")
        for q in arrays:
            if q.role is Role.HANDLES_OUT:
                self.add(f"  VGS_FREED uint32_t *{q.name}_ids = calloc({p.name}_told + 1, sizeof *{q.name}_ids);")
                self.refuse(f"!{q.name}_ids", "CUDA_ERROR_OUT_OF_MEMORY")

    def _make(self, p: Param, before: list[Param]) -> None:
        """Creates the client's object before the request is sent."""
        assert p.kind
        parent = next((q for q in self.f.args if q.name == p.parent), None)
        context = "vgs_context_entered->wire_id" if p.kind.within == "CONTEXT" else "0"
        if parent:
            context = f"((struct vgs_object *){parent.name}_object)->context_id"
        make = p.make or f"vgs_object_create(VGW_KIND_{p.kind.name}, {context})"
        self.add(f"  struct {p.kind.struct} *{p.name}_object = {make};")
        undo = "".join(f"vgs_object_destroy({q.name}_object); " for q in before)
        self.add(f"  if (!{p.name}_object) {{ {undo}return CUDA_ERROR_OUT_OF_MEMORY; }}")
        self.add(*(f"  {p.name}_object->{member} = {value};" for member, value in p.keep))

    def _send(self, made: list[Param]) -> None:
        f = self.f
        ended = next((p for p in f.args if p.ends), None)
        queued = f.travel is Travel.QUEUED
        values = [p.sent if p.sent and p.role is not Role.VALUE else self.sent.get(p.name, p.sent) for p in f.sent]
        arguments = ", ".join(values + ([f.waits or "false"] if queued else []))
        if ended and ended.ending:
            self.add(f"  {ended.ending};")
        if ended and queued:  # queued: its error is reported by a later call
            self.add(f"  vgs_object_destroy({ended.name}_object);")
        claimed = next((p for p in f.args if p.range_nbytes), None)
        if claimed:
            self._claim(claimed, f"vgs_send_{f.name}({arguments})")
        else:
            self.add(f"  result = vgs_send_{f.name}({arguments});")
        undo = [f"{f.client_failed};"] if f.client_failed else []
        undo += [f"vgs_object_destroy({p.name}_object);" for p in made]
        failed = f"  if (result != CUDA_SUCCESS) {{ {' '.join(undo)} return result; }}" if undo else RESULT
        self.add(failed)
        if ended and not queued:
            self.add(f"  vgs_object_destroy({ended.name}_object);")
        if f.client_after:
            self.add(f"  {f.client_after};")
            if "result =" in f.client_after:
                self.add(failed)
        for p in f.args:
            self.add(*_result(p))
        if _is_told(f):
            told = [p for p in f.args if p.role is Role.OUT]
            self.add(*(f"  if ({p.name}) *{p.name} = {p.name}_told;" for p in told))
        self.add("  return result;")

    def _claim(self, p: Param, send: str) -> None:
        """Repeat the request until the address can be claimed in this process (vgs_claiming.h); record the range."""
        address = f"{p.name}_told"
        memory = [".is_memory = true", f".device = {p.range_device}"]
        about = memory if p.range_kind else [".alignment = alignment"]
        about += [".is_imported = true"] if p.range_kind == "VGS_RANGE_POOL" and not p.ordered else []
        about += [".is_ordered = true", f".in_pool = {p.range_kind} == VGS_RANGE_POOL"] if p.ordered else []
        self.add(
            f"  struct vgs_claiming claiming = {{{', '.join(about)}}};",
            "  bool again;",
            "  do {",
            f"    if (!vgs_claim_apart(&claiming, &{address}, &result)) result = {send};",
            f"    again = vgs_claim_made(&claiming, &result, {address}, {p.range_nbytes});",
            f"    for (CUdeviceptr taken; vgs_claim_rejected(&claiming, &taken);) (void){p.undo};",
            "  } while (again);",
        )
        if not p.range_kind:
            return
        self.add(
            RESULT,
            "  bool is_apart = claiming.was_apart && !claiming.apart_result;",
            f"  result = vgs_range_add_allocation({address}, {p.range_nbytes}, {p.range_kind}, is_apart, "
            "claiming.device);",
            f"  if (result != CUDA_SUCCESS) {{ CUdeviceptr taken = {address};",
            f"    (void)(is_apart ? vgs_apart_free(taken) : {p.undo}); return result; }}",
        )


def _is_told(f: Function) -> bool:
    """Whether results are first stored in locals."""
    return bool(f.client_after) or any(p.range_nbytes for p in f.args)


def _member_handle(m: Member, place: str) -> list[str]:
    """A handle in a struct becomes its id."""
    assert m.kind
    find = f"vgs_object_find(VGW_KIND_{m.kind.name}, (void *)(uintptr_t){place})"
    if m.kind.name == "FUNCTION":
        find = f"vgs_kernel_find((void *)(uintptr_t){place})"
    unless = f" && {place}" if m.optional else ""
    return [
        "{",
        f"  struct vgs_object *object = (struct vgs_object *){find};",
        f"  if (!object{unless}) return {m.kind.wrong};",
        f"  {place} = (__typeof__({place}))(uintptr_t)(object ? object->id : 0);",
        "}",
    ]


def _result(p: Param) -> list[str]:
    """Code that copies the worker's results to the program."""
    if p.role is Role.OUT_HANDLE:
        made = [f"  {p.made};"] if p.made else []
        return [*made, f"  *{p.name} = (__typeof__(*{p.name}))(uintptr_t)vgs_object_handle({p.name}_object);"]
    if p.role is Role.WORD_OUT:
        return [
            f"  if ({p.wide}) *(uint64_t *){p.name} = {p.name}_told;",
            f"  else *(int *){p.name} = (int){p.name}_told;",
        ]
    if p.role is Role.FOUND and p.kind:
        return [
            f"  void *{p.name}_object = vgs_object_at(VGW_KIND_{p.kind.name}, {p.name}_told);",
            f"  if (!{p.name}_object) return CUDA_ERROR_UNKNOWN;",
            f"  *{p.name} = (__typeof__(*{p.name}))(uintptr_t)vgs_object_handle({p.name}_object);",
        ]
    if p.role is Role.COUNT:
        return [f"  *{p.name} = {p.name}_told;"]
    if p.role is Role.HANDLES_OUT and p.kind:  # elements after the last result are NULL, as documented
        return [
            f"  for (size_t i = 0; {p.name} && i < {p.size}_room; i++) {{",
            f"    void *object = i < {p.size}_told ? vgs_object_at(VGW_KIND_{p.kind.name}, {p.name}_ids[i]) : NULL;",
            f"    {p.name}[i] = object ? (__typeof__(*{p.name}))(uintptr_t)vgs_object_handle(object) : 0;",
            "  }",
        ]
    return []


def forward(f: Function) -> str:
    """The body. If the function has forms, they share one body with an additional parameter."""
    if f.form_of:
        return ""
    head = f"CUresult vgs_{f.name}({declarations(f.args)}) {{\n"
    if not f.forms:
        return f"{head}{Body(f).statements()}}}\n"
    stream = f.stream_param()
    shared = [f"static CUresult forward_{f.name}({declarations(f.args)}, bool sync) {{\n{Body(f).statements()}}}\n"]
    names = ", ".join(p.name for p in f.args)
    shared.append(f"{head}  return forward_{f.name}({names}, false);\n}}\n")
    default = ", ".join("vgs_stream_default()" if p is stream else p.name for p in f.args)
    rest = declarations([p for p in f.args if p is not stream])
    shared += [f"CUresult vgs_{form}({rest}) {{\n  return forward_{f.name}({default}, true);\n}}\n" for form in f.forms]
    return "\n".join(shared)
