"""Workers with user ids of their own: what a worker could do to another if only the ids separated them (AT24)."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from vgpud.cli.client import RefusedError
from vgpud.supervision import user_namespace
from vgpud.tenancy.cache_folder import open_driver_folders, open_shared
from vgpud.worker import user_ids

from tests.daemon.running import ENVIRONMENT, Running, start_client, vgpud_with_real_workers, wait_until

CAPABILITIES = "+setuid,+setgid"
PTRACE_SEIZE = 0x4206
OTHER = 61000  # a user that this host does not know


def needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("other users are root's to be")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    yield from vgpud_with_real_workers(tmp_path)


def workers_of(running: Running, count: int) -> list[int]:
    sessions = running.status()["sessions"]
    assert len(sessions) == count
    return [session["worker_pid"] for session in sessions]


def ids_of(pid: int) -> list[int]:
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return [int(number) for number in lines["Uid"].split()]


def require_own_ids(running: Running) -> None:
    missing = [entry for entry in running.status()["isolation_missing"] if entry.startswith("user id")]
    if missing:
        pytest.skip(missing[0])


def as_user(uid: int, act: Callable[[], dict[str, int]]) -> dict[str, int]:
    """The result of `act` in a child process that has only the user id in common with a worker."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            user_ids.become(uid)
            os.write(theirs, json.dumps(act()).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with open(ours, "rb") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text)


def code_of(step: Callable[[], object]) -> int:
    try:
        step()
    except OSError as error:
        return error.errno or -1
    return 0


def attacks(pid: int, folder: Path) -> dict[str, int]:
    """Attack a process; return the error number of each attack, 0 where it succeeds."""
    libc = ctypes.CDLL(None, use_errno=True)

    def trace() -> None:
        if libc.ptrace(ctypes.c_long(PTRACE_SEIZE), ctypes.c_long(pid), None, None):
            raise OSError(ctypes.get_errno(), "ptrace")

    def read_memory() -> None:
        vector = (ctypes.c_size_t * 2)(ctypes.addressof(ctypes.create_string_buffer(1)), 1)
        if libc.process_vm_readv(pid, vector, 1, vector, 1, 0) < 0:
            raise OSError(ctypes.get_errno(), "process_vm_readv")

    tries: dict[str, Callable[[], object]] = {
        "kill": lambda: os.kill(pid, 0),
        "setpriority": lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
        "sched_setaffinity": lambda: os.sched_setaffinity(pid, os.sched_getaffinity(pid)),
        "ptrace": trace,
        "process_vm_readv": read_memory,
        "cache": lambda: os.listdir(folder),
        "cache's writing": lambda: (folder / "new").write_bytes(b""),
    }
    for name in ("mem", "maps", "environ", "fd", "root", "cwd", "map_files", "syscall", "stack", "io"):
        tries[name] = lambda name=name: (
            os.listdir(f"/proc/{pid}/{name}")
            if name in ("fd", "map_files", "root", "cwd")
            else Path(f"/proc/{pid}/{name}").read_bytes()[:1]
        )
    return {name: code_of(step) for name, step in tries.items()}


@pytest.mark.control("AT24")
def test_AT24_a_user_id_alone_keeps_workers_apart(running, tmp_path):
    needs_root()
    clients = [start_client(running), start_client(running)]
    require_own_ids(running)
    worker, neighbour = workers_of(running, 2)
    mine, theirs = ids_of(worker), ids_of(neighbour)
    assert len({*mine, *theirs}) == 2, "real, effective, saved and file system's are one, and not the neighbour's"
    assert not {*mine, *theirs} & {os.geteuid()}
    folder = next(path for path in tmp_path.rglob("shared"))
    found = as_user(mine[0], lambda: attacks(neighbour, folder))
    assert {name: code for name, code in found.items() if code not in (errno.EPERM, errno.EACCES)} == {}
    # Control: the neighbour's own user may do what the kernel permits without a check that the process is dumpable.
    control = as_user(theirs[0], lambda: attacks(neighbour, folder))
    assert [control[name] for name in ("kill", "setpriority", "sched_setaffinity")] == [0, 0, 0]
    for client in clients:
        client.kill()
        client.communicate()


def test_AT24_a_tenants_cache_is_open_to_who_was_given_it_alone():
    needs_root()
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)  # only the tenant's folder denies access
        fd = open_shared(Path(name) / "tenant")
        given, other = Path(f"/proc/self/fd/{fd}/kernel"), Path(name) / "tenant" / "shared" / "kernel"
        first = as_user(2000000001, lambda: {"write": code_of(lambda: given.write_bytes(b"code"))})
        assert first == {"write": 0}
        second = as_user(
            2000000002,
            lambda: {
                "read": code_of(given.read_bytes),
                "by its path": code_of(other.read_bytes),
                "listing": code_of(lambda: os.listdir(other.parent)),
            },
        )
        assert second == {"read": 0, "by its path": errno.EACCES, "listing": errno.EACCES}
        os.close(fd)


def compile_as_the_driver_does(shared: Path) -> None:
    os.umask(0)
    for folder in (shared / "nvidia", shared / "nvidia/2", shared / "nvidia/2/4"):
        folder.mkdir(mode=0o700, exist_ok=True)
    (shared / "nvidia/2/4/program").write_bytes(b"code")


@pytest.mark.parametrize("by_vgpud", ["before", "after", "never"])
def test_what_a_driver_has_compiled_serves_the_tenants_next_id(by_vgpud):
    needs_root()
    with tempfile.TemporaryDirectory() as name:
        fd = open_shared(Path(name))
        given = Path(f"/proc/self/fd/{fd}")
        if by_vgpud == "before":
            open_driver_folders(fd)
        first = as_user(2000000001, lambda: {"": code_of(lambda: compile_as_the_driver_does(given))})
        assert first == {"": 0}
        if by_vgpud == "after":
            open_driver_folders(fd)
        second = as_user(2000000002, lambda: {"": code_of((given / "nvidia/2/4/program").read_bytes)})
        assert second == {"": errno.EACCES if by_vgpud == "never" else 0}
        os.close(fd)


def test_a_link_in_place_of_the_drivers_folder_is_not_followed(tmp_path):
    fd = open_shared(tmp_path / "tenant")
    (tmp_path / "victim").mkdir(mode=0o700)
    (tmp_path / "tenant/shared/nvidia").symlink_to(tmp_path / "victim")
    with pytest.raises(NotADirectoryError):
        open_driver_folders(fd)
    (tmp_path / "tenant/shared/nvidia").unlink()
    (tmp_path / "tenant/shared/nvidia").mkdir()
    (tmp_path / "tenant/shared/nvidia/2").symlink_to(tmp_path / "victim")
    open_driver_folders(fd)
    assert stat.S_IMODE((tmp_path / "victim").stat().st_mode) == 0o700
    assert list((tmp_path / "victim").iterdir()) == []
    assert stat.S_IMODE((tmp_path / "tenant/shared/nvidia/3/f").stat().st_mode) == 0o777
    os.close(fd)


def test_ids_are_not_reserved_twice_and_go_round():
    ids = user_ids.UserIds(range(10, 13))
    first = [ids.reserve() for _ in range(3)]
    assert sorted(first) == [10, 11, 12]
    with pytest.raises(OSError, match="all 3 user ids"):
        ids.reserve()
    ids.release(first[1])
    assert ids.reserve() == first[1]


@pytest.mark.parametrize("text", ["", "5", "5-5", "0-9", "9-5", "1-4294967295", "a-b", "-1-5"])
def test_ranges_that_are_refused(text):
    with pytest.raises(ValueError, match=r"give the first|must hold two"):
        user_ids.parse_ids(text)


# Makes the Python of this test readable for another user, wherever it lies; then executes the rest of the command.
READABLE = """
import os, sys
from vgpud.worker import cell, user_ids
cells = cell.Cells()
cells._unshare(cell._NEWNS)
cells._mount("none", "/", None, cell._REC | cell._PRIVATE, None)
cells._uncover(user_ids.needed_paths())
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def unprivileged() -> Iterator[Callable[..., Running]]:
    """A vgpud of a user that is not root, as the unit runs it; the test names its capabilities."""
    needs_root()
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv")
    started: list[Running] = []
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        os.chown(directory, OTHER, OTHER)

        def start(capabilities: str, more: str = "") -> Running:
            config = directory / "vgpud.toml"
            config.write_text(
                f"listen = ['unix:{directory}/vgpud.sock']\nadmin = '{directory}/admin.sock'\n"
                f"cache_dir = '{directory}/cache'\n{more}"
            )
            dropped = ["setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups", "--no-new-privs"]
            granted = [f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}"]
            before = [sys.executable, "-c", READABLE, *dropped, *granted]
            running = Running.start(config, directory, f"log-{len(started)}", before=before)
            started.append(running)
            running.wait_ready()
            return running

        yield start
        for running in started:
            running.end()


def test_a_vgpud_with_two_capabilities_gives_its_workers_ids_and_drops_both(unprivileged):
    running = unprivileged(CAPABILITIES)
    client = start_client(running)
    require_own_ids(running)
    [worker] = workers_of(running, 1)
    assert ids_of(worker)[0] in range(2000000000, 2000065536)
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    held = {line.split()[0]: int(line.split()[1], 16) for line in status.splitlines() if line.startswith("Cap")}
    assert [held[name] for name in ("CapInh:", "CapPrm:", "CapEff:", "CapAmb:")] == [0, 0, 0, 0]
    assert [path for path in (running.config.parent / "cache").rglob("shared") if path.stat().st_uid == OTHER]
    os.kill(worker, signal.SIGSTOP)  # vgpud can still inspect the worker and kill it
    running.wait_log(rf'worker killed .*worker={worker} why="it was stopped by a signal"')
    wait_until(lambda: running.status()["sessions"] == [])
    client.communicate()


def test_what_a_vgpud_without_privileges_lacks_is_named(unprivileged):
    running = unprivileged("-all", "require_isolation = true\n")
    with running.client() as client:
        client.hello()
        with pytest.raises(RefusedError, match="user id for each worker"):
            client.attach()
    assert any(entry.startswith("user id for each worker") for entry in running.status()["isolation_missing"])


def test_ids_of_etc_subuid_are_taken_from_the_end_of_what_both_files_give(tmp_path, monkeypatch):
    me = os.geteuid()
    files = {"subuid": f"else:1:5\n{me}:100000:65536\n", "subgid": f"{me}:100000:60000\n"}
    read = user_namespace._read_ids
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(user_namespace, "_read_ids", lambda path: read(tmp_path / path.name))
    monkeypatch.setattr(shutil, "which", lambda name: name)
    assert user_namespace._subordinate_ids() == range(160000 - 4096, 160000)


def test_code_below_a_folder_of_vgpuds_user_alone_is_all_that_workers_see_of_it(tmp_path):
    """As with a Python below /root: in the launcher's mount namespace the folder holds nothing but the code."""
    needs_root()
    private = tmp_path / "private"
    (private / "code").mkdir(parents=True)
    (private / "code" / "module.py").write_text("answer = 42\n")
    (private / "secret").write_text("")
    private.chmod(0o700)
    (private / "code").chmod(0o755)
    script = (
        "import os, sys; from vgpud.worker.cell import Cells; from vgpud.worker import user_ids\n"
        "cells = Cells(); cells.enter_shared(); folder = sys.argv[1]\n"
        "assert cells.can_have_ids(range(2000000000, 2000000009)), cells.missing\n"
        "print(os.listdir(folder), open(folder + '/code/module.py').read())\n"
    )
    environment = ENVIRONMENT | {"PYTHONPATH": f"{ENVIRONMENT['PYTHONPATH']}:{private / 'code'}"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(private)], env=environment, capture_output=True, text=True, check=False
    )
    if "Operation not permitted" in done.stderr:
        pytest.skip("this root may not make namespaces")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['code'] answer = 42"
