"""tex, tld4, suld, sust: one call of the C half a warp, which knows what a handle means (device/vgx_sim_sample.c).

Rows of 32 words of 64 bits travel: the handle, up to four coordinates, then the level, the gradients or the values to
store; up to four rows come back."""

from __future__ import annotations

from vgpusim.codegen import abi
from vgpusim.codegen.abi import WARP
from vgpusim.codegen.emitter import Emitter, emits
from vgpusim.codegen.lane_value import LANES
from vgpusim.ptx import ir

_GEOMETRIES = {"1d": 1, "2d": 2, "3d": 3, "a1d": 4, "a2d": 5, "cube": 6, "acube": 7}
_COORDINATES = {"1d": 1, "2d": 2, "3d": 3, "a1d": 2, "a2d": 3, "cube": 3, "acube": 4}
_GRADIENT_AXES = {"1d": 1, "2d": 2, "3d": 3, "a1d": 1, "a2d": 2}
_PLAIN, _LEVEL, _GRADIENT, _GATHER, _LOAD, _STORE = range(6)
_BEYOND = {"trap": 0, "clamp": 1, "zero": 2}
_ROW_COORDINATES, _ROW_EXTRA, _ROWS = 1, 5, 11


def _textured(e: Emitter, operand: ir.Operand) -> tuple[ir.Operand, tuple[ir.Operand, ...]]:
    """The handle and the coordinates of `[handle, {coordinates}]`."""
    match operand:
        case ir.Vector(items=(ir.Address(base=base, offset=0), ir.Vector(items=coordinates))):
            if isinstance(base, ir.Symbol) and base.name not in e.program.params:
                raise e.unsupported("texture references; texture objects are supported")
            return base, coordinates
        case ir.Vector(items=(ir.Address(base=base, offset=0), *coordinates)):
            return base, tuple(coordinates)
    raise e.unsupported("separate textures and samplers")


def _row(e: Emitter, place: str, row: int, text: str, nbits: int) -> None:
    wide = e.resize(LANES, text, nbits, 64)
    at = e.v(f"getelementptr i64, ptr {place}, i32 {row * WARP}")
    e.e(f"store <{WARP} x i64> {wide}, ptr {at}, align 64")


def _run(
    e: Emitter, form: int, operand: ir.Operand, geometry: str, extra: list[tuple[ir.Operand, int]], results: int
) -> list[str]:
    """Fill the rows, call, and read the result rows back as <32 x i64>."""
    handle, coordinates = _textured(e, operand)
    if len(coordinates) < _COORDINATES[geometry]:
        raise e.malformed("too few coordinates")
    place, out = e.stack("texture.in", f"[{_ROWS * WARP} x i64]"), e.stack("texture.out", f"[{4 * WARP} x i64]")
    _row(e, place, 0, e.vector(e.read(handle, 64)), 64)
    for i, coordinate in enumerate(coordinates[: _COORDINATES[geometry]]):
        _row(e, place, _ROW_COORDINATES + i, e.vector(e.read(coordinate, 32)), 32)
    for i, (value, nbits) in enumerate(extra):
        _row(e, place, _ROW_EXTRA + i, e.vector(e.read(value, nbits)), nbits)
    mask = e.mask_bits()
    e.e(
        e.service(
            abi.SERVICE_TEXTURE,
            "void",
            ("i64", str(form)),
            ("i32", mask),
            ("ptr", place),
            ("ptr", out),
        )
    )
    rows = []
    for i in range(results):
        at = e.v(f"getelementptr i64, ptr {out}, i32 {i * WARP}")
        rows.append(e.v(f"load <{WARP} x i64>, ptr {at}, align 64"))
    return rows


def _geometry(e: Emitter, ins: ir.Instruction) -> str:
    geometry = ins.one_of(*_GEOMETRIES)
    if geometry is None:
        raise e.unsupported("this geometry")
    return geometry


def _vector(operand: ir.Operand) -> list[ir.Operand]:
    return list(operand.items) if isinstance(operand, ir.Vector) else [operand]


def _put(e: Emitter, targets: list[ir.Operand], rows: list[str], nbits: int) -> None:
    for target, row in zip(targets, rows, strict=False):
        e.put(target, LANES, e.resize(LANES, row, 64, nbits), nbits)


@emits("tex", "tld4")
def texture(e: Emitter, ins: ir.Instruction) -> None:
    """tex{.level|.grad}.geom.v4.dtype.ctype d, [handle, {coordinates}]{, lod | dPdx, dPdy}"""
    geometry = _geometry(e, ins)
    types = [name for name in ins.modifiers if name in ir.TYPE_NBITS]
    if len(types) != 2 or ir.TYPE_NBITS[types[0]] != 32 or types[0] == "f16x2" or types[1] not in ("f32", "s32"):
        raise e.unsupported("these types")
    if not isinstance(ins.operands[0], ir.Vector):
        raise e.unsupported("residency predicates")
    targets, source, *rest = ins.operands
    form = _GEOMETRIES[geometry] | (types[1] == "s32") << 8
    extra: list[tuple[ir.Operand, int]] = []
    if ins.opcode == "tld4":
        component = ins.one_of("r", "g", "b", "a")
        if component is None or types[1] != "f32" or geometry not in ("2d", "a2d", "cube", "acube"):
            raise e.malformed("a gather needs a component, f32 coordinates and two dimensions")
        form |= _GATHER << 4 | "rgba".index(component) << 9
    elif ins.has("level"):
        form |= _LEVEL << 4
        extra.append((rest.pop(0), 32))
    elif ins.has("grad"):
        if geometry not in _GRADIENT_AXES:
            raise e.unsupported("gradients of cubes")
        form |= _GRADIENT << 4
        for vector in (rest.pop(0), rest.pop(0)):
            extra += [(item, 32) for item in _vector(vector)[: _GRADIENT_AXES[geometry]]]
    if rest:
        raise e.unsupported("offsets and depth comparison")
    _put(e, _vector(targets), _run(e, form, source, geometry, extra, 4), 32)


def _surface_form(e: Emitter, ins: ir.Instruction, operation: int) -> tuple[str, int, int, int]:
    geometry, beyond = _geometry(e, ins), ins.one_of(*_BEYOND)
    if not ins.has("b") or beyond is None or geometry in ("cube", "acube"):
        raise e.unsupported("formatted surface access")
    count = 4 if ins.has("v4") else 2 if ins.has("v2") else 1
    nbits = ir.TYPE_NBITS[ins.type]
    form = _GEOMETRIES[geometry] | operation << 4 | 1 << 8 | _BEYOND[beyond] << 12 | count << 16 | nbits // 8 << 20
    return geometry, form, count, nbits


@emits("suld")
def surface_load(e: Emitter, ins: ir.Instruction) -> None:
    """suld.b.geom{.cop}.vec.type.clamp d, [handle, {coordinates}]: x counts bytes."""
    geometry, form, count, nbits = _surface_form(e, ins, _LOAD)
    targets, source = ins.operands
    _put(e, _vector(targets), _run(e, form, source, geometry, [], count), nbits)


@emits("sust")
def surface_store(e: Emitter, ins: ir.Instruction) -> None:
    """sust.b.geom{.cop}.vec.type.clamp [handle, {coordinates}], values: x counts bytes."""
    geometry, form, _count, nbits = _surface_form(e, ins, _STORE)
    target, values = ins.operands
    _run(e, form, target, geometry, [(value, nbits) for value in _vector(values)], 0)
