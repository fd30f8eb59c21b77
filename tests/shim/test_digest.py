"""The guest's digest of images equals Python's BLAKE2b, in any number of parts."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from vgpud.services.image_digest import image_digest

ROOT = Path(__file__).resolve().parents[2]
LEAF = 16384


@pytest.fixture(scope="module", params=["this machine's", "without AVX2"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("digest") / "digest"
    sources = [ROOT / "tests/shim/vgt_digest.c", ROOT / "shim/cuda/vgs_digest.c"]
    options = ["-std=gnu11", "-O2", "-Wall", "-Werror", "-fsanitize=undefined", "-fno-sanitize-recover=undefined"]
    plain = ["-DVGS_DIGEST_PLAIN"] if request.param == "without AVX2" else []
    subprocess.run(["gcc", *options, *plain, f"-I{ROOT / 'shim/cuda'}", "-o", output, *sources], check=True)
    return output


def digest(program: Path, data: bytes, *parts: int) -> bytes:
    command = [program, *map(str, parts)]
    done = subprocess.run(command, input=data, capture_output=True, check=True, timeout=60)
    return bytes.fromhex(done.stdout.decode())


@pytest.mark.parametrize("parts", [(0,), (1000, 70_000), (4 * LEAF,), (4 * LEAF + 1, 3), (LEAF,)])
def test_equals_hashlib(program: Path, parts: tuple[int, ...]) -> None:
    for leaves in (0, 1, 2, 3, 4, 5, 8, 9, 61):
        for odd in (-1, 0, 1, 128, 129):
            data = random.Random(leaves).randbytes(max(0, leaves * LEAF + odd))
            assert digest(program, data, *parts) == image_digest(data), (leaves, odd)


def test_every_byte_counts(program: Path) -> None:
    data = bytearray(random.Random(1).randbytes(5 * LEAF + 77))
    seen = {digest(program, bytes(data), 0)}
    for at in (0, LEAF - 1, LEAF, 4 * LEAF, 5 * LEAF + 76):
        changed = data.copy()
        changed[at] ^= 1
        seen.add(digest(program, bytes(changed), 0))
    assert len(seen) == 6
