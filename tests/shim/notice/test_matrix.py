"""When the notice is shown, and that nothing else changes (cases G01, G06, L04, L09)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.shim.notice.conftest import LINE, OURS, Installed, Machine, compiled, stand_in

WAYS = ["linked", "linked-now", "local", "global", "deepbind", "default"]
PROC_WAYS = ["proc", "proc_v2", "told_proc", "told_proc_v2"]
VISIBLE = [None, "", "-1", "0"]
RESULTS = [0, 3, 35, 100, 999]
Loader = Callable[[str], list[str | Path]]


def due(marked: bool, visible: str | None, result: int) -> bool:
    return marked and visible == "" and result == 100


@pytest.mark.parametrize("way", [*WAYS, *PROC_WAYS])
def test_g06_matrix_over_a_stand_in(installed: Installed, loader: Loader, tmp_path: Path, way: str) -> None:
    for number, (marked, visible, result) in enumerate(itertools.product([True, False], VISIBLE, RESULTS)):
        machine = Machine(tmp_path / str(number), marked=marked)
        command = [*loader(way), "3"]
        native = machine.run(command, installed.driver.parent, visible, VGT_RESULT=str(result))
        noticed = machine.run(command, installed.folder, visible, VGT_RESULT=str(result))
        assert (native.returncode, native.stderr) == (0, ""), native
        assert f"cuInit {result} errno 7 cuInit {result} errno 7" in native.stdout
        assert (noticed.returncode, noticed.stdout) == (0, native.stdout), (marked, visible, result)
        assert noticed.stderr == (LINE if due(marked, visible, result) else ""), (marked, visible, result)


@pytest.mark.parametrize("way", [*WAYS, *PROC_WAYS])
@pytest.mark.parametrize("front", [True, False], ids=["before-ours", "ours"])
def test_g06_matrix_over_our_libcuda(
    before_ours: Installed, loader: Loader, tmp_path: Path, way: str, front: bool
) -> None:
    """cuInit answers 100 without an endpoint, 802 if nobody listens; alone, and with the other notice in front."""
    libraries = before_ours.folder if front else OURS.parent
    for number, (marked, visible, endpoint) in enumerate(itertools.product([True, False], VISIBLE, ["", "unix:/nix"])):
        machine = Machine(tmp_path / str(number), marked=marked, env={"VGPU_ENDPOINT": endpoint})
        done = machine.run(loader(way), libraries, visible)
        hidden = visible in ("", "-1")
        result = 802 if endpoint and not hidden else 100
        assert done.returncode == 0, done
        assert f"cuInit {result} errno" in done.stdout
        reasons = [line for line in done.stderr.splitlines(keepends=True) if line.startswith("vgpu[")]
        assert len(reasons) == (result == 802), "our libcuda says why it reaches no daemon"
        rest = done.stderr.replace("".join(reasons), "")
        assert rest == (LINE if due(marked, visible, result) else ""), (marked, visible, endpoint)


@pytest.mark.parametrize("way", ["local", "proc", "proc_v2", "told_proc_v2"])
def test_driver_with_the_first_form_alone(
    install: Callable[[Path], Installed], loader: Loader, machine: Machine, tmp_path: Path, way: str
) -> None:
    """A driver of 11.x has no cuGetProcAddress_v2; the notice builds one from the driver's cuGetProcAddress."""
    old = install(stand_in(tmp_path / "old", "-DFIRST_FORM_ONLY", "-Wl,-soname,libcuda.so.1"))
    done = machine.run(loader(way), old.folder, VGT_RESULT="100")
    assert (done.returncode, done.stderr) == (0, LINE)
    assert "cuInit 100 errno 7" in done.stdout
    if way.endswith("v2"):
        assert "nothing 0 1 0 proc_v2 0 0" in done.stdout


def test_l04_one_driver_in_the_process(installed: Installed, machine: Machine, tmp_path: Path) -> None:
    """Later lookups, by any name, find the library that is already loaded."""
    program = tmp_path / "again.c"
    program.write_text(
        """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdio.h>
        int main(void) {
          void *first = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *second = dlopen("libcuda.so", RTLD_NOW);
          Dl_info alloc, init;
          dladdr(dlsym(first, "cuMemAlloc_v2"), &alloc);
          dladdr(dlsym(second, "cuInit"), &init);
          printf("%d %s %s\\n", first == second, alloc.dli_fname, init.dli_fname);
          return 0;
        }
        """
    )
    done = machine.run([compiled(tmp_path / "again", program)], installed.folder)
    same, alloc, init = done.stdout.split()
    assert same == "1"
    assert Path(alloc).resolve() == installed.driver
    assert Path(init).resolve() == installed.folder / "libvgpu-notice.so"


def test_GP10_without_a_driver_behind_it_every_program_runs(
    install: Callable[[Path], Installed], loader: Loader, machine: Machine, tmp_path: Path
) -> None:
    """On a machine whose driver was removed every program still runs, and no notice is shown."""
    empty = install(tmp_path / "removed/libcuda.so.1")
    for variable, value in (("LD_PRELOAD", str(empty.folder / "libvgpu-notice.so")), ("LD_LIBRARY_PATH", "")):
        done = machine.run(["/bin/sh", "-c", "exec /bin/true"], empty.folder, **({variable: value} if value else {}))
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), variable
    program = tmp_path / "init.c"
    program.write_text(
        '#include <dlfcn.h>\n#include <stdio.h>\nint main(void) {void *l = dlopen("libcuda.so.1", RTLD_NOW);'
        ' printf("%d\\n", ((int (*)(unsigned))dlsym(l, "cuInit"))(0)); return 0;}'
    )
    done = machine.run([compiled(tmp_path / "init", program)], empty.folder, CUDA_VISIBLE_DEVICES="")
    assert (done.returncode, done.stdout, done.stderr) == (0, "100\n", "")


@pytest.mark.parametrize(
    ("visible", "result", "reason"),
    [
        ("0", "100", "CUDA_VISIBLE_DEVICES is not set and empty"),
        ("", "999", "cuInit did not answer that there is no device"),
        ("", "100", "there is no file"),
    ],
)
def test_GP11_who_asks_is_told_why_no_notice_is_shown(
    installed: Installed, loader: Loader, machine: Machine, visible: str, result: str, reason: str
) -> None:
    machine.marker.unlink(missing_ok=True)
    variables = {"CUDA_VISIBLE_DEVICES": visible, "VGT_RESULT": result}
    assert machine.run(loader("local"), installed.folder, **variables).stderr == ""
    assert reason in machine.run(loader("local"), installed.folder, VGPU_NOTICE="why", **variables).stderr


def test_l09_a_next_driver_that_is_the_notice_does_not_recurse(
    install: Callable[[Path], Installed], machine: Machine, tmp_path: Path
) -> None:
    looped = install(tmp_path / "unused")
    (looped.folder / "next/libcuda.so.1").unlink()
    (looped.folder / "next/libcuda.so.1").symlink_to("../libvgpu-notice.so")
    program = tmp_path / "init.c"
    program.write_text(
        '#include <dlfcn.h>\n#include <stdio.h>\nint main(void) {void *l = dlopen("libcuda.so.1", RTLD_NOW);'
        ' printf("%d\\n", ((int (*)(unsigned))dlsym(l, "cuInit"))(0)); return 0;}'
    )
    done = machine.run([compiled(tmp_path / "init", program)], looped.folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "100\n", "")
