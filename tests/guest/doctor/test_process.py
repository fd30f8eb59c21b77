"""Running processes: their namespaces, the libraries they have mapped, and the privileges they run with."""

from __future__ import annotations

import os
import stat
import struct
import subprocess
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vgpu_guest.doctor.place import OUTPUT_NBYTES, Place, PlaceError, ask, execute
from vgpu_guest.doctor.process import parse_environment

from tests.conftest import merged
from tests.guest.doctor.tree import DOCTOR, LIB, Tree, doctor
from tests.guest.elf_file import compile_c
from tests.patience import PATIENCE_S

OPENS = r"""
#include <dlfcn.h>
#include <unistd.h>
int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++)
    if (!dlopen(argv[i], RTLD_NOW))
      return 1;
  if (write(1, "x", 1) != 1)
    return 2;
  sleep(600);
  return 0;
}
"""
Start = Callable[..., int]


@pytest.fixture
def start(tree: Tree) -> Iterator[Start]:
    """start(*libraries, prefix=(...), **environment) runs the tree's program in the tree until the test ends."""
    compile_c(tree.path(tree.program), OPENS)
    started: list[subprocess.Popen[bytes]] = []

    def start_one(*libraries: str, prefix: tuple[str, ...] = (), **environment: str) -> int:
        both = {"LD_LIBRARY_PATH": "/usr/lib/vgpu", "VGPU_ENDPOINT": tree.environment["VGPU_ENDPOINT"]}
        command = [*prefix, "/usr/sbin/chroot", str(tree.root), tree.program, *libraries]
        process = subprocess.Popen(
            ["env", "-i", *(f"{k}={v}" for k, v in (both | environment).items()), *command], stdout=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout is not None
        if process.stdout.read(1) != b"x":
            assert prefix, "the program does not start"
            pytest.skip(f"{' '.join(prefix)} does not work here")
        return process.pid

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


def test_a_process_in_a_network_of_its_own_does_not_reach_this_machines(tree: Tree, start: Start) -> None:
    """As with PrivateNetwork= or in a container: the doctor connects from the process's network namespace."""
    assert tree.doctor("--pid", str(start())).verdict == "ok"
    told = tree.doctor("--pid", str(start(prefix=("unshare", "-n"))))
    assert told.verdict == "endpoint-unreachable", told.everything


def test_a_process_in_a_mount_namespace_is_seen_with_its_mounts(tree: Tree, start: Start) -> None:
    """As with PrivateMounts= or in a container: the library is visible only in the process's mount namespace."""
    script = f'mount --bind {LIB} {tree.root}/opt && exec "$@"'
    tree.path("opt").mkdir()
    pid = start(prefix=("unshare", "-m", "sh", "-c", script, "sh"), LD_LIBRARY_PATH="/opt")
    assert not list(tree.path("opt").iterdir())
    told = tree.doctor("--pid", str(pid))
    assert told.verdict == "ok", told.everything
    assert told.answer["libs"]["libcuda.so.1"]["resolved"] == "/opt/libcuda.so.1"


def test_L04_two_drivers_in_one_process(tree: Tree, start: Start) -> None:
    tree.library("opt/libcuda.so.1", "-Wl,-soname,libother.so")
    pid = start("/opt/libcuda.so.1", "/usr/lib/vgpu/libcuda.so.1")
    told = tree.doctor("--pid", str(pid))
    assert (told.code, told.verdict) == (10, "two-drivers"), told.everything
    assert "/opt/libcuda.so.1" in told.answer["text"]


def test_a_driver_that_a_process_took_on_its_own(tree: Tree, start: Start) -> None:
    """Loaded by path, or before a repair: the mapped library counts, not the one that a new process would load."""
    tree.library("opt/libcuda.so.1")
    told = tree.doctor("--pid", str(start("/opt/libcuda.so.1")))
    assert (told.code, told.verdict) == (20, "restart-needed"), told.everything
    assert "/opt/libcuda.so.1" in told.answer["text"]


def test_a_library_that_was_replaced_under_the_process(tree: Tree, start: Start) -> None:
    pid = start("/usr/lib/vgpu/libcuda.so.1")
    file = tree.path("usr/lib/vgpu/libcuda.so.580.159.04")
    tree.copy(file, "usr/lib/vgpu/new").replace(file)
    told = tree.doctor("--pid", str(pid))
    assert (told.code, told.verdict) == (20, "restart-needed"), told.everything


def test_a_setuid_program_ignores_the_environment(tree: Tree) -> None:
    tree.path(tree.program).chmod(0o755 | stat.S_ISUID)
    told = tree.doctor()
    assert (told.code, told.verdict) == (30, "secure-execution"), told.everything
    assert told.answer["mend"] == "sudo vgpu install"


def test_a_library_of_another_protocol(tree: Tree) -> None:
    file = tree.path("usr/lib/vgpu/libcuda.so.580.159.04")
    note = struct.pack("<III", 5, 4, 1) + b"vgpu\0\0\0\0"
    data = file.read_bytes()
    assert data.count(note) == 1
    file.write_bytes(data.replace(note + struct.pack("<I", 1), note + struct.pack("<I", 2)))
    told = tree.doctor()
    assert (told.code, told.verdict) == (10, "library-version"), told.everything


def test_a_system_without_glibc(tree: Tree) -> None:
    tree.path("lib64/ld-linux-x86-64.so.2").unlink()
    told = tree.doctor()
    assert (told.code, told.verdict) == (50, "program-wrong-class"), told.everything
    assert "musl" in told.answer["text"]


def test_what_is_executed_in_another_root_has_no_privilege(tree: Tree) -> None:
    """Even with uid 0: the program's loader and libraries belong to the owner of that root directory."""
    source = '#include <unistd.h>\nint main(void) { return getuid() == 0 && chroot("/") == 0 ? 1 : 0; }'
    compile_c(tree.path("usr/bin/privileged"), source)
    own = subprocess.run(["chroot", str(tree.root), "/usr/bin/privileged"], timeout=PATIENCE_S)
    assert own.returncode == 1  # with privilege, the program exits with 1
    assert execute(Place(str(tree.root)), ["/usr/bin/privileged"], {}, timeout_s=PATIENCE_S).code == 0


def test_what_does_not_end_is_ended(tree: Tree) -> None:
    compile_c(tree.path("usr/bin/endless"), "int main(void) { for (;;); }")
    assert execute(Place(str(tree.root)), ["/usr/bin/endless"], {}, timeout_s=0.5).code is None


def test_what_writes_without_end_is_ended(tree: Tree) -> None:
    compile_c(tree.path("usr/bin/yes"), '#include <stdio.h>\nint main(void) { for (;;) puts("yes"); }')
    finished = execute(Place(str(tree.root)), ["/usr/bin/yes"], {}, timeout_s=PATIENCE_S)
    assert finished.code is not None
    assert finished.code < 0
    assert len(finished.stdout) <= OUTPUT_NBYTES


def _import_something() -> str:
    import this_is_the_strangers

    return str(this_is_the_strangers)


def test_nothing_is_imported_from_a_strangers_root(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another user's root, a path from sys.path names that user's files."""
    tree.write("usr/lib/python/this_is_the_strangers.py", "import os; open('/tmp/mark', 'w')")
    monkeypatch.syspath_prepend("/usr/lib/python")
    with pytest.raises(PlaceError, match="No module named"):
        ask(Place(str(tree.root)), _import_something)
    assert not tree.path("tmp/mark").exists()


def test_without_msgpack_the_library_itself_is_the_proof(unix: str) -> None:
    code = "import sys; sys.modules['msgpack'] = None\nfrom vgpu_guest.cli import vgpu; vgpu()"
    result = subprocess.run(
        [DOCTOR[0], "-c", code, "doctor"],
        env={"PYTHONPATH": merged(None)["PYTHONPATH"], "LD_LIBRARY_PATH": str(LIB), "VGPU_ENDPOINT": unix},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout
    assert "python3-msgpack is not installed" in result.stdout


def test_without_the_probe_nothing_is_ok(unix: str) -> None:
    code = (
        "import vgpu_guest.doctor.probe as probe\nprobe.candidates = lambda: iter(())\n"
        "from vgpu_guest.cli import vgpu; vgpu()"
    )
    result = subprocess.run(
        [DOCTOR[0], "-c", code, "doctor"],
        env={"PYTHONPATH": merged(None)["PYTHONPATH"], "LD_LIBRARY_PATH": str(LIB), "VGPU_ENDPOINT": unix},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert result.returncode == 1, result.stdout
    assert "cuInit was not tried" in result.stdout


def test_an_environment_of_megabytes_is_looked_at_in_bounded_time(tree: Tree) -> None:
    path = ":".join(f"/nowhere/{i:06d}" for i in range(8000))[:100_000] + ":/usr/lib/vgpu"
    tree.environment["LD_LIBRARY_PATH"] = path
    assert tree.doctor().verdict == "ok"


@given(st.binary(max_size=400))
@settings(max_examples=200, deadline=None)
def test_any_environment_block_is_read(block: bytes) -> None:
    found = parse_environment(block)
    assert all("\0" not in name and "=" not in name for name in found)


def test_of_a_name_that_comes_twice_the_first_counts() -> None:
    assert parse_environment(b"A=1\0A=2\0=x\0B\0C=\0") == {"A": "1", "C": ""}


def test_the_doctor_itself_needs_no_root(tmp_path: object, unix: str) -> None:
    if os.geteuid():
        assert doctor(env={"LD_LIBRARY_PATH": str(LIB), "VGPU_ENDPOINT": unix}).verdict == "ok"
        return
    code = "import os; os.setgid(65534); os.setuid(65534)\nfrom vgpu_guest.cli import vgpu; vgpu()"
    result = subprocess.run(
        [DOCTOR[0], "-c", f"import vgpu_guest.doctor.command, vgpu_guest.cli\n{code}", "doctor"],
        env={"PYTHONPATH": merged(None)["PYTHONPATH"], "LD_LIBRARY_PATH": "/nowhere"},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert result.returncode == 10, result.stdout + result.stderr
