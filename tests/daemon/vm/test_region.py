"""Memory that a VM shares with the host: how it is divided, cleared, locked and refused. A file replaces the device."""

import asyncio
import itertools
import os
import random
import threading
from pathlib import Path

import pytest
import vgpud.vm.region
from vgpud.config_tables import VmConfig
from vgpud.vm.region import HEADER_NBYTES, MIB, PAGE_NBYTES, Range, Region, RegionError, clear

from tests.patience import PATIENCE_S

NBYTES = 32 * MIB


def config(path: Path, mib: int = 32, sessions: int = 1, group: str | None = None) -> VmConfig:
    return VmConfig(name="one", cid=3, ivshmem=str(path), ivshmem_mib=mib, ivshmem_sessions=sessions, group=group)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    shm = Path("/dev/shm")
    return (shm if shm.is_dir() else tmp_path) / f"vgt-region-{os.getpid()}-{tmp_path.name}"


@pytest.fixture(autouse=True)
def removed(file: Path):
    yield
    file.unlink(missing_ok=True)


@pytest.mark.asyncio
async def test_the_header_names_the_region(file):
    region = Region.open(config(file))
    data = file.read_bytes()
    assert data[:8] == b"VGPUREGN"
    assert data[8:24] == region.cookie
    assert int.from_bytes(data[24:32], "little") == NBYTES == len(data)
    assert file.stat().st_mode & 0o777 == 0o600
    assert region.fields == {"cookie": region.cookie, "nbytes": NBYTES}
    await region.close()
    again = Region.open(config(file))
    assert again.cookie != region.cookie
    await again.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", range(20))
async def test_ranges_are_disjoint_whole_pages_and_come_back(file, seed):
    rng = random.Random(seed)
    sessions = rng.randrange(1, 11)

    region = Region.open(config(file, 256, sessions))
    held: list[Range] = []
    for _ in range(60):
        if rng.random() < 0.6:
            got = await region.take()
            assert (got is None) == (len(held) == sessions)
            if got is not None:
                held.append(got)
        elif held:
            region.give_back(held.pop(rng.randrange(len(held))))
            await asyncio.gather(*region._clearing)
        for part in held:
            assert part.offset % PAGE_NBYTES == part.nbytes % PAGE_NBYTES == 0
            assert HEADER_NBYTES <= part.offset <= part.offset + part.nbytes <= region.nbytes
        ordered = sorted(held, key=lambda part: part.offset)
        assert all(a.offset + a.nbytes <= b.offset for a, b in itertools.pairwise(ordered))
        assert region.free_count + len(held) == sessions
    await region.close()


@pytest.mark.asyncio
async def test_a_range_is_used_again_as_late_as_can_be(file):
    region = Region.open(config(file, 128, 4))
    first = await region.take()
    region.give_back(first)
    await asyncio.gather(*region._clearing)
    others = [await region.take() for _ in range(4)]
    assert others.index(first) == 3
    await region.close()


@pytest.mark.asyncio
async def test_old_bytes_are_gone_before_a_range_is_given_out_and_after_it_was_given_back(file):
    region = Region.open(config(file))
    part = await region.take()
    os.pwrite(region.fd, b"secret", part.offset + 5000)
    region.give_back(part)
    await asyncio.gather(*region._clearing)
    assert os.pread(region.fd, 6, part.offset + 5000) == bytes(6)
    os.pwrite(region.fd, b"late", part.offset + 9000)  # a client that has not noticed that its session has ended
    assert await region.take() == part
    assert os.pread(region.fd, 6, part.offset + 9000) == bytes(6)
    await region.close()


@pytest.mark.asyncio
async def test_bytes_of_an_earlier_vgpud_are_gone(file):
    file.write_bytes(b"\xaa" * NBYTES)
    region = Region.open(config(file))
    assert file.read_bytes()[32:].count(0) == NBYTES - 32
    await region.close()


def test_clearing_gives_the_host_its_memory_back(file):
    file.write_bytes(b"\xaa" * NBYTES)
    fd = os.open(file, os.O_RDWR)
    clear(fd, PAGE_NBYTES, NBYTES - PAGE_NBYTES)
    assert os.fstat(fd).st_blocks * 512 <= 64 * 1024
    assert os.pread(fd, PAGE_NBYTES, 0) == b"\xaa" * PAGE_NBYTES
    os.close(fd)


def test_a_file_system_without_holes_is_written_to(file, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(95, "not supported")

    monkeypatch.setattr("vgpud.vm.region._fallocate", refuse)
    file.write_bytes(b"\xaa" * (9 * MIB))
    fd = os.open(file, os.O_RDWR)
    clear(fd, 100, 8 * MIB + 1)
    data = file.read_bytes()
    assert (data[:100], data[100 : 101 + 8 * MIB], data[101 + 8 * MIB :]) == (
        b"\xaa" * 100,
        bytes(8 * MIB + 1),
        b"\xaa" * (MIB - 101),
    )
    os.close(fd)


@pytest.mark.parametrize(("mib", "ranges"), [(32, 1), (64, 2), (128, 4), (1024, 4)])
def test_without_a_number_there_are_as_many_ranges_as_make_sense(mib, ranges):
    assert VmConfig(name="one", cid=3, ivshmem="/x", ivshmem_mib=mib).ivshmem_ranges == ranges


@pytest.mark.asyncio
async def test_two_vgpuds_do_not_share_a_region(file, monkeypatch):
    monkeypatch.setattr("vgpud.vm.region._LOCK_TIMEOUT_S", 0.1)
    region = Region.open(config(file))
    with pytest.raises(RegionError, match="another vgpud uses it"):
        Region.open(config(file))
    await region.close()


@pytest.mark.parametrize("kind", ["link", "directory", "size", "fifo", "nowhere", "group"])
def test_what_is_no_region_is_refused_in_a_line(file, tmp_path, kind):
    target, group = file, None
    match kind:
        case "link":
            (tmp_path / "real").write_bytes(b"")
            target = tmp_path / "link"
            target.symlink_to(tmp_path / "real")
        case "directory":
            target = tmp_path
        case "size":
            file.write_bytes(b"precious")
        case "fifo":
            target = tmp_path / "fifo"
            os.mkfifo(target)
        case "nowhere":
            target = tmp_path / "missing" / "file"
        case "group":
            group = "no-such-group"
    with pytest.raises(RegionError) as error:
        Region.open(config(target, group=group))
    assert str(target) in str(error.value)
    assert "\n" not in str(error.value)
    if kind == "size":
        assert file.read_bytes() == b"precious"
    if kind == "group":
        assert not file.exists()


@pytest.mark.parametrize(
    ("mib", "sessions", "path"), [(48, 1, "/x"), (32, 2, "/x"), (256, 11, "/x"), (64, 1, "relative")]
)
def test_a_configuration_that_cannot_be(mib, sessions, path):
    with pytest.raises(ValueError, match="ivshmem"):
        VmConfig(name="one", cid=3, ivshmem=path, ivshmem_mib=mib, ivshmem_sessions=sessions)


def test_a_file_system_without_the_room_is_refused(file):
    room = os.statvfs(file.parent)
    mib = 1 << max(5, (room.f_bavail * room.f_frsize // MIB).bit_length())
    if mib > 1 << 20:
        pytest.skip(f"{file.parent} has more room than a region can want")
    with pytest.raises(RegionError, match="has room for"):
        Region.open(config(file, mib))


@pytest.mark.asyncio
async def test_a_range_is_nobodys_while_a_thread_still_clears_it(file, monkeypatch):
    """The task that took the range is cancelled; no other session gets the range while a thread still clears it."""
    go, cleared = threading.Event(), []

    def slowly(fd: int, offset: int, nbytes: int) -> None:
        if cleared == []:
            cleared.append(False)
            go.wait(PATIENCE_S)
            cleared[0] = True
        clear(fd, offset, nbytes)

    region = Region.open(config(file))
    monkeypatch.setattr(vgpud.vm.region, "clear", slowly)
    first = asyncio.create_task(region.take())
    while not cleared:
        await asyncio.sleep(0.001)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert region.free_count == 0
    assert await region.take() is None
    go.set()
    await asyncio.gather(*region._clearing)
    assert cleared == [True]
    taken = await region.take()
    assert taken is not None
    await region.close()


@pytest.mark.asyncio
async def test_a_range_that_cannot_be_cleared_is_tried_again(file, monkeypatch):
    def fails(fd: int, offset: int, nbytes: int) -> None:
        raise OSError(28, "no space")

    region = Region.open(config(file))
    with monkeypatch.context() as patch:
        patch.setattr(vgpud.vm.region, "clear", fails)
        with pytest.raises(OSError, match="no space"):
            await region.take()
    await asyncio.sleep(0)
    assert await region.take() is not None
    await region.close()
