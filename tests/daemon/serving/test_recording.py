"""Sessions that vgpud records, and `vgpu replay`, which sends their calls once more (`make build` first)."""

from __future__ import annotations

import os
import queue
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from vgpud.cli.recording import Recording, RecordingError, Replay, read_recording
from vgpud.config import parse_config
from vgpud.tenancy import recordings
from vgpud.tenancy.recordings import open_recording

from tests.daemon.ipc_client import IpcClient
from tests.daemon.running import ENVIRONMENT, vgpud_with_real_workers
from tests.patience import PATIENCE_S

VALUES = {name: name[0] * 32 for name in ("small", "large", "other")}
CONFIG = "gpus = 'h100'\n" + "".join(f"[[tokens]]\nname = '{name}'\nvalue = '{it}'\n" for name, it in VALUES.items())
MAIN = "import sys; from vgpud.cli.main import vgpu; sys.exit(vgpu())"


def work(endpoint: str, token: str) -> None:
    client = IpcClient(endpoint, VGPU_TOKEN=VALUES[token])
    address = client("memory(40000)")
    assert client(f"put({address}, bytes(40000))") == client(f"add({address}, 10000)") == 0
    assert client(f"look({address}, 40000)") == (1).to_bytes(4, "little") * 10_000
    assert client(f"free({address})") == 0
    if token == "large":
        assert client("[put(memory(1 << 19), bytes(1 << 19)) for _ in range(3)]") == [0] * 3
    client.end()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What the sessions of two tenants have left, beside one of a tenant that is not recorded; by token."""
    directory = tmp_path_factory.mktemp("recording")
    table = f"[recording]\ntenants = ['token:small', 'token:large']\ndir = '{directory}/kept'\nsession_mib = 1\n"
    for running in vgpud_with_real_workers(directory, CONFIG + table):
        for token in VALUES:
            work(str(running.endpoint), token)
        assert running.log.count("session recorded") == 2
    paths = list((directory / "kept").rglob("*.vgpurec"))
    assert len(paths) == 2
    return {path.parent.name.removeprefix("token%3A"): path for path in paths}


def test_a_recording_is_of_the_tenant_that_is_named_and_for_vgpuds_user_alone(recorded):
    path = recorded["small"]
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent, path.parent.parent)] == [
        0o600,
        *[0o700] * 2,
    ]
    recording = read_recording(path)
    assert recording.is_whole
    assert recording.about["gpus"] == "h100"
    assert sum(entry.is_call for entry in recording.entries) == sum(not entry.is_call for entry in recording.entries)


def session_of(tenant: str) -> Any:
    return SimpleNamespace(tenant_name=tenant, epoch=7, number=1, client=SimpleNamespace(comm="python"))


def open_in(folder: Path, tenant: str) -> str:
    """Where a session of a tenant is recorded below `folder`."""
    config = parse_config(f"[recording]\ntenants = ['*']\ndir = '{folder}'", source="c.toml")
    recording = open_recording(session_of(tenant), config, {"features": []})
    assert recording is not None
    recording.close()
    return recording.path.parent.name


def test_a_worker_can_neither_exceed_nor_empty_its_recording(tmp_path):
    config = parse_config(f"[recording]\ntenants = ['*']\ndir = '{tmp_path}'\nsession_mib = 1", source="c.toml")
    warned = threading.Event()
    log = SimpleNamespace(warning=lambda *_, **__: warned.set())
    session = SimpleNamespace(**vars(session_of("uid:1")), log=log)
    recording = open_recording(session, config, {"features": []})
    assert recording is not None
    begin = recording.path.stat().st_size
    with pytest.raises(OSError, match="Invalid argument"):
        os.ftruncate(recording.fileno(), 0)
    with pytest.raises(BrokenPipeError):  # nothing reads on and on what is not kept
        all(os.write(recording.fileno(), bytes(1 << 20)) for _ in range(8))
    assert warned.wait(PATIENCE_S)
    recording.close()
    assert begin + (1 << 20) <= recording.path.stat().st_size <= begin + (1 << 20) + 64


def test_a_full_file_system_ends_a_recording_and_is_said():
    said: queue.Queue[str] = queue.Queue()
    recording = recordings.Recording(Path("/dev/full"), os.open("/dev/full", os.O_WRONLY), 1 << 20, said.put)
    os.write(recording.fileno(), b"an entry")
    assert "No space left" in said.get(timeout=PATIENCE_S)
    with pytest.raises(BrokenPipeError):
        all(os.write(recording.fileno(), bytes(1 << 20)) for _ in range(8))
    recording.close()


def test_without_a_thread_no_descriptor_stays_open(monkeypatch):
    def fails(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    opened = [os.open("/dev/null", os.O_WRONLY)]
    pipe = os.pipe

    def opens() -> tuple[int, int]:
        ends = pipe()
        opened.extend(ends)
        return ends

    monkeypatch.setattr(recordings.os, "pipe", opens)
    monkeypatch.setattr(threading.Thread, "start", fails)
    with pytest.raises(BlockingIOError, match="no thread"):
        recordings.Recording(Path("/dev/null"), opened[0], 1 << 20, lambda why: None)
    monkeypatch.undo()
    assert len(opened) == 3
    for fd in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
    assert not [thread for thread in recordings._WRITERS if not thread.is_alive()]


def test_the_end_of_vgpud_waits_once_for_all_recordings(monkeypatch):
    waited: list[float] = []

    class Endless:
        def join(self, timeout: float) -> None:
            waited.append(timeout)

    monkeypatch.setattr(recordings, "_WRITERS", {Endless() for _ in range(9)})
    monkeypatch.setattr(recordings, "time", SimpleNamespace(monotonic=lambda: 7.0 + sum(waited)))
    recordings._finish()
    assert len(waited) == 9
    assert sum(waited) == 1.0


def test_the_operators_folder_keeps_its_mode(tmp_path):
    tmp_path.chmod(0o755)
    assert open_in(tmp_path, "uid:1") == "uid%3A1"
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "uid%3A1").stat().st_mode) == 0o700


def test_a_link_in_place_of_a_tenants_folder_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o755)
    (tmp_path / "uid%3A1").symlink_to(victim)
    with pytest.raises(OSError, match="uid%3A1"):
        open_in(tmp_path, "uid:1")
    assert list(victim.iterdir()) == []
    assert stat.S_IMODE(victim.stat().st_mode) == 0o755


def test_a_replay_has_the_same_answers(recorded):
    command = [sys.executable, "-c", MAIN, "replay", str(recorded["small"])]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(" 0 different\n")
    compared = int(done.stdout.split()[2])
    assert compared >= 5


def answer_as_recorded(sock: socket.socket, recording: Recording, change: int | None) -> None:
    """A worker that answers what was recorded, but one call."""
    answers = {entry.call: entry.data for entry in recording.entries if not entry.is_call}
    for entry in (entry for entry in recording.entries if entry.is_call):
        sock.recv(len(entry.data), socket.MSG_WAITALL)
        if int.from_bytes(entry.data[6:8], "little") & 1:
            answer = bytearray(answers[entry.call])
            answer[8:12] = entry.call.to_bytes(4, "little")
            if entry.call == change:
                answer[-1] ^= 1
            sock.sendall(answer)
    sock.close()


@pytest.mark.parametrize("is_changed", [False, True])
def test_the_first_answer_that_differs_is_named(recorded, is_changed):
    recording = read_recording(recorded["small"])
    looked = next(each for each in recording.entries if not each.is_call and len(each.data) > 40_000)
    ours, theirs = socket.socketpair()
    change = looked.call if is_changed else None
    worker = threading.Thread(target=answer_as_recorded, args=(theirs, recording, change))
    worker.start()
    outcome = Replay(ours, PATIENCE_S).run(recording)
    worker.join(PATIENCE_S)
    ours.close()
    if is_changed:
        assert outcome.first is not None
        assert (outcome.different, outcome.first.call) == (1, looked.call)
        assert outcome.first.name == "cuMemcpyDtoHAsync_v2"
    else:
        assert (outcome.different, outcome.first) == (0, None)


def test_a_worker_that_ends_is_a_difference(recorded):
    """The first call without an answer is named, whatever could not be sent after it."""
    recording = read_recording(recorded["small"])
    ours, theirs = socket.socketpair()
    theirs.close()
    outcome = Replay(ours, PATIENCE_S).run(recording)
    ours.close()
    assert outcome.first is not None
    assert (outcome.different, outcome.first.call, outcome.first.replayed) == (1, 1, "the worker had ended")


def test_a_worker_that_reads_nothing_more_ends_the_replay(recorded):
    calls = [entry for entry in read_recording(recorded["small"]).entries if entry.is_call]
    ours, worker = socket.socketpair()
    with ours, worker, pytest.raises(TimeoutError):
        Replay(ours, 0.2).run(Recording({}, calls * (1 + (1 << 22) // sum(len(call.data) for call in calls))))


def test_a_file_that_is_cut_ends_with_its_last_whole_entry(recorded, tmp_path):
    data = recorded["small"].read_bytes()
    cut = tmp_path / "cut.vgpurec"
    cut.write_bytes(data[:-5])
    assert len(read_recording(cut).entries) == len(read_recording(recorded["small"]).entries) - 1
    for damaged in (b"no recording", b"VGPUREC1\4\0\0\0null"):
        cut.write_bytes(damaged)
        with pytest.raises(RecordingError):
            read_recording(cut)


def test_a_recording_is_bounded(recorded):
    assert recorded["large"].stat().st_size <= 1 << 20
    assert not read_recording(recorded["large"]).is_whole
