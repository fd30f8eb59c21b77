"""`vgpu restart`: the installed vgpud replaces the running one in the same process; clients and workers continue."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from vgpud.cli.admin_client import AdminError
from vgpud.cli.main import vgpu
from vgpud.serving import service

from tests.daemon.running import Running, only, process_exists, start_client, vgpud_with_real_workers, wait_until
from tests.patience import PATIENCE_S
from tests.shim.client import PRELUDE, PYTHON, environment

SHARES = "default_share = 'small'\n[[shares]]\nname = 'small'\nmemory_mib = 4096\n"


def restart(running: Running) -> None:
    pid, generation = running.process.pid, running.status()["generation"]
    done = CliRunner().invoke(vgpu, ["restart", "--admin", str(running.admin_path)])
    assert done.exit_code == 0, done.output + running.log
    assert running.status()["generation"] == generation + 1
    assert running.process.poll() is None
    assert os.path.exists(f"/proc/{pid}")


class Program:
    """A program that executes `step` once for each line that it reads."""

    def __init__(self, endpoint: str, begin: str, step: str, **changes: str) -> None:
        text = PRELUDE + textwrap.dedent(begin) + "\nprint('begun', flush=True)\nfor line in sys.stdin:\n"
        text += textwrap.indent(textwrap.dedent(step), "    ") + "    print('done', flush=True)\n"
        self.process = subprocess.Popen(
            [*PYTHON, "-c", text],
            env=environment(endpoint, **changes),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._expect("begun")

    def step(self) -> None:
        self.order()
        self.finish()

    def order(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def finish(self) -> None:
        self._expect("done")

    def _expect(self, word: str) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line == f"{word}\n", (line, self.process.communicate(timeout=60))

    def end(self) -> None:
        _out, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, errors


@pytest.fixture(params=["shared memory", "socket"])
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    more = SHARES if request.param == "shared memory" else f"shared_memory = false\n{SHARES}"
    yield from vgpud_with_real_workers(tmp_path, more)


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Running]:
    yield from vgpud_with_real_workers(tmp_path, SHARES)


COPIES = """
value = getattr(sys, "value", 0) + 1
sys.value = value
ok(cuda.cuMemsetD32_v2(p, value, c_size_t(256)))
back = (c_uint * 256)()
ok(cuda.cuMemcpyDtoH_v2(back, p, c_size_t(1024)))
assert set(back) == {value}
"""


def test_programs_go_on(running: Running) -> None:
    url = str(running.endpoint)
    at_work = Program(url, "context(); p = alloc(1 << 20)", COPIES)
    greeted = Program(url, "ok(cuda.cuInit(0))", "context(); p = alloc(1024)" + COPIES)
    untouched = Program(url, "", "context(); p = alloc(1024)" + COPIES)
    at_work.step()
    [worker] = [each["worker_pid"] for each in running.admin.get("sessions")["sessions"] if each["worker_pid"]]
    for _ in range(2):
        restart(running)
        at_work.step()
    for program in (greeted, untouched):
        program.step()
        program.end()
    wait_until(lambda: len(running.admin.get("sessions")["sessions"]) == 1)
    sessions = running.measured_sessions()
    assert sessions[0]["worker_pid"] == worker
    assert sessions[0]["memory_nbytes"][0] >= 1 << 20
    assert sessions[0]["share"] == "small"
    at_work.end()
    wait_until(lambda: not process_exists(worker))
    wait_until(lambda: running.admin.get("sessions")["sessions"] == [])
    assert running.status()["metrics"]["sessions_opened"] == 3
    assert running.status()["metrics"]["workers_failed"] == 0
    running.wait_log("worker ended .*exit 0")


def test_programs_that_start_meanwhile_wait(running: Running) -> None:
    url = str(running.endpoint)
    clients: list[subprocess.Popen[str]] = []

    def begin() -> None:
        while len(clients) < 6:
            text = PRELUDE + "context(); print('begun')"
            clients.append(
                subprocess.Popen([*PYTHON, "-c", text], env=environment(url), stdout=subprocess.PIPE, text=True)
            )
            time.sleep(0.3)

    beginning = threading.Thread(target=begin)
    beginning.start()
    restart(running)
    beginning.join()
    assert [client.communicate(timeout=60)[0] for client in clients] == ["begun\n"] * 6
    # The administrator's socket answers before the mark is removed.
    wait_until(lambda: not list(running.admin_path.parent.glob("*.restarting")))


def test_limits_of_a_tenant_count_what_was_there_before(real: Running) -> None:
    url = str(real.endpoint)
    one = Program(url, "context(); p = alloc(2000 << 20)", "pass\n")
    restart(real)
    refused = "assert cuda.cuMemAlloc_v2(byref(c_uint64()), c_size_t(2000 << 20)) == 2\n"
    two = Program(url, "context()", refused)
    two.step()
    one.end()
    wait_until(lambda: len(real.admin.get("sessions")["sessions"]) == 1)
    two.end()


def test_shared_memory_is_found_after_it(real: Running) -> None:
    """cuIpcGetMemHandle before the restart, cuIpcOpenMemHandle in another program after it."""
    url = str(real.endpoint)
    get = """
    context(); p = alloc(1024)
    handle = create_string_buffer(64)
    ok(cuda.cuIpcGetMemHandle(handle, p))
    print(handle.raw.hex(), flush=True)
    """
    exporter = subprocess.Popen(
        [*PYTHON, "-c", PRELUDE + textwrap.dedent(get) + "sys.stdin.read()"],
        env=environment(url),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert exporter.stdout is not None
    handle = exporter.stdout.readline().strip()
    restart(real)
    importer = f"""
    context()
    class Handle(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_char * 64)]
    handle = Handle.from_buffer_copy(bytes.fromhex({handle!r}))
    q = c_uint64()
    ok(cuda.cuIpcOpenMemHandle_v2(byref(q), handle, 1))
    """
    Program(url, importer, "pass\n").end()
    exporter.communicate()
    assert exporter.returncode == 0


def test_what_the_installed_one_refuses_changes_nothing(real: Running) -> None:
    client = start_client(real)
    good = real.config.read_text()
    real.config.write_text(good + "[limits]\nmax_sesions = 3\n")
    with pytest.raises(AdminError, match=r"the installed vgpud refuses: .*max_sesions: unknown key"):
        real.admin.request("POST", "restart")
    refused = "not restarted, as the installed vgpud refuses .*max_sesions: unknown key"
    real.wait_log(refused)
    real.process.send_signal(signal.SIGUSR2)
    real.wait_log(f"(?s){refused}.*{refused}")
    assert real.status()["generation"] == 1
    real.config.write_text(good)
    real.process.send_signal(signal.SIGUSR2)
    wait_until(lambda: real.log.count(" ready ") == 2)
    assert client.poll() is None
    session = only(lambda: real.admin.get("sessions")["sessions"])
    real.admin.request("DELETE", "sessions", str(session["session"]))
    client.communicate(timeout=PATIENCE_S)


@pytest.mark.asyncio
async def test_an_installed_one_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(service, "CHECK_TIMEOUT_S", 0.2)
    pid = tmp_path / "pid"
    text = f"import os, signal; open({str(pid)!r}, 'w').write(str(os.getpid())); signal.pause()"
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-c", text])
    why = await service.Service.check_restart(None)  # type: ignore[arg-type]
    assert why is not None
    assert "did not end within" in why
    written = pid.read_text() if pid.exists() else ""  # it may have been ended before it wrote
    assert not written or not process_exists(int(written))


def test_a_stop_after_it_ends_everything(real: Running) -> None:
    client = start_client(real)
    session = only(lambda: real.admin.get("sessions")["sessions"])
    restart(real)
    real.end()
    assert not process_exists(session["worker_pid"])
    client.communicate(timeout=PATIENCE_S)
    assert not list(Path(real.admin_path.parent).glob("*.sock"))


def test_one_of_another_form_is_asked_before(monkeypatch: pytest.MonkeyPatch, real: Running) -> None:
    monkeypatch.setenv("VGPUD_SUCCESSION_FORM", "0, of another release")
    command = [sys.executable, "-m", "vgpud", "--config", str(real.config), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 78
    assert "takes over no sessions from the one that runs" in done.stderr


def test_an_old_document_is_not_read(tmp_path: Path) -> None:
    """The sessions end, and the descriptors in the document are closed."""
    program = """
        import json, os, socket, sys
        from vgpud.serving import succession
        ours, theirs = socket.socketpair()
        memory = os.memfd_create("x")
        os.write(memory, json.dumps({"form": "0", "fds": [theirs.detach()], "document": {}}).encode())
        environment = {"VGPUD_SUCCESSION": str(memory)}
        assert succession.receive(environment) is None
        assert environment == {}
        assert ours.recv(1) == b""
        assert succession.receive(environment) is None
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60)
