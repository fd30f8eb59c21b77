"""The library as a file: exported names, dependencies, and that it works however it is loaded."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nvml.conftest import LIB, LIBRARY, ROOT, clean_environment
from tests.patience import PATIENCE_S

CALL = """
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
  void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return fprintf(stderr, "%s\\n", dlerror()), 1;
  int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit");
  int (*count)(unsigned *) = (int (*)(unsigned *))dlsym(library, "nvmlDeviceGetCount");
  int (*shutdown)(void) = (int (*)(void))dlsym(library, "nvmlShutdown");
  unsigned devices = 99;
  int result = init(), counted = count(&devices), ended = shutdown(), again = shutdown();
  printf("%d %d %u %d %d\\n", result, counted, devices, ended, again);
  dlclose(library);
  return 0;
}
"""


RELOAD = """
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
static int entries(const char *path) {
  int n = 0;
  DIR *folder = opendir(path);
  while (readdir(folder))
    n++;
  closedir(folder);
  return n;
}
int main(int argc, char **argv) {
  int before = 0;
  for (int round = 0; round < 100; round++) {
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
    if (init())
      return 1;
    if (dlclose(library)) /* without nvmlShutdown */
      return 2;
    if (round == 1)
      before = entries("/proc/self/fd");
  }
  if (entries("/proc/self/fd") != before || entries("/proc/self/task") != 3)
    return 3;
  int child = fork(), status; /* handlers of an unloaded library must not run */
  if (!child)
    _exit(0);
  waitpid(child, &status, 0);
  return status ? 4 : 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    source = folder / "call.c"
    source.write_text(CALL)
    subprocess.run(["cc", "-o", str(folder / "call"), str(source), "-ldl"], check=True)
    return folder / "call"


def readelf(*options: str) -> str:
    return subprocess.run(["readelf", "-W", *options, str(LIBRARY)], capture_output=True, check=True, text=True).stdout


def exported() -> set[str]:
    symbols = [line.split() for line in readelf("--dyn-syms").splitlines() if re.search(r"\b(GLOBAL|WEAK)\b", line)]
    return {fields[7].split("@")[0] for fields in symbols if fields[6] != "UND"}


def test_exports_are_exactly_those_of_nvidias_library() -> None:
    theirs = set((ROOT / "protocol/data/nvml-580-exports.txt").read_text().split())
    assert len(theirs) == 404
    assert exported() == theirs


def test_names_of_the_file() -> None:
    assert re.findall(r"\(SONAME\).*\[(.+)\]", readelf("-d")) == ["libnvidia-ml.so.1"]
    assert {(LIB / name).resolve().name for name in ("libnvidia-ml.so", "libnvidia-ml.so.1")} == {
        "libnvidia-ml.so.580.159.04"
    }


def test_needs_only_the_c_library_and_no_new_one() -> None:
    needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("-d")))
    assert needed <= {"libc.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2"}
    versions = {tuple(map(int, found.split("."))) for found in re.findall(r"@GLIBC_(\d+\.\d+)", readelf("--dyn-syms"))}
    assert versions
    assert max(versions) <= (2, 35)


def test_complete_alone(program: Path, endpoint: str) -> None:
    result = subprocess.run(
        [str(program), str(LIBRARY)],
        env={"VGPU_ENDPOINT": endpoint},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert result.stdout == "0 0 2 0 1\n", result.stderr


def test_loaded_and_unloaded_a_hundred_times(endpoint: str, tmp_path: Path) -> None:
    source = tmp_path / "reload.c"
    source.write_text(RELOAD)
    subprocess.run(["cc", "-o", str(tmp_path / "reload"), str(source), "-ldl"], check=True)
    result = subprocess.run([str(tmp_path / "reload"), str(LIBRARY)], env={"VGPU_ENDPOINT": endpoint}, timeout=60)
    assert result.returncode == 0


@pytest.mark.parametrize("name", ["libnvidia-ml.so.1", "libnvidia-ml.so"])
def test_found_by_library_path(program: Path, endpoint: str, name: str) -> None:
    environment = {"VGPU_ENDPOINT": endpoint, "LD_LIBRARY_PATH": str(LIB)}
    result = subprocess.run([str(program), name], env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert result.stdout == "0 0 2 0 1\n", result.stderr


def test_preloaded(program: Path, endpoint: str) -> None:
    environment = {"VGPU_ENDPOINT": endpoint, "LD_PRELOAD": str(LIBRARY)}
    result = subprocess.run(
        [str(program), "libnvidia-ml.so.1"], env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert result.stdout == "0 0 2 0 1\n", result.stderr


def test_loading_it_opens_nothing(endpoint: str) -> None:
    """The constructor does nothing: no descriptor, no thread, until the first call."""
    code = (
        "import ctypes, os\n"
        "def state(): return sorted(os.listdir('/proc/self/fd')), len(os.listdir('/proc/self/task'))\n"
        "before = state()\n"
        f"ctypes.CDLL({str(LIBRARY)!r})\n"
        "assert state() == before, (before, state())\n"
    )
    subprocess.run(
        [sys.executable, "-c", code], env=clean_environment(VGPU_ENDPOINT=endpoint), check=True, timeout=PATIENCE_S
    )
