"""AT10, on a live worker: one ring uses objects while another destroys them. Errors are fine, a signal is not."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator

import pytest

from tests.daemon.hostile_session import CONTEXT, FUNCTION, STREAM, HostileSession
from tests.daemon.ring_memory import HEAD, RingMemory
from tests.daemon.running import Running, vgpud_with_real_workers, wait_until

OBJECTS = 200
FIRST = 1000  # id of the first object
Fields = dict[str, int]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    yield from vgpud_with_real_workers(tmp_path_factory.mktemp("rings"), "[limits]\nspare_workers = 1\n")


def make_graphs(session: HostileSession, number: int) -> None:
    session.ok("cuGraphCreate", phGraph=number)
    session.ok("cuGraphAddEmptyNode", phGraphNode=number, hGraph=number)


def make_executables(session: HostileSession, number: int) -> None:
    make_graphs(session, number)
    session.ok("cuGraphInstantiateWithFlags", phGraphExec=number, hGraph=number)


def make_modules(session: HostileSession, number: int) -> None:
    session.ok("cuModuleLoadData", module=number, image=1)
    session.ok("cuModuleGetFunction", b"store", hfunc=number, hmod=number, name_nbytes=5)


def make_libraries(session: HostileSession, number: int) -> None:
    session.ok("cuLibraryLoadData", library=number, image=1)


def make_streams(session: HostileSession, number: int) -> None:
    session.send("cuStreamCreateWithPriority", phStream=number, flags=1)


def make_events(session: HostileSession, number: int) -> None:
    session.send("cuEventCreate", phEvent=number)


def launch_of(session: HostileSession, number: int) -> bytes:
    dimensions = {f"{what}Dim{axis}": 1 for what in ("grid", "block") for axis in "XYZ"}
    fields = dimensions | {"kind": FUNCTION, "object": number, "hStream": STREAM, "params_nbytes": 8}
    return session.record("cuLaunchKernel", struct.pack("<Q", session.memory), **fields)


# By kind: maker; call that uses the object, field of its id, other fields; call that destroys it, field of its id.
SCENES = {
    "graph": (make_graphs, "cuGraphInstantiateWithFlags", "hGraph", {"phGraphExec": 5000}, "cuGraphDestroy", "hGraph"),
    "executable": (make_executables, "cuGraphLaunch", "hGraphExec", {"hStream": STREAM}, "cuGraphExecDestroy",
                   "hGraphExec"),
    "module": (make_modules, "cuLaunchKernel", "", {}, "cuModuleUnload", "hmod"),
    "library": (make_libraries, "cuLibraryGetModule", "library", {"pMod": 5000}, "cuLibraryUnload", "library"),
    "stream": (make_streams, "cuMemsetD8Async", "hStream", {"N": 64}, "cuStreamDestroy_v2", "hStream"),
    "event": (make_events, "cuEventRecordWithFlags", "hEvent", {"hStream": STREAM}, "cuEventDestroy_v2", "hEvent"),
}  # fmt: skip


def queued(record: bytes) -> bytes:
    """The same record without the flag that asks for a reply: the reply area of a ring holds a single reply."""
    changed = bytearray(record)
    changed[6:8] = bytes(2)
    return bytes(changed)


@pytest.mark.parametrize("scene", SCENES)
def test_at10_one_ring_uses_what_another_destroys(scene: str, running: Running) -> None:
    make, user, used, more, destroyer, destroyed = SCENES[scene]
    with HostileSession(running) as session:
        for number in range(FIRST, FIRST + OBJECTS):
            make(session, number)
        rings = [RingMemory(session.sock, number) for number in range(2)]
        uses, ends = [], []
        for number in range(FIRST, FIRST + OBJECTS):
            fields: Fields = {name: value + number if value == 5000 else value for name, value in more.items()}
            if scene == "stream":
                fields["dstDevice"] = session.memory
            record = session.record(user, **{used: number}, **fields) if used else launch_of(session, number)
            uses.append(queued(record))
            ends.append(queued(session.record(destroyer, context=CONTEXT, **{destroyed: number})))

        def push(ring: RingMemory, records: list[bytes]) -> None:
            for record in records:
                ring.push(record)
            wait_until(lambda: ring.word(HEAD) == ring.tail)

        threads = [threading.Thread(target=push, args=pair) for pair in zip(rings, (uses, ends), strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        session.call("cuCtxSynchronize")  # returns the first of many deferred errors
        assert session.is_served()
    assert session.ended()[0] == "exit 0"
