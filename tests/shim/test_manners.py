"""The library in processes of other people: resource limits, set-user-id programs, hosts that never answer."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.patience import PATIENCE_S, quickest_s
from tests.shim.client import PRELUDE, ROOT, run
from tests.shim.fake_daemon import frame, welcome

Run = Callable[..., CompletedProcess[str]]
LIBRARIES = ROOT / "build/guest"


@pytest.mark.parametrize("limit_kib", [0, 100, 8192, 100_000])
def test_nr02_a_limit_on_file_sizes_ends_no_program(vgpu_run: Run, limit_kib: int) -> None:
    """Shared memory counts as files: the library works without shared memory that RLIMIT_FSIZE does not allow."""
    program = (
        PRELUDE
        + """
context()
p = alloc(1 << 20)
host = c_void_p()
ok(cuda.cuMemHostAlloc(byref(host), c_size_t(256 << 20), 0))
ctypes.memset(host, 5, 1 << 20)
ok(cuda.cuMemcpyHtoD_v2(p, host, c_size_t(1 << 20)))
ctypes.memset(host, 0, 1 << 20)
ok(cuda.cuMemcpyDtoH_v2(host, p, c_size_t(1 << 20)))
assert ctypes.string_at(host, 1 << 20) == b"\\5" * (1 << 20)
ok(cuda.cuMemFreeHost(host))
print("ok")
"""
    )
    done = vgpu_run(["sh", "-c", f'ulimit -f {2 * limit_kib}; exec "$@"', "sh", sys.executable, "-c", program])
    assert (done.returncode, done.stdout) == (0, "ok\n"), (done.returncode, done.stderr)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a set-user-id program of root's")
def test_nr03_a_set_user_id_program_takes_nothing_from_the_environment(tmp_path: Path) -> None:
    """An ordinary user must not write into root's files by VGPU_LOG_FILE, nor choose the endpoint or the token."""
    folder = tmp_path
    for parent in (folder, *folder.parents):  # pytest's folders are closed to other users
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    libraries = folder / "lib"
    libraries.mkdir(mode=0o755)
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        shutil.copy(LIBRARIES / name, libraries / name)
    source = (
        "#include <dlfcn.h>\n#include <unistd.h>\nint main(void) {\n"
        '  void *cuda = dlopen("libcuda.so.1", 2), *nvml = dlopen("libnvidia-ml.so.1", 2);\n'
        "  if (!cuda || !nvml || geteuid() || !getuid()) return 99;\n"
        '  ((int (*)(void))dlsym(nvml, "nvmlInit_v2"))();\n  ((int (*)(unsigned))dlsym(cuda, "cuInit"))(0);\n'
        "  return 0;\n}\n"
    )
    monitor = folder / "monitor"
    command = ["cc", "-x", "c", "-", "-o", str(monitor), "-ldl", f"-Wl,-rpath,{libraries}"]
    subprocess.run(command, input=source.encode(), check=True)
    monitor.chmod(0o4755)
    secret = folder / "secret"
    secret.write_text("secret\n")
    secret.chmod(0o600)
    with socket.socket(socket.AF_UNIX) as listener:
        path = folder / "asked"
        listener.bind(str(path))
        path.chmod(0o777)
        listener.listen()
        listener.settimeout(0.2)
        environment = {
            "PATH": os.environ["PATH"],
            "VGPU_LOG": "trace",
            "VGPU_LOG_FILE": str(secret),
            "VGPU_ENDPOINT": f"unix:{path}",
            "VGPU_TOKEN": "x",
        }
        done = subprocess.run([str(monitor)], env=environment, user="nobody", capture_output=True, timeout=60)
        if done.returncode == 99:
            pytest.skip("set-user-id programs do not work on this file system")
        assert done.returncode == 0, done.stderr
        assert secret.read_text() == "secret\n"
        with pytest.raises(TimeoutError):
            listener.accept()


def test_nr03_text_in_the_log_is_one_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    endpoint = "unix:/x\nevil::0:0::/:/bin/sh\n\x1b[2J#\xc2\x9b"
    run(endpoint, "assert cuda.cuInit(0) == 802", VGPU_LOG="error", VGPU_LOG_FILE=str(log))
    [line] = log.read_text(errors="surrogateescape").splitlines()
    assert "\\x0aevil::0:0::/:/bin/sh\\x0a\\x1b[2J#" in line


def test_gp12_a_mute_endpoint_is_given_up_within_a_second(tmp_path: Path) -> None:
    """The host measures the time from the library's connection to its close, without the program's start."""
    path = str(tmp_path / "mute")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        program = "import ctypes; print(ctypes.CDLL({!r}).{}(0))"

        def held_s(library: str, function: str, result: int) -> float:
            client = subprocess.Popen(
                [sys.executable, "-c", program.format(str(LIBRARIES / library), function)],
                env={**os.environ, "VGPU_ENDPOINT": f"unix:{path}"},
                stdout=subprocess.PIPE,
                text=True,
            )
            host, _ = listener.accept()
            connected = time.monotonic()
            with host:
                while host.recv(4096):
                    pass
            held = time.monotonic() - connected
            assert client.communicate(timeout=PATIENCE_S)[0] == f"{result}\n"
            return held

        assert quickest_s(lambda: held_s("libcuda.so.1", "cuInit", 802), 2) < 2
        assert quickest_s(lambda: held_s("libnvidia-ml.so.1", "nvmlInit_v2", 9), 2) < 2


def test_a_client_waits_for_the_vgpud_that_systemd_starts_for_it() -> None:
    """Process 1 listens, as systemd does for vgpud.socket, and answers later than the timeout of a mute endpoint."""
    if os.geteuid() != 0:
        pytest.skip("a process 1 of one's own needs root (unshare)")
    script = f"""
        import os, select, socket, subprocess, sys, tempfile, time
        from tests.shim.fake_daemon import frame, welcome
        assert os.getpid() == 1
        with socket.socket(socket.AF_UNIX) as listener, tempfile.TemporaryDirectory() as folder:
            listener.bind(folder + "/s")
            listener.listen()
            program = "import ctypes; print(ctypes.CDLL({str(LIBRARIES / "libcuda.so.1")!r}).cuInit(0))"
            environment = dict(os.environ, VGPU_ENDPOINT="unix:" + folder + "/s")
            client = subprocess.Popen([sys.executable, "-c", program], env=environment)
            select.select([listener], [], [])
            time.sleep(1.5)
            host, _ = listener.accept()
            host.sendall(frame(welcome()))
            client.wait()
    """
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "0\n", done.stderr


def test_a_client_waits_while_its_vgpud_is_replaced(tmp_path: Path) -> None:
    """vgpud announces its replacement by a file beside its socket; an old file, left by a crash, is ignored."""
    path = tmp_path / "s"
    (tmp_path / "s.restarting").touch()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        program = f"import ctypes; print(ctypes.CDLL({str(LIBRARIES / 'libcuda.so.1')!r}).cuInit(0))"
        command, env = [sys.executable, "-c", program], os.environ | {"VGPU_ENDPOINT": f"unix:{path}"}
        for since_s, result in ((0, 0), (3600, 802)):
            os.utime(tmp_path / "s.restarting", times=(time.time() - since_s,) * 2)
            with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as client:
                host, _ = listener.accept()
                with host:
                    if result:
                        while host.recv(4096):
                            pass  # until the client gives up
                    else:
                        time.sleep(1.5)
                        host.sendall(frame(welcome()))
                    assert client.communicate(timeout=60)[0] == f"{result}\n"
