"""Programs over NVIDIA's own CUDA runtimes, which get cuInit from cuGetProcAddress alone (case G01)."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pypi import packages
from tests.shim.notice.conftest import HERE, LINE, OURS, Installed, Machine, compiled
from tests.shim.notice.debian import nvidia_libcuda
from tests.shim.notice.test_matrix import RESULTS, VISIBLE, due

pytestmark = pytest.mark.client

RUNTIMES = {
    "static-13.0": ("nvidia-cuda-runtime==13.0.96", "nvidia/cu13/lib/libcudart_static.a"),
    "13.0": ("nvidia-cuda-runtime==13.0.96", "nvidia/cu13/lib/libcudart.so.13"),
    "13.5": ("nvidia-cuda-runtime==13.5.37", "nvidia/cu13/lib/libcudart.so.13"),
    "12.8": ("nvidia-cuda-runtime-cu12==12.8.90", "nvidia/cuda_runtime/lib/libcudart.so.12"),
    "11.8": ("nvidia-cuda-runtime-cu11==11.8.89", "nvidia/cuda_runtime/lib/libcudart.so.11.0"),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`program(name)` is vgt_count linked with that runtime."""

    def build(name: str) -> Path:
        requirement, file = RUNTIMES[name]
        library = packages(requirement) / file
        options = ["-pthread", "-ldl", "-lrt"] if library.suffix == ".a" else [f"-Wl,-rpath,{library.parent}"]
        return compiled(tmp_path_factory.mktemp(name) / "count", HERE / "vgt_count.c", str(library), *options)

    return build


@pytest.mark.parametrize("name", RUNTIMES)
def test_g01_matrix_over_a_stand_in(
    installed: Installed, program: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    count = program(name)
    for number, (marked, visible, result) in enumerate(itertools.product([True, False], VISIBLE, RESULTS)):
        machine = Machine(tmp_path / str(number), marked=marked)
        native = machine.run([count], installed.driver.parent, visible, VGT_RESULT=str(result))
        noticed = machine.run([count], installed.folder, visible, VGT_RESULT=str(result))
        assert (native.returncode, native.stderr) == (0, ""), native
        assert native.stdout.startswith(f"count {result or 999} ")  # 999: the replacement has no export tables
        assert (noticed.returncode, noticed.stdout) == (0, native.stdout), (marked, visible, result)
        assert noticed.stderr == (LINE if due(marked, visible, result) else ""), (marked, visible, result)


@pytest.mark.parametrize("name", RUNTIMES)
def test_g01_over_our_libcuda(program: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    for marked, visible in itertools.product([True, False], VISIBLE):
        machine = Machine(tmp_path / f"{marked}{visible}", marked=marked)
        done = machine.run([program(name)], OURS.parent, visible)
        assert done.stdout.startswith("count 100 100 ")
        assert done.stderr == (LINE if due(marked, visible, 100) else ""), (marked, visible)


@pytest.mark.parametrize(
    "way", ["linked", "local", "global", "deepbind", "proc", "proc_v2", "told_proc", "told_proc_v2"]
)
def test_g01_before_nvidias_own_libcuda(
    install: Callable[[Path], Installed], loader: Callable[[str], list[str | Path]], tmp_path: Path, way: str
) -> None:
    """NVIDIA's libcuda finds no GPU here, whatever CUDA_VISIBLE_DEVICES says, so cuInit only ever answers 100."""
    before = install(nvidia_libcuda())
    for marked, visible in itertools.product([True, False], VISIBLE):
        machine = Machine(tmp_path / f"{marked}{visible}", marked=marked)
        native = machine.run(loader(way), before.driver.parent, visible)
        noticed = machine.run(loader(way), before.folder, visible)
        assert "cuInit 100 " in native.stdout, native
        assert (noticed.returncode, noticed.stdout) == (native.returncode, native.stdout)
        assert noticed.stderr == (LINE if due(marked, visible, 100) else ""), (marked, visible)


@pytest.mark.parametrize("name", ["12.8", "11.8"])
def test_g01_nvidias_runtime_before_nvidias_libcuda(
    install: Callable[[Path], Installed], program: Callable[[str], Path], machine: Machine, name: str
) -> None:
    before = install(nvidia_libcuda())
    native = machine.run([program(name)], before.driver.parent)
    noticed = machine.run([program(name)], before.folder)
    assert native.stdout.startswith("count 100 100 ")
    assert (noticed.returncode, noticed.stdout, noticed.stderr) == (0, native.stdout, LINE)


def test_nvidias_libcuda_keeps_every_name(
    install: Callable[[Path], Installed], machine: Machine, tmp_path: Path
) -> None:
    """Through the notice, dlsym finds all NVIDIA's names in NVIDIA's library, except the notice's own three names."""
    before = install(nvidia_libcuda())
    listing = subprocess.run(
        ["readelf", "-W", "--dyn-syms", str(before.driver)], capture_output=True, text=True, check=True
    ).stdout
    symbols = [line.split() for line in listing.splitlines() if " GLOBAL " in line or " WEAK " in line]
    names = {fields[7] for fields in symbols if fields[6] != "UND" and fields[7].startswith("cu")}
    assert len(names) > 400
    program = tmp_path / "names.c"
    program.write_text(
        """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdio.h>
        int main(int argc, char **argv) {
          void *library = dlopen("libcuda.so.1", RTLD_NOW);
          for (int i = 1; i < argc; i++) {
            Dl_info found = {0};
            void *symbol = dlsym(library, argv[i]);
            if (symbol && dladdr(symbol, &found))
              printf("%s %s\\n", argv[i], found.dli_fname);
          }
          return 0;
        }
        """
    )
    done = machine.run([compiled(tmp_path / "names", program), *sorted(names)], before.folder)
    found = dict(line.split() for line in done.stdout.splitlines())
    ours = {name for name, file in found.items() if Path(file).resolve() == before.folder / "libvgpu-notice.so"}
    theirs = {name for name, file in found.items() if Path(file).resolve() == before.driver.resolve()}
    assert ours == {"cuInit", "cuGetProcAddress", "cuGetProcAddress_v2"}
    assert theirs == names - ours
