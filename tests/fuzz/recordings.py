"""Recorded sessions of real programs as inputs of the search.

`python -m tests.fuzz.recordings FOLDER PROGRAM...` records programs on a simulated H100; the search reads them with
`--recordings FOLDER`.
"""

from __future__ import annotations

import argparse
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from vgpud._gen.api import HAS_FD, HEADER, WANT_REPLY
from vgpud.cli.private_daemon import PrivateDaemon
from vgpud.cli.recording import read_recording

from tests.fuzz.stream import BY_NAME

STEP = struct.Struct("<II")  # struct vgt_step
INPUT = struct.Struct("<III4x")  # struct vgt_input without its data: bytes, steps, no walk
INPUT_NBYTES, RECORD_NBYTES = 128 << 10, 8 << 10  # VGT_INPUT_NBYTES, VGT_RECORD_NBYTES
INPUTS_MAX = 100  # VGT_BATCH
STEPS_MAX = 256
RING, SOCKET = 0, 2


def steps_of(path: Path, on_socket: set[str], left_out: set[str]) -> Iterator[bytes]:
    """The calls of a recording that the search can make, each with the channel that it belongs on."""
    names = {record.opcode: name for name, record in BY_NAME.items()}
    for entry in read_recording(path).entries:
        if not entry.is_call or len(entry.data) > RECORD_NBYTES or len(entry.data) % 8:
            continue
        length, opcode, flags, sequence, context = HEADER.unpack_from(entry.data)
        name = names.get(opcode)
        if name is None or name in left_out or flags & HAS_FD or length != len(entry.data):
            continue
        header = HEADER.pack(length, opcode, flags & ~WANT_REPLY, sequence, min(context, 1))
        channel = SOCKET if name in on_socket else RING
        yield STEP.pack(channel, length) + header + entry.data[HEADER.size :]


def write_inputs(target: Path, recordings: Iterable[Path], on_socket: set[str], left_out: set[str]) -> int:
    """Write inputs as vgt_batch_load reads them; return how many. Raises OSError, RecordingError."""
    made = []
    for path in recordings:
        data, count = b"", 0
        for step in steps_of(path, on_socket, left_out):
            if count == STEPS_MAX or len(data) + len(step) > INPUT_NBYTES:
                made.append(INPUT.pack(len(data), count, 0) + data)
                data, count = b"", 0
            data, count = data + step, count + 1
        if count:
            made.append(INPUT.pack(len(data), count, 0) + data)
    target.write_bytes(b"".join(made[:INPUTS_MAX]))
    return min(len(made), INPUTS_MAX)


def record(folder: Path, programs: list[str], timeout_s: float = 120.0) -> None:
    """Run the programs one after the other. Raises subprocess.SubprocessError, PrivateDaemonError."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "vgpud.toml"
    config.write_text(f"[recording]\ntenants = ['*']\ndir = '{folder.resolve()}'\nsession_mib = 2\n")
    vgpu = [sys.executable, "-c", "import sys; from vgpud.cli.main import vgpu; sys.exit(vgpu())"]
    with PrivateDaemon("h100", config=config, log=folder / "log", timeout_s=timeout_s) as daemon:
        for program in programs:
            command = [*vgpu, "run", "--endpoint", str(daemon.endpoint), "--", program]
            subprocess.run(command, check=True, timeout=timeout_s)


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.fuzz.recordings")
    parser.add_argument("folder", type=Path)
    parser.add_argument("programs", nargs="+")
    given = parser.parse_args()
    record(given.folder, given.programs)


if __name__ == "__main__":
    main()
