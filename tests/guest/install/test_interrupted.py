"""Installations killed or failing at any step: the next run completes them, or everything is as before."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from vgpu_guest.installation import Installation
from vgpu_guest.installer import InstallError
from vgpu_guest.layout import RELEASE
from vgpu_guest.manifest import Request
from vgpu_guest.tree import Tree

from tests.conftest import merged
from tests.guest.install.conftest import Vgpu
from tests.guest.install.snapshot import LOADER_CACHES, snapshot
from tests.patience import PATIENCE_S

KILLED = 77
Work = Callable[[Installation], object]


def request(before: Request, runtimes: tuple[str, ...]) -> Request:
    services = {"llama.service": ""}
    return replace(before, machine=True, services=services, runtimes=runtimes, endpoint="tcp://10.0.0.1:7070")


def install(installation: Installation) -> object:
    return installation.install(request)


def uninstall(installation: Installation) -> object:
    return installation.uninstall()


class Stop:
    """Counts the steps; calls `action` at step number `at` and at every later one."""

    def __init__(self, at: int, action: Callable[[], None]) -> None:
        self.left, self.action = at, action

    def __call__(self, _step: str) -> None:
        self.left -= 1
        if self.left < 0:
            self.action()


def count_steps(root: Path, payload: Path, work: Work) -> int:
    """Do `work` on the tree; return the number of its steps."""
    stop = Stop(1 << 30, lambda: None)
    with Tree(root, stop) as tree:
        work(Installation(tree, payload=payload))
    return (1 << 30) - stop.left


def killed_at(step: int, root: Path, payload: Path, work: Work) -> bool:
    """Do `work` in a child process that exits before step number `step`; return whether it reached that step."""
    child = os.fork()
    if child == 0:
        try:
            with Tree(root, Stop(step, lambda: os._exit(KILLED))) as tree:
                work(Installation(tree, payload=payload))
        except BaseException:
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, KILLED)
    return code == KILLED


def clean(root: Path) -> None:
    with Tree(root) as tree:
        Installation(tree).uninstall()


@pytest.fixture(autouse=True)
def without_what_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip ldconfig (no step) and fsync: hundreds of runs would take minutes, and processes die here, not disks."""
    monkeypatch.setattr("vgpu_guest.loader_cache._run", lambda *_: (0, ""))
    monkeypatch.setattr("os.fsync", lambda _fd: None)


def same(root: Path, before: dict[str, tuple[object, ...]]) -> None:
    """Assert equal contents, modes, owners and times; of the loader's caches, which are rewritten, only the names."""
    after = snapshot(root)
    assert after.keys() == before.keys(), sorted(after.keys() ^ before.keys())
    assert {path: after[path] for path in after if path not in LOADER_CACHES} == {
        path: before[path] for path in before if path not in LOADER_CACHES
    }


def contents(root: Path) -> dict[str, object]:
    """The snapshot of `root` without times."""
    return {
        path: (*found[:4], found[4][0] if isinstance(found[4], tuple) else found[4])
        for path, found in snapshot(root).items()
    }


def test_killed_while_installing_and_taken_back(root: Path, payload: Path) -> None:
    before = snapshot(root)
    steps = count_steps(root, payload, install)
    assert steps > 40
    clean(root)
    for step in range(steps):
        assert killed_at(step, root, payload, install), step
        clean(root)
        same(root, before)


def test_killed_while_installing_and_continued(root: Path, payload: Path) -> None:
    steps = count_steps(root, payload, install)
    whole = contents(root)
    clean(root)
    for step in range(steps):
        assert killed_at(step, root, payload, install), step
        with Tree(root) as tree:
            install(Installation(tree, payload=payload))
        assert contents(root) == whole, step
        clean(root)


def test_killed_while_uninstalling(root: Path, payload: Path) -> None:
    before = snapshot(root)
    count_steps(root, payload, install)
    steps = count_steps(root, payload, uninstall)
    assert steps > 20
    for step in range(steps):
        count_steps(root, payload, install)
        assert killed_at(step, root, payload, uninstall), step
        clean(root)
        same(root, before)


def test_killed_twice(root: Path, payload: Path) -> None:
    before = snapshot(root)
    steps = count_steps(root, payload, install)
    whole = contents(root)
    clean(root)
    for step in range(2, steps, 7):
        assert killed_at(step, root, payload, install)
        killed_at(step // 2, root, payload, install)
        killed_at(step // 3, root, payload, uninstall)
        with Tree(root) as tree:
            install(Installation(tree, payload=payload))
        assert contents(root) == whole, step
        clean(root)
        same(root, before)


def test_killed_while_replacing_an_older_one(root: Path, payload: Path, tmp_path: Path) -> None:
    """Each file is the old one or the new one at every moment."""
    newer = tmp_path / "newer"
    subprocess.run(["cp", "-a", payload, newer], check=True, timeout=PATIENCE_S)
    with (newer / f"libcuda.so.{RELEASE}").open("ab") as file:
        file.write(b"newer")
    old, new = ((folder / f"libcuda.so.{RELEASE}").read_bytes() for folder in (payload, newer))
    installed = root / f"usr/lib/vgpu/libcuda.so.{RELEASE}"
    count_steps(root, payload, install)
    step = 0
    while killed_at(step, root, newer, install):
        assert installed.read_bytes() in (old, new)
        with Tree(root) as tree:
            install(Installation(tree, payload=payload))
        assert installed.read_bytes() == old
        step += 1
    assert installed.read_bytes() == new
    assert step > 5


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_failure_at_any_step_is_taken_back(root: Path, payload: Path, number: int) -> None:
    before = snapshot(root)
    steps = count_steps(root, payload, install)
    clean(root)
    done = False

    def fail() -> None:
        nonlocal done
        if not done:  # fail once, so that taking back works
            done = True
            raise OSError(number, os.strerror(number))

    for step in range(0, steps, 1 if number == errno.ENOSPC else 9):
        done = False
        with Tree(root, Stop(step, fail)) as tree, pytest.raises(InstallError, match="taken back"):
            install(Installation(tree, payload=payload))
        same(root, before)


def test_an_interrupt_takes_back(root: Path, payload: Path) -> None:
    before = snapshot(root)
    done = False

    def interrupt() -> None:
        nonlocal done
        if not done:
            done = True
            raise KeyboardInterrupt

    with Tree(root, Stop(20, interrupt)) as tree, pytest.raises(KeyboardInterrupt):
        install(Installation(tree, payload=payload))
    same(root, before)


def test_a_service_that_cannot_be_added_leaves_the_rest(root: Path, payload: Path) -> None:
    with Tree(root) as tree:
        Installation(tree, payload=payload).install(lambda before, _: replace(before, machine=True))
    before = contents(root)

    def fail() -> None:
        stop.left = 1 << 30
        raise OSError(errno.EIO, "Input/output error")

    def add(installation: Installation) -> object:
        return installation.install(lambda before, _: replace(before, services={"llama.service": ""}))

    steps = count_steps(root, payload, add)
    clean(root)
    with Tree(root) as tree:
        Installation(tree, payload=payload).install(lambda before, _: replace(before, machine=True))
    assert steps > 8
    for step in range(steps):
        stop = Stop(step, fail)
        with Tree(root, stop) as tree, pytest.raises(InstallError, match="taken back"):
            add(Installation(tree, payload=payload))
        assert contents(root) == before, step


def test_what_somebody_puts_in_the_way_of_a_killed_installation_stays(root: Path, payload: Path) -> None:
    """The manifest already lists the file, but vgpu had not created it: the existing file is not vgpu's."""
    assert killed_at(12, root, payload, install)
    theirs = root / "etc/ld.so.conf.d/000-vgpu.conf"
    assert not theirs.exists()
    theirs.write_text("theirs")
    with Tree(root) as tree:
        with pytest.raises(InstallError, match=r"000-vgpu\.conf is there and not of vgpu install"):
            install(Installation(tree, payload=payload))
        Installation(tree).uninstall()
    assert theirs.read_text() == "theirs"


def in_a_small_file_system(root: Path, nbytes: int, script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script in its own mount namespace, where `root`/usr/lib is a file system of `nbytes` bytes."""
    prepare = f"mount -t tmpfs -o size={nbytes} none {root}/usr/lib"
    command = ["unshare", "-m", *([] if os.geteuid() == 0 else ["-r"]), "sh", "-euc", f"{prepare}; {script}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=merged(None))


def test_I12_no_space_is_found_before_anything_is_written(root: Path, payload: Path) -> None:
    vgpu = f"{sys.executable} -c 'import sys; from vgpu_guest.cli import vgpu; sys.exit(vgpu())'"
    install = f"{vgpu} install --root {root} --from {payload}"
    result = in_a_small_file_system(root, 64 << 10, f"find {root} | sort; echo; ! {install}; find {root} | sort")
    assert result.returncode == 0, result.stderr
    assert "no space: " in result.stderr
    before, after = result.stdout.split("\n\n")
    assert before == after.rstrip("\n")


def test_I12_space_that_runs_out_meanwhile_is_given_back(
    root: Path, payload: Path, run: Vgpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(root)
    real = os.write
    left = 30_000

    def write(fd: int, data: bytes) -> int:
        nonlocal left
        left -= len(data)
        if left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr("vgpu_guest.tree.os.write", write)
    output = run("install", "--root", root, "--from", payload, code=1).output
    assert output == "vgpu install: no space left; what was done was taken back\n"
    monkeypatch.undo()
    same(root, before)
