"""The cache of compiled kernels stays within its bound with several writers."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from vgpusim.codegen.cache import DiskCache

from tests.daemon.running import ENVIRONMENT

OBJECT_NBYTES = 20_000  # 5 blocks of 4 KiB
BLOCKS = 5 * 4096


def key(number: int) -> str:
    return hashlib.sha256(b"%d" % number).hexdigest()


def store(cache: DiskCache, number: int) -> None:
    """Store an object whose modification time is its number."""
    cache.put(key(number), b"%07d" % number * (OBJECT_NBYTES // 7))
    path = cache.directory / key(number)[:2] / f"{key(number)}.bin"
    if path.exists():
        os.utime(path, (number, number))


def held(cache: DiskCache, numbers: range) -> list[int]:
    """Which of the numbers exist, without marking them as used."""
    return [n for n in numbers if (cache.directory / key(n)[:2] / f"{key(n)}.bin").exists()]


def nbytes_of(directory: Path) -> int:
    """Bytes that the directory's objects take up, in whole blocks."""
    return sum(-(-path.stat().st_size // 4096) * 4096 for path in directory.glob("??/*"))


def test_the_oldest_go_first(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, cap_nbytes=16 * BLOCKS)
    for number in range(1, 17):
        store(cache, number)
    assert held(cache, range(1, 20)) == list(range(1, 17))
    store(cache, 17)  # one too many: the cache removes objects until an eighth of the cap is free
    assert held(cache, range(1, 20)) == list(range(4, 18))
    assert cache.get(key(17)) == b"%07d" % 17 * (OBJECT_NBYTES // 7)
    assert cache.get(key(1)) is None


def test_what_was_used_is_not_old(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, cap_nbytes=16 * BLOCKS)
    for number in range(1, 17):
        store(cache, number)
    assert cache.get(key(1)) is not None
    store(cache, 17)
    assert held(cache, range(1, 20)) == [1, *range(5, 18)]


def test_what_an_older_release_left_counts(tmp_path: Path) -> None:
    before = DiskCache(tmp_path)
    for number in range(1, 33):
        store(before, number)
    (tmp_path / "blocks").unlink()
    store(DiskCache(tmp_path, cap_nbytes=16 * BLOCKS), 33)
    assert nbytes_of(tmp_path) <= 16 * BLOCKS
    assert held(before, range(1, 40))[-1] == 33


def test_objects_over_the_cap_and_caps_of_nothing(tmp_path: Path) -> None:
    for cap_nbytes in (0, OBJECT_NBYTES // 2):
        cache = DiskCache(tmp_path / str(cap_nbytes), cap_nbytes=cap_nbytes)
        store(cache, 1)
        assert cache.get(key(1)) is None
        assert not cache.directory.exists()


def test_other_files_of_the_tenant_stay(tmp_path: Path) -> None:
    other = tmp_path / "nvidia/ab/object"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"driver's")
    os.utime(other, (0, 0))
    cache = DiskCache(tmp_path, cap_nbytes=2 * BLOCKS)
    for number in range(1, 10):
        store(cache, number)
    assert other.read_bytes() == b"driver's"
    assert nbytes_of(tmp_path) <= 2 * BLOCKS + 4096


WORKER = """
import sys
from pathlib import Path
from vgpusim.codegen.cache import DiskCache
from tests.vgpusim.codegen.test_cache import key
first, cap_nbytes = int(sys.argv[2]), int(sys.argv[3])
cache = DiskCache(sys.argv[1], cap_nbytes=cap_nbytes)
for number in range(first, first + 200):
    data = b"%07d" % number * (20_000 // 7)
    cache.put(key(number), data)
    got = cache.get(key(number))
    assert got in (None, data), number
"""


def test_several_workers_at_once(tmp_path: Path) -> None:
    """Each worker finds what it stored, whole, or nothing; together the workers stay within the bound."""
    cap_nbytes = 64 * BLOCKS
    command = [sys.executable, "-c", WORKER, str(tmp_path)]
    started = [
        subprocess.Popen([*command, str(first), str(cap_nbytes)], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
        for first in (0, 100, 1000, 2000)  # the first two store the same objects for a while
    ]
    assert [process.communicate(timeout=60)[1] for process in started] == [""] * 4
    assert 0 < nbytes_of(tmp_path) <= cap_nbytes + 4 * BLOCKS  # each may store one while another checks the size
    assert not [path for path in tmp_path.glob("??/*") if path.suffix != ".bin"]
    cache = DiskCache(tmp_path, cap_nbytes=cap_nbytes)
    assert all(cache.get(path.stem) is not None for path in tmp_path.glob("??/*.bin"))
