"""`vgpu run`: exit codes, signals, environment, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from vgpud.cli.status import ExitStatus

from tests.daemon.running import ENVIRONMENT, children, process_exists, wait_until
from tests.guest.elf_file import compile_c, compile_library
from tests.patience import PATIENCE_S

FAKE_WORKER = Path(__file__).parents[1] / "fake_worker.py"


class Vgpu:
    """`vgpu run` with temporary files of its own, so that what it leaves can be seen."""

    def __init__(self, directory: Path) -> None:
        self.temporary = directory / "tmp"
        self.temporary.mkdir()
        self.config = directory / "vgpud.toml"
        self.config.write_text(f"worker_command = {[sys.executable, str(FAKE_WORKER), 'echo']!r}\n")
        self.library = compile_library(directory / "lib/libcuda.so.1")
        self.environment = {k: v for k, v in ENVIRONMENT.items() if k != "VGPU_ENDPOINT"} | {
            "TMPDIR": str(self.temporary)
        }

    def start(self, *arguments: str, stderr: int = subprocess.PIPE, **environment: str) -> subprocess.Popen[str]:
        own = ["--config", str(self.config)] if "--endpoint" not in arguments else []
        return subprocess.Popen(
            [
                sys.executable,
                "-c",
                "from vgpud.cli.main import vgpu; vgpu(prog_name='vgpu')",
                "run",
                *own,
                "--library-dir",
                str(self.library.parent),
                *arguments,
            ],
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def daemons(self) -> list[int]:
        """Private daemons and workers whose environment names this object's temporary directory."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and str(self.temporary).encode() in (entry / "environ").read_bytes():
                    command = (entry / "cmdline").read_bytes()
                    if (b"vgpud\0--private" in command or b"fake_worker" in command) and process_exists(
                        int(entry.name)
                    ):
                        found.append(int(entry.name))
            except OSError:
                continue
        return found

    def assert_clean(self) -> None:
        assert list(self.temporary.iterdir()) == []
        assert self.daemons() == []


@pytest.fixture
def vgpu(tmp_path):
    vgpu = Vgpu(tmp_path)
    yield vgpu
    vgpu.assert_clean()


def shell(text: str) -> tuple[str, ...]:
    return ("--", "sh", "-c", text)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("--", "true"), 0),
        (("--", "false"), 1),
        (shell("exit 77"), 77),
        (shell("kill -9 $$"), 128 + 9),
        (shell("kill -TERM $$"), 128 + 15),
        (("--", "/no/such/program"), ExitStatus.NOT_FOUND),
        (("--", "/etc/passwd"), ExitStatus.NOT_EXECUTABLE),
    ],
)
def test_exit_codes(vgpu, command, code):
    ended = vgpu.run(*command)
    assert ended.returncode == code, ended.stderr
    if code in (ExitStatus.NOT_FOUND, ExitStatus.NOT_EXECUTABLE):
        assert len(ended.stderr.splitlines()) == 1
    else:
        assert ended.stderr == ""


def test_the_programs_environment(vgpu):
    ended = vgpu.run(
        "--trace", *shell("echo $VGPU_ENDPOINT $LD_LIBRARY_PATH $VGPU_LOG ${LD_PRELOAD-none}"), LD_LIBRARY_PATH="/x"
    )
    endpoint, path, log, preload = ended.stdout.split()
    assert endpoint.startswith(f"unix:{vgpu.temporary}/vgpu-")
    assert path == f"{vgpu.library.parent}:/x"
    assert log == "trace"
    assert preload == "none"


def test_the_private_daemon_answers(vgpu):
    script = "import os; from vgpud.cli.client import Client; from vgpud.endpoint import parse_endpoint as p\n"
    script += "c = Client(p(os.environ['VGPU_ENDPOINT'])); print([d['name'] for d in c.hello().inventory['devices']])\n"
    script += "c.attach(); s = c.detach(); s.sendall(b'x'); print(s.recv(1))"
    ended = vgpu.run("--gpu", "t4:2,h100", "--", sys.executable, "-c", script)
    assert ended.stdout == "['Tesla T4', 'Tesla T4', 'NVIDIA H100 PCIe']\nb'x'\n", ended.stderr


def test_an_unknown_profile_is_told(vgpu):
    ended = vgpu.run("--gpu", "h1000", "--", "true")
    assert ended.returncode == ExitStatus.UNAVAILABLE
    said, end = ended.stderr.splitlines()
    assert "h1000" in said
    assert end == "vgpu run: the private vgpud ended at once"


def test_a_given_endpoint_is_used(vgpu, start):
    running = start()
    ended = vgpu.run("--endpoint", str(running.endpoint), *shell("echo $VGPU_ENDPOINT"))
    assert ended.stdout.strip() == str(running.endpoint)
    ended = vgpu.run("--gpu", "t4", "--endpoint", str(running.endpoint), "--", "true")
    assert ended.returncode == ExitStatus.USAGE


def test_a_missing_library_is_told(vgpu):
    vgpu.library.unlink()
    ended = vgpu.run("--", "true")
    assert ended.returncode == ExitStatus.SOFTWARE
    assert "make shim" in ended.stderr


def test_preload_when_asked_and_when_an_rpath_wins(vgpu, tmp_path):
    assert vgpu.run("--preload", *shell("echo $LD_PRELOAD")).stdout.strip() == str(vgpu.library)
    compile_library(tmp_path / "theirs/libcuda.so.1")
    source = (
        '#include <stdio.h>\n#include <stdlib.h>\nint main(void) { puts(getenv("LD_PRELOAD") ?: "none"); return 0; }'
    )
    program = compile_c(tmp_path / "p", source, f"-Wl,--disable-new-dtags,-rpath,{tmp_path}/theirs")
    ended = vgpu.run("--", str(program))
    assert ended.stdout.strip() == str(vgpu.library)
    assert f"{tmp_path}/theirs/libcuda.so.1" in ended.stderr
    assert vgpu.run("--no-preload", "--", str(program)).stdout.strip() == "none"


def test_options_after_the_program_are_its_own(vgpu):
    assert vgpu.run("echo", "--trace", "-x", "--", "y").stdout == "--trace -x -- y\n"


def test_timeout(vgpu):
    ended = vgpu.run("--timeout", "0.5", "--", "sleep", "600")
    assert ended.returncode == ExitStatus.TIMEOUT


def test_a_timeout_ends_what_the_program_started(vgpu, tmp_path):
    """This includes a process that ignores SIGTERM: an orphan in a session, and so a process group, of its own."""
    stubborn = 'trap "" TERM; echo $$ >> pids; while :; do sleep 0.05; done'
    script = f"cd {tmp_path}; (setsid sh -c '{stubborn}' &); sleep 600 & echo $! >> pids; echo $$ >> pids; sleep 600"
    for timeout_s in ("2", "8", "32", "128"):  # until it is long enough for the script to start everything
        (tmp_path / "pids").write_text("")
        assert vgpu.run("--timeout", timeout_s, *shell(script)).returncode == ExitStatus.TIMEOUT
        pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
        if len(pids) == 3:
            break
    assert len(pids) == 3
    assert not [pid for pid in pids if process_exists(pid)]


def test_a_program_in_time_leaves_what_it_started(vgpu):
    ended = vgpu.run("--timeout", "60", *shell("sleep 600 >/dev/null 2>&1 & echo $!; exit 3"))
    assert ended.returncode == 3
    pid = int(ended.stdout)
    assert process_exists(pid)
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_reach_the_program(vgpu, number):
    if signal.getsignal(number) is signal.SIG_IGN:  # as in a shell's background job: no child could trap it
        signal.signal(number, signal.SIG_DFL)
    name = number.name.removeprefix("SIG")
    process = vgpu.start(*shell(f"trap 'echo got; exit 9' {name}; echo ready; while :; do sleep 0.05; done"))
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert out == "got\n"
    assert process.returncode == 9


def test_a_terminals_interrupt_is_delivered_once(vgpu):
    """^C goes to the whole foreground group; `vgpu run` must not forward it again, and its daemon must not get it."""
    count = "import signal, time\nseen = []\nsignal.signal(2, lambda *_: seen.append(1))\nprint('ready', flush=True)\n"
    count += "while not seen: time.sleep(0.05)\nend = time.monotonic() + 1\n"
    count += "while time.monotonic() < end: time.sleep(0.05)\nprint(len(seen), flush=True)"
    main, terminal = os.openpty()
    pid = os.fork()
    if pid == 0:
        os.login_tty(terminal) if hasattr(os, "login_tty") else _login_tty(terminal)
        os.execve(
            sys.executable,
            [
                sys.executable,
                "-c",
                "from vgpud.cli.main import vgpu; vgpu(prog_name='vgpu')",
                "run",
                "--config",
                str(vgpu.config),
                "--library-dir",
                str(vgpu.library.parent),
                "--",
                sys.executable,
                "-c",
                count,
            ],
            vgpu.environment,
        )
    os.close(terminal)
    said = b""
    while b"ready" not in said:
        said += os.read(main, 1000)
    os.write(main, b"\x03")
    try:
        while data := os.read(main, 1000):
            said += data
    except OSError:
        pass  # EIO: the last process on the terminal has ended
    os.close(main)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert said.replace(b"^C", b"").split()[-1] == b"1"


def _login_tty(fd: int) -> None:
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(fd, termios.TIOCSCTTY, 0)
    for target in (0, 1, 2):
        os.dup2(fd, target)


def test_a_signal_while_the_daemon_starts(vgpu):
    process = vgpu.start("--", "sleep", "60")
    wait_until(lambda: children(process.pid))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode in (128 + 15, -15)


def test_nothing_is_left_when_vgpu_run_is_killed(vgpu):
    process = vgpu.start(*shell("echo $$; exec sleep 600"))
    program = int(process.stdout.readline())
    assert vgpu.daemons()
    process.kill()
    process.wait()
    os.kill(program, signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)
    wait_until(lambda: not vgpu.daemons() and not list(vgpu.temporary.iterdir()))


def test_the_program_sees_its_daemons_death(vgpu):
    script = "import os, signal; from vgpud.cli.client import Client; from vgpud.endpoint import parse_endpoint as p\n"
    script += "c = Client(p(os.environ['VGPU_ENDPOINT'])); c.hello(); c.attach()\n"
    script += "print('attached', flush=True); print(c.detach().recv(1))"
    process = vgpu.start("--", sys.executable, "-c", script)
    assert process.stdout.readline() == "attached\n"
    for pid in vgpu.daemons():
        os.kill(pid, signal.SIGKILL)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert out == "b''\n"
    assert process.returncode == 0
