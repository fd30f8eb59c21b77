"""Textures give the bits that an H200 gives (580.159.04, 2026-11-29): data/textures-h200.tsv has a digest of 8,192
words for each question of tests/gpu/textures.py. `python3 tests/gpu/oracle.py OUT --only textures` on a card asks."""

from __future__ import annotations

import ctypes
import hashlib
from pathlib import Path

import numpy as np
import pytest

from tests.gpu.textures import COUNT, Texture, coordinates, create, textures

from .conftest import Simulator

DIGESTS = dict(line.split("\t") for line in (Path(__file__).parent / "data/textures-h200.tsv").read_text().splitlines())
_GEOMETRIES = {"1d": 1, "2d": 2, "3d": 3, "a1d": 4, "a2d": 5, "cube": 6, "acube": 7}
_OPERATIONS = {"tex": 0, "tex.level": 1, "tex.grad": 2, "tld4": 3}


def _rows(texture: Texture) -> np.ndarray:  # type: ignore[type-arg]
    """What a kernel's lanes hand over, as codegen/emit_texture.py lays it out: [warp, row, lane]."""
    words = coordinates(texture).view(np.uint32).astype(np.uint64)
    layers = coordinates(texture)[:, 3].astype(np.int32).view(np.uint32).astype(np.uint64)
    axes = int(texture.dimension[-2]) if texture.dimension.endswith("d") else 3
    rows = np.zeros((COUNT, 12), np.uint64)
    first = 1
    if texture.dimension.startswith("a"):
        rows[:, 1], first = layers, 2
    rows[:, first : first + axes] = words[:, :axes]
    if texture.instruction == "tex.level":
        rows[:, 5] = words[:, 4]
    elif texture.instruction == "tex.grad":
        rows[:, 5 : 5 + axes], rows[:, 5 + axes : 5 + 2 * axes] = words[:, 5 : 5 + axes], words[:, 8 : 8 + axes]
    return np.ascontiguousarray(rows.reshape(COUNT // 32, 32, 12).transpose(0, 2, 1))


def _answer(sim: Simulator, texture: Texture) -> str:
    def call(name: str, *arguments: object) -> None:
        if name == "cuMemcpy3D_v2":
            sim.ok("cuMemcpy3DAsync_v2", *arguments, None)
        else:
            sim.ok(name, *arguments)

    handle, gone = create(call, texture)
    context = ctypes.c_void_p()
    sim.ok("cuCtxGetCurrent", ctypes.byref(context))
    sim.lib.vgx_sim_sample.restype = ctypes.c_char_p
    instruction, _, channel = texture.instruction.partition("tld4.")
    form = _GEOMETRIES[texture.dimension] | _OPERATIONS[instruction or "tld4"] << 4 | max("rgba".find(channel), 0) << 9
    rows, found = _rows(texture), np.zeros((COUNT // 32, 4, 32), np.uint64)
    rows[:, 0] = handle
    for warp, result in zip(rows, found, strict=True):
        wrong = sim.lib.vgx_sim_sample(
            context, ctypes.c_uint64(form), 0xFFFFFFFF, ctypes.c_void_p(warp.ctypes.data), result.ctypes
        )
        assert wrong is None, wrong
    sim.ok("cuTexObjectDestroy", ctypes.c_uint64(handle))
    for name, thing in gone:
        sim.ok(name, thing)
    words = np.ascontiguousarray(found.transpose(0, 2, 1)).astype(np.uint32)
    return hashlib.sha1(words.tobytes()).hexdigest()[:10]


def _differs(texture: Texture) -> str:
    """Why a question has another answer here; empty: it has the card's."""
    if texture.instruction == "tex.grad":
        return "the level of gradients"
    if texture.name.endswith("srgb"):
        return "sRGB is refused"
    if texture.format == "s8" and texture.filter:
        return "8-bit signed integers between two texels"
    if texture.dimension == "cube" and texture.format == "f32" and texture.level_filter and texture.bias == 0.7:
        return "one of 2,048 lanes or a few, between two levels of a cube"
    return ""


@pytest.mark.parametrize("dimension", _GEOMETRIES)
def test_as_on_a_card(sim: Simulator, dimension: str) -> None:
    asked = [t for t in textures() if t.dimension == dimension and not _differs(t)]
    differing = [t.name for t in asked if _answer(sim, t) != DIGESTS[t.name.removeprefix("texture ")]]
    assert asked
    assert not differing
