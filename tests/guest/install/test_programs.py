"""Programs in a guest that had no GPU: after `vgpu install` they compute on a simulated one, and nothing else changed.

The guest is this system's programs and libraries under a root of its own (guest.py); vgpud runs outside, and its socket
is shared with the guest at its usual place.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from vgpud.cli.private_daemon import PrivateDaemon

from tests.guest.elf_file import compile_c, compile_library
from tests.guest.install.guest import ROOT, Guest
from tests.guest.install.snapshot import snapshot
from tests.npm import npm_package
from tests.programs.toolchain import PTX, SHARED, cuda13
from tests.pypi import environment

PROGRAMS = Path(__file__).parent / "programs"
STAND_INS = ROOT / "tests/cudart/c"
START = (sys.executable, str(PROGRAMS / "start_unit.py"))

pytestmark = [pytest.mark.client, pytest.mark.timeout(700)]


@pytest.fixture(scope="module")
def socket_folder() -> Iterator[Path]:
    """The folder of a vgpud's socket, `vgpud.sock`."""
    with PrivateDaemon("h100") as daemon:
        yield Path(daemon.endpoint.path).parent


@pytest.fixture
def guest(tmp_path: Path, socket_folder: Path) -> Guest:
    return Guest(tmp_path / "guest", {"/run/vgpu": socket_folder})


def done(result: CompletedProcess[str]) -> str:
    assert result.returncode == 0, f"exit {result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-3000:]}"
    return result.stdout


def own(guest: Guest) -> dict[str, tuple[object, ...]]:
    """A snapshot of the guest's own files: seen from outside, the folders mounted in the guest are empty."""
    return {path: found for path, found in snapshot(guest.root).items() if "__pycache__" not in path}


def test_a_program_with_the_static_runtime(guest: Guest) -> None:
    program = cuda13().build("saxpy", PTX)
    before = own(guest)
    assert "cudaErrorInsufficientDriver" in guest.run([program]).stdout
    done(guest.vgpu("install"))
    assert "ok saxpy" in done(guest.run([program]))
    assert "ok saxpy" in done(guest.run([program], {"LD_LIBRARY_PATH": "/nowhere"}))
    assert done(guest.vgpu("doctor", "--", str(program))).startswith("OK: ")
    done(guest.vgpu("uninstall"))
    assert own(guest) == before
    assert "cudaErrorInsufficientDriver" in guest.run([program]).stdout


def test_a_program_with_the_shared_runtime_finds_ours_when_there_is_none(guest: Guest) -> None:
    program = cuda13().build("saxpy", SHARED)
    assert "libcudart.so.13: cannot open" in guest.run([program]).stderr
    done(guest.vgpu("install", "--with-cudart", "none"))
    assert "libcudart.so.13: cannot open" in guest.run([program]).stderr
    done(guest.vgpu("install", "--with-cudart", "auto"))
    assert "ok saxpy" in done(guest.run([program]))


def test_a_program_with_the_shared_runtime_keeps_nvidias_where_it_is(guest: Guest) -> None:
    program = cuda13().build("saxpy", SHARED)
    theirs = guest.root / "opt/nvidia/libcudart.so.13"
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes((cuda13().library_folder() / "libcudart.so.13").read_bytes())
    (guest.root / "etc/ld.so.conf.d/nvidia.conf").write_text("/opt/nvidia\n")
    done(guest.vgpu("install"))
    assert "libcudart.so.13 => /opt/nvidia/libcudart.so.13" in done(guest.run(["/usr/bin/ldd", program]))
    assert "ok saxpy" in done(guest.run([program]))


def test_L16_D14_all_names_are_found_by_the_loader(guest: Guest) -> None:
    done(guest.vgpu("install"))
    names = ["libcuda.so", "libcuda.so.1", "libnvidia-ml.so", "libnvidia-ml.so.1", "libcudart.so.12"]
    load = "import ctypes, sys; [ctypes.CDLL(name) for name in sys.argv[1:]]; print(open('/proc/self/maps').read())"
    maps = done(guest.run([sys.executable, "-c", load, *names]))
    assert set(re.findall(r"/\S*lib(?:cuda|nvidia|cudart)\S*", maps)) == {
        "/usr/lib/vgpu/libcuda.so.580.159.04",
        "/usr/lib/vgpu/libnvidia-ml.so.580.159.04",
        "/usr/lib/vgpu/cudart/12/libcudart.so.12",
    }


def test_a_users_own_installation(guest: Guest) -> None:
    program = cuda13().build("saxpy", SHARED)
    done(guest.vgpu("install", "--user", "--with-cudart", "13"))
    assert "libcudart.so.13: cannot open" in guest.run([program]).stderr
    assert "ok saxpy" in done(guest.run(["/bin/sh", "-c", f". /root/.local/lib/vgpu/env.sh; exec {program}"]))
    done(guest.vgpu("uninstall", "--user"))
    assert not (guest.root / "root/.local").exists()


# The check in Ollama's install.sh before it installs NVIDIA's driver, where lspci has shown a stub device.
DETECTION = """
if command -v nvidia-smi >/dev/null && nvidia-smi -L; then echo GPU ready; exit; fi
echo would install a driver
"""


def test_D17_an_installer_finds_nvidia_smi_and_installs_no_driver(guest: Guest) -> None:
    environment = {"PYTHONPATH": f"{ROOT}/guest:{ROOT}/daemon", "PYTHONDONTWRITEBYTECODE": "1"}
    program = guest.root / "usr/local/bin/vgpu"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!{sys.executable}\nimport sys\nfrom vgpud.cli.main import vgpu\nsys.exit(vgpu())\n")
    program.chmod(0o755)
    assert guest.run(["/bin/sh", "-c", DETECTION]).stdout == "would install a driver\n"
    said = done(guest.run(["/usr/local/bin/vgpu", "install", "--with-smi"], environment))
    assert "/usr/local/bin/nvidia-smi is /usr/local/bin/vgpu smi" in said
    found = done(guest.run(["/bin/sh", "-c", DETECTION], environment)).splitlines()
    assert found[0].startswith("GPU 0: NVIDIA H100 PCIe (UUID: GPU-")
    assert found[1] == "GPU ready"
    done(guest.run(["/usr/local/bin/vgpu", "uninstall"], environment))
    assert not (program.parent / "nvidia-smi").exists()


RPATH_PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : 0;
  printf("cuInit %d\\n", init ? init(0) : -1);
  return 0;
}
"""


def test_a_program_whose_rpath_leads_to_another_libcuda(guest: Guest) -> None:
    """As in conda's Python: its rpath (the environment's lib) is searched before LD_LIBRARY_PATH and the cache."""
    compile_library(guest.root / "opt/conda/lib/libcuda.so.1", source="int cuInit(unsigned f) { return 35 + (int)f; }")
    flags = ["-Wl,--disable-new-dtags,-rpath,/opt/conda/lib", "-ldl"]
    compile_c(guest.root / "opt/conda/bin/app", RPATH_PROGRAM, "-x", "none", *flags)
    program = "/opt/conda/bin/app"
    unit = guest.root / "etc/systemd/system/app.service"
    unit.parent.mkdir(parents=True)
    unit.write_text(f"[Service]\nExecStart={program}\n")
    done(guest.vgpu("install"))
    assert done(guest.run([program])) == "cuInit 35\n"
    diagnosis = guest.vgpu("doctor", "--", program)
    assert diagnosis.stdout.startswith("library-rpath: "), diagnosis
    assert "mend: export LD_PRELOAD=/usr/lib/vgpu/libcuda.so.1" in diagnosis.stdout
    assert done(guest.run([program], {"LD_PRELOAD": "/usr/lib/vgpu/libcuda.so.1"})) == "cuInit 0\n"
    said = done(guest.vgpu("install", "--service", "app"))
    assert "app.service: libcuda.so.1 is preloaded, for an RPATH leads to /opt/conda/lib/libcuda.so.1" in said
    assert done(guest.run([*START, "app"])) == "cuInit 0\n"
    assert done(guest.vgpu("doctor", "--service", "app")).startswith("OK: ")


# A program like PyTorch's profilers, with an RPATH to NVIDIA's libcupti: it prints which libcupti it binds.
PROFILER = """
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
int main(void) {
  struct link_map *map = dlopen("libcupti.so.13", RTLD_NOW);
  puts(map ? map->l_name : dlerror());
  return 0;
}
"""


def build_profiler(root: Path) -> Path:
    """Build a program that brings its own libcupti, as a Python environment does; return its path inside `root`."""
    compile_library(root / "opt/venv/lib/libcupti.so.13")
    flags = ["-x", "none", "-Wl,--disable-new-dtags,-rpath,/opt/venv/lib", "-ldl"]
    return Path("/", compile_c(root / "opt/venv/bin/app", PROFILER, *flags).relative_to(root))


def test_a_services_profiler_binds_vgpus_libcupti(guest: Guest) -> None:
    program = build_profiler(guest.root)
    unit = guest.root / "etc/systemd/system/app.service"
    unit.parent.mkdir(parents=True)
    unit.write_text(f"[Service]\nExecStart={program}\n")
    assert done(guest.run([*START, "app"])) == "/opt/venv/lib/libcupti.so.13\n"
    said = done(guest.vgpu("install", "--service", "app"))
    assert "app.service: libcupti.so.13 is preloaded, for profilers would bind /opt/venv/lib/libcupti.so.13" in said
    assert done(guest.run([*START, "app"])) == "/usr/lib/vgpu/cupti/13/libcupti.so.13\n"
    assert "nothing had to be changed" in done(guest.vgpu("install", "--service", "app"))


# A llama.cpp service


@pytest.fixture(scope="module")
def cublas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stand-in for cuBLAS, to which llama.cpp is linked; the matrix products here use llama.cpp's own kernels."""
    folder = tmp_path_factory.mktemp("cublas")
    script = folder / "map"
    script.write_text("libcublas.so.13 { global: cublas*; local: *; };\n")
    command = ["cc", "-O2", "-shared", "-fPIC", "-Wl,-soname,libcublas.so.13", f"-Wl,--version-script={script}"]
    command += ["-o", str(folder / "libcublas.so.13"), str(STAND_INS / "vgt_cublas.c")]
    subprocess.run(command, check=True, timeout=60)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    python = environment("gguf==0.17.1", "numpy") / "bin/python"
    command = [str(python), str(ROOT / "tests/cudart/programs/tiny_llama.py"), str(path)]
    subprocess.run(command, check=True, timeout=120)
    return path


def logits(said: str) -> list[list[float]]:
    return [[float(word) for word in line.split()[1:]] for line in said.splitlines() if line.startswith("logits ")]


def test_a_llama_cpp_service_goes_from_the_cpu_to_the_vgpu_by_install_alone(
    guest: Guest, cublas: Path, model: Path
) -> None:
    """llama.cpp as node-llama-cpp ships it, unmodified; its unit knows nothing of vgpu."""
    ggml = npm_package("@node-llama-cpp/linux-x64-cuda", "3.14.5") / "bins/linux-x64-cuda"
    opt = guest.root / "opt/llama"
    opt.mkdir(parents=True)
    for file in (cublas / "libcublas.so.13", model):
        (opt / file.name).write_bytes(file.read_bytes())
    service = opt / "serve"
    service.write_text(f"#!{sys.executable}\n{(PROGRAMS / 'llama_service.py').read_text()}")
    service.chmod(0o755)
    unit = guest.root / "etc/systemd/system/llama.service"
    unit.parent.mkdir(parents=True)
    start = f"ExecStart=/opt/llama/serve {ggml} /opt/llama/{model.name}"
    unit.write_text(f"[Service]\nEnvironment=LD_LIBRARY_PATH=/opt/llama\n{start}\n")
    before = own(guest)

    on_cpu = done(guest.run([*START, "llama"]))
    assert [line for line in on_cpu.splitlines() if "logits" not in line] == ["device CPU", "library=cpu"]

    assert "llama.service gets the libraries by its drop-in" in done(guest.vgpu("install", "--service", "llama"))
    assert done(guest.vgpu("doctor", "--service", "llama")).startswith("OK: llama.service reaches the vGPU")
    on_vgpu = done(guest.run([*START, "llama"]))
    assert [line for line in on_vgpu.splitlines() if "logits" not in line] == [
        "device CUDA0: NVIDIA H100 PCIe",
        "device CPU",
        "library=cuda",
    ]
    pairs = list(zip(logits(on_cpu), logits(on_vgpu), strict=True))
    assert len(pairs) > 10
    for cpu, vgpu in pairs:
        assert max(map(abs, cpu)) > 2
        # llama.cpp's two CPU implementations of attention differ by 0.07 in this model, which has 8-bit weights.
        assert max(abs(a - b) for a, b in zip(cpu, vgpu, strict=True)) < 0.15
    assert not (guest.root / "etc/ld.so.conf.d/000-vgpu.conf").exists()  # installed for this service alone

    done(guest.vgpu("uninstall"))
    assert own(guest) == before
    assert "library=cpu" in done(guest.run([*START, "llama"]))
    assert os.listdir(guest.root / "etc/systemd/system") == ["llama.service"]
