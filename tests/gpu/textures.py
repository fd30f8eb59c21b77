"""What a device's textures return: each dimension, format, filter and address mode at random coordinates, levels of
mipmaps, gradients and gathers. `python3 tests/gpu/oracle.py OUT --only textures` asks."""

from __future__ import annotations

import ctypes
import itertools
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tests.gpu.driver import Driver, Words

COUNT = 2048
_HEADER = ".version 8.8\n.target sm_90\n.address_size 64\n"
_FORMATS = {"u8": (1, "u1"), "u16": (2, "u2"), "u32": (3, "u4"), "s8": (8, "i1"), "s16": (9, "i2"), "s32": (10, "i4"),
            "f16": (16, "f2"), "f32": (32, "f4")}  # fmt: skip
_LAYERED, _CUBEMAP = 1, 4
_INTEGER, _NORMALIZED, _SRGB = 1, 2, 0x10
_SIZES = {"1d": (37, 0, 0), "2d": (19, 13, 0), "3d": (9, 7, 5), "a1d": (23, 0, 4), "a2d": (11, 7, 3), "cube": (8, 8, 6),
          "acube": (8, 8, 12)}  # fmt: skip
_FLAGS = {"a1d": _LAYERED, "a2d": _LAYERED, "cube": _CUBEMAP, "acube": _LAYERED | _CUBEMAP}


@dataclass(frozen=True)
class Texture:
    dimension: str
    format: str
    channels: int
    filter: int = 0  # 1: linear
    address: int = 1  # wrap, clamp, mirror, border
    flags: int = 0
    instruction: str = "tex"  # tex, tex.level, tex.grad, tld4.r .. tld4.a
    levels: int = 1
    level_filter: int = 0
    bias: float = 0
    clamps: tuple[float, float] = (0, 100)

    @property
    def name(self) -> str:
        words = [self.instruction, self.dimension, f"{self.format}x{self.channels}", ("point", "linear")[self.filter],
                 ("wrap", "clamp", "mirror", "border")[self.address]]  # fmt: skip
        words += [name for bit, name in ((_INTEGER, "integer"), (_NORMALIZED, "normalized"), (_SRGB, "srgb"))
                  if self.flags & bit]  # fmt: skip
        if self.levels > 1:
            words.append(
                f"levels {self.levels} {('point', 'linear')[self.level_filter]} bias {self.bias} {self.clamps}"
            )
        return "texture " + " ".join(words)


def textures() -> Iterator[Texture]:
    for dimension, address, flags in itertools.product(_SIZES, range(4), (0, _NORMALIZED)):
        if "cube" in dimension and (not flags or address != 1):
            continue
        for (form, channels), linear in itertools.product((("f32", 1), ("f32", 4), ("f16", 4), ("u8", 4), ("s8", 2),
                                                           ("u16", 1), ("s16", 4)), (0, 1)):  # fmt: skip
            if form in ("f32", "u8") or dimension in ("1d", "2d"):
                yield Texture(dimension, form, channels, linear, address, flags)
        for form, channels in (("u8", 4), ("s16", 2), ("u32", 1), ("s32", 4)):
            if dimension in ("2d", "a2d"):
                yield Texture(dimension, form, channels, 0, address, flags | _INTEGER)
        yield Texture(dimension, "u8", 4, 1, address, flags | _SRGB)
    for address, flags, channel in itertools.product(range(4), (0, _NORMALIZED), "rgba"):
        for form in ("f32", "u8"):
            yield Texture("2d", form, 4, 0, address, flags, f"tld4.{channel}")
    for instruction, linear, between in itertools.product(("tex.level", "tex.grad"), (0, 1), (0, 1)):
        for bias, clamps in ((0.0, (0.0, 100.0)), (0.7, (0.5, 2.25)), (-1.3, (1.0, 100.0))):
            for dimension, form in itertools.product(("1d", "2d", "3d", "a2d", "cube"), ("f32", "u8")):
                yield Texture(dimension, form, 4, linear, 1, _NORMALIZED, instruction, 4, between, bias, clamps)


def coordinates(texture: Texture) -> Words:
    """Twelve numbers for each thread: x, y, z; a layer; a level; and gradients."""
    rng = np.random.default_rng([5, zlib.crc32(texture.name.encode())])
    width, height, depth = (max(1, size) for size in _SIZES[texture.dimension])
    found = np.zeros((COUNT, 12), np.float32)
    if "cube" in texture.dimension:
        found[:, :3] = rng.standard_normal((COUNT, 3))
    else:
        found[:, :3] = rng.uniform(-1.5, 2.5, (COUNT, 3)) * (width, height, depth)
        exact = rng.random(COUNT) < 0.2
        found[exact, :3] = np.round(found[exact, :3] * 4) / 4
        if texture.flags & _NORMALIZED:
            found[:, :3] /= (width, height, depth)
    found[:, 3] = rng.integers(-1, depth // 6 + 1 if "cube" in texture.dimension else depth + 2, COUNT)
    found[:, 4] = np.where(rng.random(COUNT) < 0.2, rng.integers(-1, 5, COUNT), rng.uniform(-1, 5, COUNT))
    scale = 2.0 ** rng.uniform(-3, 3, (COUNT, 1))
    found[:, 5:11] = rng.standard_normal((COUNT, 6)) * scale / width
    return found


def _kernel(texture: Texture) -> str:
    result = "f32" if not texture.flags & _INTEGER else {"u": "u32", "s": "s32"}[texture.format[0]]
    dimension = texture.dimension
    layer = "%t2, " if dimension.startswith("a") else ""
    flat = dimension.removeprefix("a")
    place = {"1d": "%f0", "2d": "%f0, %f1", "3d": "%f0, %f1, %f2, %f2", "cube": "%f0, %f1, %f2, %f2"}[flat]
    if layer and flat == "2d":
        place += ", %f1"
    if layer and flat == "cube":
        place = "%f0, %f1, %f2"
    place = f"{{{layer}{place}}}" if layer or flat != "1d" else f"{{{place}}}"
    registers = "{%r0, %r1, %r2, %r3}"
    name, tail = texture.instruction, ""
    if name == "tex.level":
        name, tail = "tex.level", ", %f4"
    elif name == "tex.grad":
        gradients = {"1d": (("%f5",), ("%f8",)), "2d": (("%f5", "%f6"), ("%f8", "%f9"))}
        volume = (("%f5", "%f6", "%f7", "%f7"), ("%f8", "%f9", "%f10", "%f10"))
        tail = "".join(f", {{{', '.join(part)}}}" for part in gradients.get(flat, volume))
    text = f"{name}.{dimension}.v4.{result}.f32 {registers}, [%x2, {place}]{tail};"
    return f"""{_HEADER}.visible .entry k(.param .u64 in, .param .u64 out, .param .u64 texture) {{
.reg .b32 %t<4>, %r<4>; .reg .b64 %x<4>; .reg .f32 %f<12>;
ld.param.u64 %x0, [in]; ld.param.u64 %x1, [out]; ld.param.u64 %x2, [texture];
mov.u32 %t0, %ctaid.x; mov.u32 %t1, %tid.x; mad.lo.u32 %t0, %t0, 128, %t1;
mad.wide.u32 %x0, %t0, 48, %x0; mad.wide.u32 %x1, %t0, 16, %x1;
{" ".join(f"ld.global.f32 %f{i}, [%x0+{4 * i}];" for i in range(12))} cvt.rzi.s32.f32 %t2, %f3;
{text} st.global.v4.b32 [%x1], {registers}; ret; }}"""


def texels(texture: Texture, level: int) -> Words:
    rng = np.random.default_rng([9, zlib.crc32(texture.name.encode()), level])
    width, height, depth = level_size(texture, level)
    shape = (max(1, depth), max(1, height), width, texture.channels)
    kind = np.dtype(_FORMATS[texture.format][1])
    if kind.kind == "f":
        return np.asarray(rng.standard_normal(shape).astype(kind))
    return rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind)


def level_size(texture: Texture, level: int) -> tuple[int, int, int]:
    width, height, depth = _SIZES[texture.dimension]
    layered = texture.dimension in _FLAGS
    return (max(1, width >> level), max(1, height >> level) if height else 0,
            depth if layered or not depth else max(1, depth >> level))  # fmt: skip


def create(
    driver: Callable[..., None],
    texture: Texture,
    images: list[Words] | None = None,
    border: tuple[float, ...] = (0.25, -0.5, 0.75, 2.0),
) -> tuple[int, list[tuple[str, ctypes.c_void_p]]]:
    """The texture object, and calls that destroy what it reads.

    Args:
        images: Of each level, [depth, height, width, channel]; else those of the question."""
    images = images or [texels(texture, level) for level in range(texture.levels)]
    size = (images[0].shape[2], *(0 if not known else n for known, n in
                                  zip(_SIZES[texture.dimension][1:], images[0].shape[1::-1], strict=True)))  # fmt: skip
    number = _FORMATS[texture.format][0]
    described = struct.pack("<QQQiII", *size, number, texture.channels,
                            _FLAGS.get(texture.dimension, 0)) + bytes(4)  # fmt: skip
    made = ctypes.c_void_p()
    if texture.levels > 1:
        driver("cuMipmappedArrayCreate", ctypes.byref(made), described, texture.levels)
        kind, gone = 1, [("cuMipmappedArrayDestroy", made)]
    else:
        driver("cuArray3DCreate_v2", ctypes.byref(made), described)
        kind, gone = 0, [("cuArrayDestroy", made)]
    for level in range(texture.levels):
        array = made
        if texture.levels > 1:
            array = ctypes.c_void_p()
            driver("cuMipmappedArrayGetLevel", ctypes.byref(array), made, level)
        image = np.ascontiguousarray(images[level])
        depth, height, width, _ = image.shape
        row = width * image.itemsize * texture.channels
        source = struct.pack("<QQQQi4xQQQQQQ", 0, 0, 0, 0, 1, image.ctypes.data, 0, 0, 0, row, height)
        target = struct.pack("<QQQQi4xQQQQQQ", 0, 0, 0, 0, 3, 0, 0, array.value or 0, 0, 0, 0)
        driver("cuMemcpy3D_v2", source + target + struct.pack("<QQQ", row, height, depth))
    resource = struct.pack("<i4xQ", kind, made.value or 0).ljust(144, b"\0")
    settings = struct.pack("<iiiiII", *[texture.address] * 3, texture.filter, texture.flags, 0)
    settings += struct.pack("<ifff", texture.level_filter, texture.bias, *texture.clamps)
    settings += struct.pack("<ffff", *border) + bytes(48)
    handle = ctypes.c_uint64()
    driver("cuTexObjectCreate", ctypes.byref(handle), resource, settings, None)
    return handle.value, gone


def answer(driver: Driver, texture: Texture) -> Words:
    handle, gone = create(driver, texture)
    places, result = coordinates(texture), np.zeros((COUNT, 4), np.uint32)
    module = driver.load(_kernel(texture))
    addresses = driver.copy(places), driver.copy(result)
    driver.launch(module, COUNT // 128, 128, *addresses, handle)
    driver.read(addresses[1], result)
    for address in addresses:
        driver.free(address)
    driver("cuTexObjectDestroy", ctypes.c_uint64(handle))
    for name, thing in gone:
        driver(name, thing)
    driver("cuModuleUnload", module)
    return result
