"""Textures give the bits that an H200 gives (580.159.04, 2026-11-29): data/textures-h200.tsv has a digest of 8,192
words for each question of tests/gpu/textures.py. `python3 tests/gpu/oracle.py OUT --only textures` on a card asks."""

from __future__ import annotations

import ctypes
import hashlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.gpu.textures import Texture, Words, coordinates, create, textures

from .conftest import Simulator

DIGESTS = dict(line.split("\t") for line in (Path(__file__).parent / "data/textures-h200.tsv").read_text().splitlines())
FEW_SUMS = {
    f"{kind} srgb"
    for kind in ("3d u8x4 linear clamp", "3d u8x4 linear mirror normalized", "cube u8x4 linear clamp normalized")
}
FEW_LANES = {
    f"{kind} {filters} clamp normalized levels 4 linear bias {levels}"
    for kind, filters, levels in (
        ("2d f32x4", "point", "0.0 (0.0, 100.0)"),
        ("2d u8x4", "point", "0.7 (0.5, 2.25)"),
        ("3d u8x4", "point", "0.7 (0.5, 2.25)"),
        ("a2d f32x4", "point", "-1.3 (1.0, 100.0)"),
        ("a2d u8x4", "point", "-1.3 (1.0, 100.0)"),
        ("2d f32x4", "linear", "0.0 (0.0, 100.0)"),
        ("a2d f32x4", "linear", "0.0 (0.0, 100.0)"),
        ("a2d u8x4", "linear", "0.0 (0.0, 100.0)"),
        ("a2d f32x4", "linear", "-1.3 (1.0, 100.0)"),
    )
}
_GEOMETRIES = {"1d": 1, "2d": 2, "3d": 3, "a1d": 4, "a2d": 5, "cube": 6, "acube": 7}
_OPERATIONS = {"tex": 0, "tex.level": 1, "tex.grad": 2, "tld4": 3}


def digest(words: Words) -> str:
    return hashlib.sha1(np.ascontiguousarray(words).tobytes()).hexdigest()[:10]


def _rows(texture: Texture, places: Words) -> Words:
    """What a kernel's lanes hand over, as codegen/emit_texture.py lays it out: [warp, row, lane]."""
    words = np.ascontiguousarray(places).view(np.uint32).astype(np.uint64)
    axes = int(texture.dimension[-2]) if texture.dimension.endswith("d") else 3
    rows = np.zeros((len(places), 12), np.uint64)
    first = 1
    if texture.dimension.startswith("a"):
        rows[:, 1], first = places[:, 3].astype(np.int32).view(np.uint32), 2
    rows[:, first : first + axes] = words[:, :axes]
    if texture.instruction == "tex.level":
        rows[:, 5] = words[:, 4]
    elif texture.instruction == "tex.grad":
        rows[:, 5 : 5 + axes], rows[:, 5 + axes : 5 + 2 * axes] = words[:, 5 : 5 + axes], words[:, 8 : 8 + axes]
    return np.ascontiguousarray(rows.reshape(-1, 32, 12).transpose(0, 2, 1))


def _call(sim: Simulator, name: str, *arguments: object) -> None:
    if name == "cuMemcpy3D_v2":
        sim.ok("cuMemcpy3DAsync_v2", *arguments, None)
    else:
        sim.ok(name, *arguments)


def sample(sim: Simulator, texture: Texture, places: Words, images: list[Words] | None = None,
           border: tuple[float, ...] = (0.25, -0.5, 0.75, 2.0)) -> Words:  # fmt: skip
    """Four words for each place."""
    handle, gone = create(partial(_call, sim), texture, images, border)
    context = ctypes.c_void_p()
    sim.ok("cuCtxGetCurrent", ctypes.byref(context))
    sim.lib.vgx_sim_sample.restype = ctypes.c_char_p
    instruction, _, channel = texture.instruction.partition("tld4.")
    form = _GEOMETRIES[texture.dimension] | _OPERATIONS[instruction or "tld4"] << 4 | max("rgba".find(channel), 0) << 9
    rows = _rows(texture, np.concatenate([places, np.zeros((-len(places) % 32, 12), np.float32)]))
    rows[:, 0] = handle
    found = np.zeros((len(rows), 4, 32), np.uint64)
    for warp, result in zip(rows, found, strict=True):
        wrong = sim.lib.vgx_sim_sample(
            context, ctypes.c_uint64(form), 0xFFFFFFFF, ctypes.c_void_p(warp.ctypes.data), result.ctypes
        )
        assert wrong is None, wrong
    sim.ok("cuTexObjectDestroy", ctypes.c_uint64(handle))
    for name, thing in gone:
        sim.ok(name, thing)
    return np.ascontiguousarray(found.transpose(0, 2, 1)).astype(np.uint32).reshape(-1, 4)[: len(places)]


def _differs(texture: Texture) -> str:
    """Why a question has another answer here; empty: it has the card's."""
    if texture.instruction == "tex.grad" and texture.dimension == "cube":
        return "the compiler refuses gradients of cubes"
    if texture.name.removeprefix("texture tex.grad ") in FEW_LANES:
        return "the level of a few lanes is 1 or 2 of 256 away"
    if texture.name.removeprefix("texture tex ") in FEW_SUMS:
        return "of 8,192 sums in sRGB 1 to 8 are a step of a half away"
    if texture.dimension == "cube" and texture.format == "f32" and texture.level_filter and texture.bias == 0.7:
        return "one of 2,048 lanes or a few, between two levels of a cube"
    return ""


@pytest.mark.parametrize("dimension", _GEOMETRIES)
def test_as_on_a_card(sim: Simulator, dimension: str) -> None:
    asked = [t for t in textures() if t.dimension == dimension and not _differs(t)]
    differing = [
        t.name for t in asked if digest(sample(sim, t, coordinates(t))) != DIGESTS[t.name.removeprefix("texture ")]
    ]
    assert asked
    assert not differing


def test_destroyed_twice(sim: Simulator) -> None:
    """An error here; an H200's driver says success, so that no program that runs natively may expect an error."""
    handle, gone = create(partial(_call, sim), next(iter(textures())))
    sim.ok("cuTexObjectDestroy", ctypes.c_uint64(handle))
    assert sim.cuTexObjectDestroy(ctypes.c_uint64(handle)) == 1
    for name, thing in gone:
        sim.ok(name, thing)
