"""A vgpud that is killed: with descriptors in the service manager's store, its sessions go on in the next one."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from vgpud.serving.fd_store import FdStore, receive_kept
from vgpud.serving.notify import Notifier
from vgpud.serving.succession import FORM

from tests.daemon.running import Running, process_exists, wait_until
from tests.daemon.serving.manager import Manager
from tests.daemon.serving.test_succession import Program

PROGRAM = "context()\np = alloc(1024)\n"
STEP = """
value = getattr(sys, "value", 0) + 1
sys.value = value
ok(cuda.cuMemsetD32_v2(p, value, c_size_t(256)))
back = (c_uint * 256)()
ok(cuda.cuMemcpyDtoH_v2(back, p, c_size_t(1024)))
assert set(back) == {value}
"""


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path)
    yield manager
    manager.close()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "vgpud.toml"
    path.write_text(
        f"listen = ['unix:{tmp_path}/vgpud.sock']\nadmin = '{tmp_path}/admin.sock'\ncache_dir = '{tmp_path}'\n"
        "default_share = 's'\n[[shares]]\nname = 's'\nmemory_mib = 4096\nevents = 100\n"
    )
    return path


def workers(running: Running) -> dict[int, int]:
    """The workers' process ids, by session."""
    return {each["session"]: each["worker_pid"] for each in running.admin.get("sessions")["sessions"]}


def wait_kept(manager: Manager, *sessions: int) -> None:
    """Wait until the manager keeps what these sessions need, and nothing of other sessions."""
    wait_until(lambda: manager.sessions == set(sessions))


def test_sessions_outlive_a_crash(manager: Manager, config: Path) -> None:
    first = manager.start(config, "log1")
    programs = [Program(str(first.endpoint), PROGRAM, STEP) for _ in range(2)]
    for program in programs:
        program.step()
    before = workers(first)
    assert len(before) == 2
    wait_kept(manager, *before)
    first.process.kill()
    first.process.wait()
    for program in programs:
        program.step()  # no vgpud runs, only the worker
    second = manager.start(config, "log2")
    assert second.status()["generation"] == 2
    assert workers(second) == before
    assert all(each["memory_nbytes"][0] > 0 for each in second.admin.get("sessions")["sessions"])
    late = Program(str(second.endpoint), PROGRAM, STEP)
    for program in (*programs, late):
        program.step()
    assert len(workers(second)) == 3
    programs[0].end()
    wait_kept(manager, max(before), *(workers(second).keys() - before.keys()))
    second.process.kill()  # and once more
    second.process.wait()
    third = manager.start(config, "log3")
    assert third.status()["generation"] == 3
    programs[1].step()
    late.step()
    assert len(workers(third)) == 2
    third.end()
    programs[1].process.communicate()
    late.process.communicate()
    assert not any(process_exists(pid) for pid in before.values())
    wait_until(lambda: manager.names == [])  # a stopped vgpud leaves nothing behind


def test_what_a_manager_gives_up_ends(manager: Manager, config: Path) -> None:
    """If vgpud is not started again, the manager closes what it keeps, and the workers end by themselves."""
    running = manager.start(config, "log")
    program = Program(str(running.endpoint), PROGRAM, STEP)
    program.step()
    [(session, worker)] = workers(running).items()
    wait_kept(manager, session)
    running.process.kill()
    running.process.wait()
    program.step()
    manager.release()
    wait_until(lambda: not process_exists(worker))
    program.process.communicate()


def test_a_session_that_ends_while_nobody_runs_is_closed(manager: Manager, config: Path) -> None:
    running = manager.start(config, "log")
    program = Program(str(running.endpoint), PROGRAM, STEP)
    program.step()
    [(session, worker)] = workers(running).items()
    wait_kept(manager, session)
    running.process.kill()
    running.process.wait()
    program.end()
    wait_until(lambda: not process_exists(worker))
    next_one = manager.start(config, "log2")
    wait_until(lambda: workers(next_one) == {})
    next_one.process.kill()  # the manager's document lacks its last changes
    next_one.process.wait()
    last = manager.start(config, "log3")
    wait_until(lambda: workers(last) == {})
    last.end()


def test_a_restart_in_place_keeps_what_is_kept(manager: Manager, config: Path) -> None:
    running = manager.start(config, "log")
    program = Program(str(running.endpoint), PROGRAM, STEP)
    program.step()
    before = workers(running)
    wait_kept(manager, *before)
    running.admin.request("POST", "restart", timeout_s=60)
    wait_until(lambda: manager.document()["generation"] == 2)
    running.process.kill()
    running.process.wait()
    next_one = manager.start(config, "log2")
    assert next_one.status()["generation"] == 3
    assert workers(next_one) == before
    program.step()
    program.end()
    next_one.end()


def test_a_session_whose_descriptors_are_missing_ends_alone(manager: Manager, config: Path) -> None:
    """The manager has lost one of a session's descriptors."""
    running = manager.start(config, "log")
    programs = [Program(str(running.endpoint), PROGRAM, STEP) for _ in range(2)]
    before = workers(running)
    wait_kept(manager, *before)
    running.process.kill()
    running.process.wait()
    lost, whole = sorted(before)
    manager.lose(f"vgpud-{manager.document()['server']['served']['sessions'][str(lost)]['meter']}")
    next_one = manager.start(config, "log2")
    assert next_one.log.count("what the vgpud before left of it is damaged") == 1
    wait_until(lambda: not process_exists(before[lost]))
    assert workers(next_one) == {whole: before[whole]}
    programs[1].step()
    wait_kept(manager, whole)
    programs[1].end()
    programs[0].process.communicate()
    next_one.end()


DOCUMENTS = {
    "nothing": b"",
    "no document": b"[]",
    "deep": b"[" * 100_000,
    "another form": json.dumps({"form": "0", "document": {}}).encode(),
    "not a document": json.dumps({"form": FORM, "document": 7}).encode(),
}


def high(fd: int, number: int) -> int:
    """The descriptor, moved to a number that nothing else in this process takes meanwhile."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, number)
    os.close(fd)
    return moved


@pytest.mark.parametrize("what", DOCUMENTS)
def test_a_damaged_store_is_forgotten(what: str, tmp_path: Path) -> None:
    """A vgpud that finds a damaged document forgets it; the workers end, because the manager closes their sockets,
    too.
    """
    memory = high(os.memfd_create("state"), 500)
    end = high(os.memfd_create("end"), memory + 1)
    os.write(memory, DOCUMENTS[what])
    forgotten = []

    class Fake(Notifier):
        def send(self, *lines: str, fd: int | None = None) -> bool:
            forgotten.extend(lines)
            return False

    names = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "2", "LISTEN_FDNAMES": "vgpud-state-3:vgpud-2"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vgpud.serving.fd_store.FIRST_FD", memory)
        assert end == memory + 1
        assert receive_kept(Fake({}), names) is None
    assert [line for line in forgotten if "NAME" in line] == ["FDNAME=vgpud-state-3", "FDNAME=vgpud-2"]
    for fd in (memory, end):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


def test_a_document_that_ends_vgpud_is_tried_once(manager: Manager, config: Path) -> None:
    """The store also holds the previous vgpud's listeners, which look like another vgpud's, and unknown names and
    descriptors.
    """
    running = manager.start(config, "log")
    program = Program(str(running.endpoint), PROGRAM, STEP)
    [(session, worker)] = workers(running).items()
    wait_kept(manager, session)
    running.process.kill()
    running.process.wait()
    state = os.memfd_create("state")
    os.write(state, json.dumps({"form": FORM, "document": {"generation": 1, "metrics": None}}).encode())
    manager.keep("vgpud-state-999999", state)
    manager.keep("vgpud-x", os.memfd_create("x"))
    manager.keep("vgpud--1", os.pipe()[0])
    failed = manager.launch(config, "log2")
    assert failed.process.wait() == 1
    assert not any("state" in name for name in manager.names)
    next_one = manager.start(config, "log3")
    assert next_one.status()["generation"] == 1
    wait_until(lambda: not process_exists(worker))
    late = Program(str(next_one.endpoint), PROGRAM, STEP)
    late.step()
    late.end()
    program.process.communicate()
    next_one.end()


def test_without_a_store_nothing_is_kept() -> None:
    assert not FdStore(Notifier({})).is_on
    assert not FdStore(Notifier({}), {}).is_on
    ours = {"SYSTEMD_EXEC_PID": str(os.getpid())}
    assert not FdStore(Notifier({}), {"FDSTORE": "1", "SYSTEMD_EXEC_PID": "1"}).is_on, "the store of a parent's service"
    assert not FdStore(Notifier({}), {"FDSTORE": "0"} | ours).is_on
    assert FdStore(Notifier({}), {"FDSTORE": "1"} | ours).is_on
