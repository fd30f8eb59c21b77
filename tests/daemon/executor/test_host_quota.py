"""AT9: files that clients offer as host memory may be sparse, and a real driver allocates every page that it registers.
So the number of bytes that all sessions of a tenant together have mapped is limited."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.daemon.hostile_session import PINNED, STREAM, HostileSession
from tests.daemon.running import Running, vgpud_with_real_workers

GIB = 1 << 30
OUT_OF_MEMORY = 2
FAR = PINNED + (1 << 41)


@contextmanager
def limited(folder: Path, mib: int) -> Iterator[Running]:
    yield from vgpud_with_real_workers(folder, f"[limits]\nhost_memory_mib = {mib}\n")


def offer(session: HostileSession, address: int, nbytes: int) -> int:
    fd, result = session.offer_pinned(address, nbytes)
    os.close(fd)
    return result


def test_AT9_a_tebibyte_of_holes_is_refused_and_the_session_goes_on(tmp_path: Path) -> None:
    with limited(tmp_path, 4096) as running, HostileSession(running) as session:
        assert offer(session, PINNED, 1 << 40) == OUT_OF_MEMORY
        assert "limits.host_memory_mib" in session.ok("vgpuTakeReasons", capacity=4096).decode(errors="replace")
        assert offer(session, PINNED, GIB) == 0  # the address is free again
        assert session.is_served()


def test_AT9_sessions_of_one_tenant_are_counted_together(tmp_path: Path) -> None:
    with limited(tmp_path, 4096) as running, HostileSession(running) as one, HostileSession(running) as two:
        assert offer(one, PINNED, 3 * GIB) == 0
        assert offer(two, PINNED, 2 * GIB) == OUT_OF_MEMORY
        assert offer(two, PINNED, GIB) == 0
        assert one.call("vgpuHostUnmap", address=PINNED)[0] == 0
        assert offer(two, FAR, 3 * GIB) == 0
        assert offer(one, PINNED, 4096) == OUT_OF_MEMORY


def test_AT9_what_a_session_had_is_free_at_its_end(tmp_path: Path) -> None:
    with limited(tmp_path, 64) as running:
        for _ in range(3):
            with HostileSession(running) as session:
                assert offer(session, PINNED, 64 << 20) == 0


def test_AT9_what_a_session_had_is_free_although_its_threads_do_not_return(tmp_path: Path) -> None:
    """They wait for a word that nobody writes."""
    with limited(tmp_path, 64) as running:
        for _ in range(2):
            with HostileSession(running) as session:
                assert offer(session, PINNED, 64 << 20) == 0
                session.wait_for_a_word()
                session.send_queued("cuStreamSynchronize", hStream=STREAM)
            session.ended()
            session.ended()


@pytest.mark.control("AT9")
@pytest.mark.parametrize("mib", [1 << 30])
def test_AT9_control_without_the_bound_it_is_mapped(tmp_path: Path, mib: int) -> None:
    """Control for the tests above: with a limit of a pebibyte the same offer is mapped."""
    with limited(tmp_path, mib) as running, HostileSession(running) as session:
        assert offer(session, PINNED, 1 << 40) == 0
