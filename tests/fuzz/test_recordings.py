"""Recordings as inputs of the search."""

from __future__ import annotations

import struct
from pathlib import Path

from vgpud._gen.api import HAS_FD, HEADER, WANT_REPLY
from vgpud.tenancy.recordings import MAGIC

from tests.fuzz.recordings import INPUT, RING, SOCKET, STEP, write_inputs
from tests.fuzz.stream import BY_NAME


def call(name: str, flags: int = 0, nbytes: int = 8) -> bytes:
    return HEADER.pack(HEADER.size + nbytes, BY_NAME[name].opcode, flags, 5, 3) + bytes(nbytes)


def test_a_recordings_calls_become_inputs_without_what_the_search_cannot_send(tmp_path: Path) -> None:
    entries = [
        call("cuEventCreate", WANT_REPLY),
        call("vgpuHostMap", HAS_FD),
        call("vgpuImageWrite", nbytes=8 << 10),
        call("vgpuImageDrop"),
        call("vgpuRingFence"),
    ]
    recording = tmp_path / "a.vgpurec"
    recording.write_bytes(
        MAGIC
        + struct.pack("<I", 2)
        + b"{}"
        + b"".join(struct.pack("<IIQ", 1, len(entry), n) + entry for n, entry in enumerate(entries, 1))
    )
    target = tmp_path / "inputs"
    assert write_inputs(target, [recording], {"vgpuImageDrop"}, {"vgpuRingFence"}) == 1
    steps = b""
    for name, channel in (("cuEventCreate", RING), ("vgpuImageDrop", SOCKET)):
        header = HEADER.pack(HEADER.size + 8, BY_NAME[name].opcode, 0, 5, 1)
        steps += STEP.pack(channel, HEADER.size + 8) + header + bytes(8)
    assert target.read_bytes() == INPUT.pack(len(steps), 2, 0) + steps
