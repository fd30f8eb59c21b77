"""Textures at their edges, as an H200 answers (580.159.04, 2026-11-30): digests of its words for each question."""

from __future__ import annotations

import ctypes
import itertools
import struct

import numpy as np
import pytest

from tests.gpu.textures import Texture, Words

from .conftest import Simulator
from .test_texture import digest, sample

INTEGER, NORMALIZED, SRGB = 1, 2, 0x10
SINGLES = np.array([0, 0x80000000, 1, 0x80000001, 0x7FFFFF, 0x800000, 0xFFFFFF, 0x3F800000, 0xBF800000, 0x7F7FFFFF,
                    0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC12345, 0x7F812345, 0x34000000, 0x40490FDB],
                   np.uint32).view(np.float32)  # fmt: skip
HALVES = np.array([0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x401, 0x7FF, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00,
                   0x7E00, 0xFE34, 0x7D23, 0x3555, 0x10, 0x200], np.uint16).view(np.float16)  # fmt: skip
PLACES = np.array([0, 0x80000000, 1, 0x80000001, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x7F7FFFFF, 0xFF7FFFFF,
                   0x4F000000, 0xCF000000, 0x4EFFFFFF, 0x5F000000, 0x4B800000, 0xCB800000, 0x4A800001, 0x49800001,
                   0x47000001, 0x46FFFE01, 0xB3800000, 0xB4000000, 0xB4800000, 0xB3000000, 0x33800000, 0x34000000,
                   0x3F7FFFFF, 0x3F800000], np.uint32).view(np.float32)  # fmt: skip

DIGEST_SPECIAL = {"f32": "202179b010", "f16": "2e6d8f5ffd"}
DIGEST_PLACES = {0: "f9728a3793", 1: "ce51007fbe"}
DIGEST_INTEGERS = {
    "u8": "9faca0a8e4",
    "s8": "9fe9d172e3",
    "u16": "e0d4e067d5",
    "s16": "92f88c79f1",
    "u32": "8f5a12d55b",
    "s32": "5a91e128e6",
}
MISALIGNED = b"a misaligned access of a surface"
DIGEST_BYTES = "9eba7d37c5"
DIGEST_SRGB = "8480f4f617"
DIGEST_LEVELS = {
    "ramp": "ddff227a10",
    "ratio": "33f4a0161b",
    "angle": "d834066890",
    "cross": "507b772b5e",
    "triple": "dca63e9018",
}


def _at(**columns: object) -> Words:
    names = ("x", "y", "z", "layer", "level", "dx0", "dx1", "dx2", "dy0", "dy1", "dy2")
    values = {name: np.atleast_1d(np.asarray(value)) for name, value in columns.items()}
    found = np.zeros((max(map(len, values.values())), 12), np.float32)
    for name, value in values.items():
        found[:, names.index(name)] = value
    return found


def _levels(width: int, height: int, depth: int = 1) -> list[Words]:
    """Six levels of an image, or five of a volume; each texel is its level's number."""
    count = 6 if depth == 1 else 5
    sizes = [[max(1, n >> level) for n in (depth, height, width)] for level in range(count)]
    return [np.full((*size, 1), level, np.float32) for level, size in enumerate(sizes)]


@pytest.mark.parametrize(("form", "values"), [("f32", SINGLES), ("f16", HALVES)])
def test_zeros_subnormals_infinities_nans(sim: Simulator, form: str, values: Words) -> None:
    """Between any two of them at five places: single precision has no subnormals, and each NaN is the same."""
    pairs = np.array(list(itertools.product(values, values))).reshape(1, 1, -1, 1)
    texture = Texture("1d", form, 1, 1)
    found = [sample(sim, texture, _at(x=2 * np.arange(len(values) ** 2) + 0.5 + w / 256), [pairs])[:, 0]
             for w in (0, 1, 64, 128, 255)]  # fmt: skip
    assert digest(np.concatenate(found)) == DIGEST_SPECIAL[form]


@pytest.mark.parametrize("linear", [0, 1])
def test_any_coordinate(sim: Simulator, linear: int) -> None:
    """Subnormal, huge and infinite coordinates and NaNs, and those of many binades."""
    rng = np.random.default_rng(11)
    places = np.concatenate([PLACES, *((rng.uniform(-1, 1, 256) * 2.0**k).astype(np.float32) for k in range(0, 34, 2))])
    image = np.arange(37, dtype=np.float32).reshape(1, 1, 37, 1)
    found = [sample(sim, Texture("1d", "f32", 1, linear, address, flags), _at(x=places), [image])[:, 0]
             for address, flags in itertools.product(range(3), (0, NORMALIZED))]  # fmt: skip
    assert digest(np.concatenate(found)) == DIGEST_PLACES[linear]


@pytest.mark.parametrize(("form", "channels"), [("u8", 4), ("s8", 2), ("u16", 1), ("s16", 4), ("u32", 1), ("s32", 4)])
def test_integers_between_texels(sim: Simulator, form: str, channels: int) -> None:
    """A linear filter of a texture that is read as integers gives integers."""
    x = np.concatenate([np.arange(-2, 10, 1 / 16), 2 + np.arange(256) / 256]).astype(np.float32)
    kind = np.dtype(f"{form[0].replace('s', 'i')}{int(form[1:]) // 8}")
    limits = np.iinfo(kind)
    image = np.random.default_rng(5).integers(limits.min, limits.max + 1, (1, 8, 8, channels)).astype(kind)
    texture = Texture("2d", form, channels, 1, 1, INTEGER)
    places = _at(x=x, y=(x + np.float32(0.3) / 8).astype(np.float32))
    assert digest(sample(sim, texture, places, [image])) == DIGEST_INTEGERS[form]


def test_edges_of_a_cube(sim: Simulator) -> None:
    """Directions of two or three equal components have a face, too."""
    image = np.zeros((6, 8, 8, 4), np.float32)
    image[..., 0], image[..., 1], image[..., 2] = np.ogrid[:6, :8, :8]
    directions = np.array([d for d in itertools.product((-1, -0.5, 0, 0.5, 1), repeat=3) if any(d)])
    places = _at(x=directions[:, 0], y=directions[:, 1], z=directions[:, 2])
    found = sample(sim, Texture("cube", "f32", 4, 0, 1, NORMALIZED), places, [image])
    assert digest(found[:, :3]) == "3f3f00d311"


def test_signed_bytes(sim: Simulator) -> None:
    image = np.zeros((1, 1, 512, 1), np.int8)
    image[0, 0, ::2, 0] = np.arange(-128, 128)
    x = (np.arange(256)[:, None] * 2 + 0.5 + np.arange(0, 256, 5) / 256).ravel()
    found = sample(sim, Texture("1d", "s8", 1, 1), _at(x=x), [image])[:, 0].copy().view(np.float32)
    assert digest(np.rint(found.astype(np.float64) * 32767).astype(np.int16)) == DIGEST_BYTES


def test_srgb(sim: Simulator) -> None:
    """Each value; the last of four channels is linear."""
    image = np.repeat(np.arange(256, dtype=np.uint8), 4).reshape(1, 1, 256, 4)
    found = sample(sim, Texture("1d", "u8", 4, 0, 1, SRGB), _at(x=np.arange(256) + 0.5), [image])
    assert digest(found) == DIGEST_SRGB


def test_borders(sim: Simulator) -> None:
    """Colours between two values of the format: the fraction has four bits when they are rounded."""

    def border(form: str, flags: int, *color: float) -> Words:
        image = np.ones((1, 1, 4, 4), {"u8": np.uint8, "s16": np.int16, "f16": np.float16}[form])
        return sample(sim, Texture("1d", form, 4, 0, 3, flags), _at(x=-3), [image], color)[0]

    found = border("u8", 0, 0.1432485282421112, 0.5, float("nan"), 2).view(np.float32) * 255
    assert np.rint(found).tolist() == [36, 127, 0, 255]
    found = border("s16", 0, -0.9698629975318909, 0.5, -2, 1).view(np.float32) * 32767
    assert np.rint(found).tolist() == [-31779, 16383, -32767, 32767]
    assert border("f16", 0, 1e-7, 1, -0.5, 0).view(np.float32).tolist() == [2.0**-24, 1, -0.5, 0]
    raw = np.array([0x12345678, 0x437F0000, 0x1FF, 0x80000000], np.uint32).view(np.float32)
    assert border("u8", INTEGER, *raw.tolist()).tolist() == [0x78, 0, 0xFF, 0]


def test_levels_of_gradients(sim: Simulator) -> None:
    steps, angle = np.arange(4096) / 4096, np.arange(4096) / 4096 * np.pi / 2
    questions = {
        "ramp": ("1d", (37, 1), {"dx0": (1 + steps) * 2 / 37}),
        "ratio": ("1d", (37, 1), {"dx0": 3.3 / 37, "dy0": 3.3 * steps / 37}),
        "angle": ("2d", (64, 16), {"dx0": 2.6 * np.cos(angle) / 64, "dx1": 2.6 * np.sin(angle) / 16}),
        "cross": ("2d", (64, 16), {"dx0": 2 / 64, "dx1": 1 / 16, "dy0": -steps / 64, "dy1": 2 * steps / 16}),
        "triple": ("3d", (32, 16, 8), {"dx0": 2 / 32, "dx1": 1 / 16, "dx2": 2 * steps[::4] / 8}),
    }
    for name, (dimension, size, gradients) in questions.items():
        images = _levels(*size)
        texture = Texture(dimension, "f32", 1, 0, 1, NORMALIZED, "tex.grad", len(images), 1)
        found = sample(sim, texture, _at(x=0.5, y=0.5, z=0.5, **gradients), images)[:, 0].copy().view(np.float32)
        assert digest(np.rint(found.astype(np.float64) * 256).astype(np.int16)) == DIGEST_LEVELS[name], name


@pytest.mark.parametrize(("count", "x", "wrong"), [(2, 8, None), (2, 4, MISALIGNED), (4, 8, MISALIGNED), (1, 4, None)])
def test_a_surface_is_read_by_whole_vectors(sim: Simulator, count: int, x: int, wrong: bytes | None) -> None:
    """A card answers 716 where a vector's address is no multiple of its size, though its elements are aligned."""
    array, handle, context = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p()
    described = struct.pack("<QQQiII", 8, 1, 0, 3, 1, 2) + bytes(4)  # u32, CUDA_ARRAY3D_SURFACE_LDST
    sim.ok("cuArray3DCreate_v2", ctypes.byref(array), described)
    sim.ok("cuSurfObjectCreate", ctypes.byref(handle), struct.pack("<i4xQ", 0, array.value or 0).ljust(144, b"\0"))
    sim.ok("cuCtxGetCurrent", ctypes.byref(context))
    sim.lib.vgx_sim_sample.restype = ctypes.c_char_p
    rows, found = np.zeros((12, 32), np.uint64), np.zeros((4, 32), np.uint64)
    rows[0], rows[1] = handle.value, x
    form = 2 | 4 << 4 | 1 << 8 | count << 16 | 4 << 20  # suld.b.2d.v<count>.b32.trap
    assert sim.lib.vgx_sim_sample(context, ctypes.c_uint64(form), 1, rows.ctypes, found.ctypes) == wrong
    sim.ok("cuSurfObjectDestroy", handle)
    sim.ok("cuArrayDestroy", array)
