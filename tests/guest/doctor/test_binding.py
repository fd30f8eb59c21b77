"""The verdict is about the libraries that the program itself would bind, as the loader finds them in its environment.

In each of the cases GD1 to GD9 the doctor once said OK although the program failed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipapp
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.running import Running
from tests.guest.doctor.tree import CUDA, LIB, MAIN, Tree, doctor
from tests.guest.elf_file import compile_c, compile_library
from tests.programs.toolchain import MACHINE_CODE, cuda13

OLD_SHIM = "int cuInit(unsigned f) { (void)f; return 100; }"
WRAPPER = "int cuMemAlloc_v2(void *p, unsigned long n) { (void)p; (void)n; return 0; }"
SLEEP = '#include <unistd.h>\nint main(void) { return write(1, "x", 1) != 1 || sleep(600); }'


def both(tree: Tree) -> str:
    return f"LD_LIBRARY_PATH=/usr/lib/vgpu VGPU_ENDPOINT={tree.environment['VGPU_ENDPOINT']}"


def test_GD1_a_link_to_an_old_shim_in_ollamas_own_folder(tree: Tree) -> None:
    tree.program = "/usr/local/bin/ollama"
    compile_c(tree.path(tree.program), MAIN)
    tree.library("usr/local/lib/ollama/cuda_v12/libggml-cuda.so", source="int ggml;")
    tree.library("opt/old/libshim.so", source=OLD_SHIM)
    tree.unit(f"[Service]\nExecStart={tree.program} serve\nEnvironment={both(tree)}\n", "ollama.service")
    assert tree.doctor("--service", "ollama").verdict == "ok"
    link = tree.path("usr/local/lib/ollama/libcuda.so.1")
    link.symlink_to("/opt/old/libshim.so")
    told = tree.doctor("--service", "ollama")
    assert (told.code, told.verdict) == (10, "library-foreign"), told.everything
    assert "/usr/local/lib/ollama/libcuda.so.1" in told.answer["text"]
    assert told.answer["mend"].startswith("sudo rm /usr/local/lib/ollama/libcuda.so.1 && ")


def test_GD2_an_old_shim_in_the_units_LD_PRELOAD(tree: Tree) -> None:
    tree.library("opt/old/libshim.so", source=OLD_SHIM)
    tree.unit(
        f"[Service]\nExecStart={tree.program}\nEnvironment={both(tree)}\nEnvironment=LD_PRELOAD=/opt/old/libshim.so\n"
    )
    told = tree.doctor("--service", "gpu")
    assert (told.code, told.verdict) == (10, "library-interposed"), told.everything
    assert "/opt/old/libshim.so is preloaded and defines cuInit" in told.answer["text"]
    assert "UnsetEnvironment=LD_PRELOAD" in told.answer["mend"]


def test_GD2_the_running_process_too(tree: Tree) -> None:
    tree.library("opt/old/libshim.so", source=OLD_SHIM)
    compile_c(tree.path(tree.program), SLEEP)
    environment = {**tree.environment, "LD_PRELOAD": "/opt/old/libshim.so"}
    with subprocess.Popen(
        [tree.program], env=environment, preexec_fn=lambda: os.chroot(tree.root), cwd="/", stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.read(1) == b"x"
            told = tree.doctor("--pid", str(process.pid))
        finally:
            process.kill()
    assert told.verdict == "library-interposed", told.everything
    assert "env -u LD_PRELOAD" in told.answer["advice"]


def test_GD3_a_foreign_nvml_first_in_the_cache(tree: Tree) -> None:
    tree.library("opt/nvidia/libnvidia-ml.so.1", source='int nvmlInit_v2(void) { return 9; } char m[] = "NVIDIA";')
    tree.write("etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n")
    tree.write("etc/ld.so.conf.d/00-nvidia.conf", "/opt/nvidia\n")
    tree.write("etc/ld.so.conf.d/000-vgpu.conf", "/usr/lib/vgpu\n")
    tree.ldconfig()
    del tree.environment["LD_LIBRARY_PATH"]
    told = tree.doctor()
    assert (told.code, told.verdict) == (10, "library-foreign"), told.everything
    assert "libnvidia-ml.so.1 resolves to /opt/nvidia/libnvidia-ml.so.1" in told.answer["text"]
    assert "/etc/ld.so.conf.d/00-nvidia.conf is read before" in told.answer["text"]


@pytest.mark.parametrize(("source", "name"), [(OLD_SHIM, "cuInit"), (WRAPPER, "cuMemAlloc_v2")])
def test_GD4_GD5_a_preloaded_function_of_cudas_is_named(tree: Tree, source: str, name: str) -> None:
    """The program calls the preloaded function instead of libcuda's, whatever that library's name and purpose."""
    tree.library("opt/libtool.so", source=source)
    tree.environment["LD_PRELOAD"] = "/opt/libtool.so"
    told = tree.doctor()
    assert (told.code, told.verdict) == (10, "library-interposed"), told.everything
    assert name in told.answer["text"]
    assert told.answer["mend"] == "unset LD_PRELOAD"


def test_a_preloaded_file_without_cudas_names_is_nothing(tree: Tree) -> None:
    tree.library("opt/libtool.so", source="int custom(void) { return 0; }")
    tree.environment["LD_PRELOAD"] = "/opt/libtool.so"
    assert tree.doctor().verdict == "ok"


@pytest.mark.parametrize("entry", [":", ".", "lib", ":/nowhere", "/nowhere:"])
def test_GD6_a_foreign_library_by_an_empty_or_relative_entry(tmp_path: Path, unix: str, entry: str) -> None:
    """The loader resolves empty and relative entries in the program's working directory."""
    program = compile_c(tmp_path / "program", MAIN)
    compile_library(tmp_path / "libcuda.so.1", source=CUDA)
    compile_library(tmp_path / "lib/libcuda.so.1", source=CUDA)
    environment = {"LD_LIBRARY_PATH": f"{entry}:{LIB}", "VGPU_ENDPOINT": unix}
    told = doctor("--", program, env=environment, cwd=tmp_path)
    where = tmp_path / "lib/libcuda.so.1" if entry == "lib" else tmp_path / "libcuda.so.1"
    assert told.verdict == "library-foreign", told.everything
    assert told.answer["libs"]["libcuda.so.1"]["resolved"] == str(where)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert doctor("--", program, env=environment, cwd=elsewhere).verdict == "ok"


def test_GD6_a_relative_rpath(tmp_path: Path, unix: str) -> None:
    program = compile_c(tmp_path / "program", MAIN, "-Wl,--disable-new-dtags,-rpath,lib")
    compile_library(tmp_path / "lib/libcuda.so.1", source=CUDA)
    environment = {"LD_LIBRARY_PATH": str(LIB), "VGPU_ENDPOINT": unix}
    assert doctor("--", program, env=environment, cwd=tmp_path).verdict == "library-rpath"
    assert doctor("--", program, env=environment, cwd=Path("/")).verdict == "ok"


def test_GD6_a_process_is_asked_in_its_own_working_directory(tmp_path: Path, unix: str) -> None:
    program = compile_c(tmp_path / "program", SLEEP)
    compile_library(tmp_path / "libcuda.so.1", source=CUDA)
    environment = {"LD_LIBRARY_PATH": f":{LIB}", "VGPU_ENDPOINT": unix}
    with subprocess.Popen([program], env=environment, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.read(1) == b"x"
            assert doctor("--pid", str(process.pid), cwd=Path("/")).verdict == "library-foreign"
        finally:
            process.kill()


def test_a_unit_is_asked_in_its_working_directory(tree: Tree) -> None:
    tree.library("srv/app/libcuda.so.1")
    tree.unit(
        f"[Service]\nExecStart={tree.program}\nWorkingDirectory=/srv/app\n"
        f"Environment=LD_LIBRARY_PATH=.:/usr/lib/vgpu VGPU_ENDPOINT={tree.environment['VGPU_ENDPOINT']}\n"
    )
    told = tree.doctor("--service", "gpu")
    assert told.verdict == "library-foreign", told.everything
    assert told.answer["libs"]["libcuda.so.1"]["resolved"] == "/srv/app/libcuda.so.1"


def test_a_library_of_the_programs_own_with_an_rpath_to_another(tree: Tree) -> None:
    """dlopen by a plugin searches the plugin's RPATH, not the program's."""
    tree.library("opt/theirs/libcuda.so.1")
    plugin = tree.library(
        "usr/lib/app/libplugin.so",
        "-Wl,--disable-new-dtags,-rpath,/opt/theirs",
        source="int plugin(void) { return 0; }",
    )
    compile_c(
        tree.path(tree.program),
        "int plugin(void); int main(void) { return plugin(); }",
        "-x",
        "none",
        str(plugin),
        "-Wl,-rpath,/usr/lib/app",
    )
    told = tree.doctor()
    assert told.verdict == "library-rpath", told.everything
    assert "/usr/lib/app/libplugin.so opens libcuda.so.1 and gets /opt/theirs/libcuda.so.1" in told.answer["text"]


def test_GD7_a_half_zeroed_library(tree: Tree) -> None:
    file = tree.path("usr/lib/vgpu/libcuda.so.580.159.04")
    whole = file.read_bytes()
    for start, end in ((len(whole) // 2, len(whole)), (0, len(whole) // 2)):
        file.write_bytes(whole[:start] + bytes(end - start) + whole[end:])
        told = tree.doctor()
        assert (told.code, told.verdict) == (10, "library-damaged"), (start, told.everything)


def test_a_runtime_that_does_not_reach_the_vgpu(tree: Tree) -> None:
    """The doctor calls libcudart as it calls libcuda: a runtime that reports no device is a fault, whoever made it."""
    runtime = tree.library(
        "usr/lib/app/libcudart.so.12", source="int cudaGetDeviceCount(int *n) { *n = 0; return 35; }"
    )
    source = "int cudaGetDeviceCount(int *); int main(void) { int n; return cudaGetDeviceCount(&n); }"
    compile_c(tree.path(tree.program), source, "-x", "none", str(runtime), "-Wl,-rpath,/usr/lib/app")
    told = tree.doctor()
    assert (told.code, told.verdict) == (10, "runtime-foreign"), told.everything
    assert "cudaGetDeviceCount = 35" in told.answer["text"]


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A virtual environment whose packages are empty, with the names of real ones such as cupy."""
    sites = tmp_path / "venv/lib/python3.11/site-packages"
    for name in ("cupy", "numba", "warp", "harmless", "jax", "triton"):
        (sites / name).mkdir(parents=True)
        (sites / name / "__init__.py").touch()
    (sites / "nvidia/nvjitlink/lib").mkdir(parents=True)
    (sites / "nvidia/nvjitlink/lib/libnvJitLink.so.13").touch()
    (tmp_path / "venv/bin").mkdir()
    (tmp_path / "venv/pyvenv.cfg").touch()
    interpreter = tmp_path / "venv/bin/python3"
    interpreter.symlink_to(os.path.realpath(sys.executable))
    return interpreter


@pytest.mark.parametrize(
    ("source", "variables", "verdict"),
    [
        ("import harmless", {}, "ok"),
        ("import cupy as cp", {}, "machine-code-made"),
        ("import cupy", {"CUPY_COMPILE_WITH_PTX": "1"}, "machine-code-made"),
        ("import cupy", {"CUPY_COMPILE_WITH_PTX": "1", "CUPY_ACCELERATORS": ""}, "ok"),
        ("import cupy", {"LD_PRELOAD": str(LIB / "compiler/libnvrtc.so.13"), "CUPY_ACCELERATORS": ""}, "ok"),
        ("from numba import cuda", {}, "machine-code-made"),
        ("from numba import cuda", {"LD_PRELOAD": str(LIB / "compiler/libnvJitLink.so.13")}, "ok"),
        ("import warp as wp\nwp.init()", {}, "machine-code-made"),
        ("import warp as wp\nwp.config.cuda_output = 'ptx'", {}, "machine-code-made"),
        ("import warp as wp  # 1.10\nwp.config.cuda_output = 'ptx'", {}, "ok"),
        ("import helper", {}, "machine-code-made"),
    ],
)
def test_GD8_a_python_programs_packages(
    python: Path, unix: str, source: str, variables: dict[str, str], verdict: str
) -> None:
    script = python.parent.parent.parent / "work/program.py"
    script.parent.mkdir()
    script.write_text(source + "\n")
    if "1.10" in source:
        (python.parent.parent / "lib/python3.11/site-packages/warp_lang-1.10.1.dist-info").mkdir()
    (script.parent / "helper.py").write_text("import cupy\n")
    environment = {"LD_LIBRARY_PATH": str(LIB), "VGPU_ENDPOINT": unix, **variables}
    told = doctor("--", python, script, env=environment)
    assert told.verdict == verdict, told.everything
    assert doctor("--", python, "-m", "program", env=environment, cwd=script.parent).verdict == verdict
    if verdict != "ok" and not told.answer["mend"]:
        assert told.answer["advice"].partition(" -- ")[2].startswith(f"{python} {script}"), told.everything
    if not variables and source.startswith("import cupy"):
        assert told.answer["mend"] == "export CUPY_COMPILE_WITH_PTX=1 CUPY_ACCELERATORS="


@pytest.mark.parametrize(
    ("how", "verdict"),
    [("missing", "device-file-missing"), ("there", "ok"), ("plug-in", "ok"), ("on the CPU", "ok"), ("older", "ok")],
)
def test_jax_looks_for_a_device_file(python: Path, unix: str, tmp_path: Path, how: str, verdict: str) -> None:
    site = tmp_path / "venv/lib/python3.11/site-packages"
    if how != "older":
        (site / "jax/_src").mkdir()
        files = ["/dev/nvidia_nowhere", "/dev/null" if how == "there" else "/dev/nvidia_nor_here"]
        (site / "jax/_src/hardware_utils.py").write_text(f"_NVIDIA_GPU_DEVICES = {files!r}\n")
    if how == "plug-in":
        (tmp_path / "plug/vgpu_jax-1.dist-info").mkdir(parents=True)
        (tmp_path / "plug/vgpu_jax-1.dist-info/entry_points.txt").write_text("[jax_plugins]\nvgpu = vgpu_jax\n")
    (tmp_path / "program.py").write_text("import jax\n")
    environment = {"LD_LIBRARY_PATH": str(LIB), "VGPU_ENDPOINT": unix, "CUDA_ROOT": "/x", "XLA_FLAGS": "--x"}
    environment |= {"PYTHONPATH": str(tmp_path / "plug")} if how == "plug-in" else {}
    environment |= {"JAX_PLATFORMS": "cpu"} if how == "on the CPU" else {}
    told = doctor("--", python, tmp_path / "program.py", env=environment)
    assert told.verdict == verdict, told.everything


@pytest.mark.parametrize("how", ["zipapp", "timeout", "taskset"])
def test_GD8_a_program_in_an_archive_or_behind_a_wrapper(python: Path, unix: str, tmp_path: Path, how: str) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app/__main__.py").write_text("import own\n")
    (tmp_path / "app/own.py").write_text("import cupy\n")
    archive = tmp_path / "app.pyz"
    zipapp.create_archive(tmp_path / "app", archive, interpreter=str(python))
    environment = {"LD_LIBRARY_PATH": str(LIB), "VGPU_ENDPOINT": unix}
    command: dict[str, list[str | Path]] = {
        "zipapp": [archive],
        "timeout": ["timeout", "-k", "1", "60", python, archive],
        "taskset": ["taskset", "-c", "0", python, tmp_path / "app"],
    }
    told = doctor("--", *command[how], env=environment)
    assert told.verdict == "machine-code-made", told.everything


def serving(gpus: str, folder: Path) -> Iterator[str]:
    """Endpoint of a vgpud with the devices that `gpus` names."""
    config = folder / "vgpud.toml"
    config.write_text(f"listen = ['unix:{folder}/v.sock']\nadmin = ''\ngpus = '{gpus}'\ncache_dir = '{folder}'\n")
    running = Running.start(config, folder, "log")
    running.wait_ready()
    yield str(running.endpoint)
    running.end()


@pytest.fixture(scope="module")
def forward(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Endpoint of a vgpud with the device that `vgpu run` uses by default."""
    yield from serving("forward", tmp_path_factory.mktemp("forward"))


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Endpoint of a vgpud with the same device under a newer driver."""
    yield from serving("forward-next", tmp_path_factory.mktemp("newer"))


PTX_IN_CUPY = {"CUPY_COMPILE_WITH_PTX": "1"}


@pytest.mark.parametrize(
    ("source", "variables", "verdict", "mend"),
    [
        ("import cupy", {}, "machine-code-made", "export CUPY_COMPILE_WITH_PTX=1"),
        ("import cupy", PTX_IN_CUPY, "ok", ""),
        ("from numba import cuda", {}, "machine-code-made", "export NUMBA_FORCE_CUDA_CC=8.9"),
        ("import triton", {"TRITON_PTXAS_PATH": "x"}, "machine-code-made", ""),
        ("import jax", {"CUDA_ROOT": "x", "XLA_FLAGS": "x"}, "ok", ""),
    ],
)
def test_GD8_on_the_device_that_no_compiler_knows(
    python: Path, forward: str, source: str, variables: dict[str, str], verdict: str, mend: str
) -> None:
    script = python.parent.parent.parent / "program.py"
    script.write_text(source + "\n")
    told = doctor("--", python, script, env={"LD_LIBRARY_PATH": str(LIB), "VGPU_ENDPOINT": forward, **variables})
    assert (told.verdict, told.answer["mend"]) == (verdict, mend), told.everything
    if verdict != "ok" and not mend:
        assert told.answer["advice"].partition("vgpu run -- ")[2].startswith(str(python)), told.everything


@pytest.mark.parametrize(("device", "verdict"), [("forward", "machine-code-made"), ("newer", "ok")])
def test_GD8_warp_looks_at_the_drivers_version(
    python: Path, device: str, verdict: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    script = tmp_path / "program.py"
    script.write_text("import warp\n")
    environment = {"LD_LIBRARY_PATH": str(LIB), "VGPU_ENDPOINT": request.getfixturevalue(device)}
    told = doctor("--", python, script, env=environment)
    assert told.verdict == verdict, told.everything
    assert (f"vgpu run --gpu forward-next -- {python} {script}" in told.answer["advice"]) == (verdict != "ok")


@pytest.mark.client
@pytest.mark.parametrize("device", ["forward", "unix"])
def test_GD8_pytorch_is_ok_with_vgpu_torch_alone(
    python: Path, device: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The library holds only machine code, as PyTorch's does; vgpu-torch replaces PyTorch's kernels."""
    library = cuda13().build("saxpy", MACHINE_CODE)
    folder = python.parent.parent / "lib/python3.11/site-packages/torch/lib"
    folder.mkdir(parents=True)
    shutil.copy(library, folder / "libtorch_cuda.so")
    script = tmp_path / "program.py"
    script.write_text("import torch\n")
    environment = {"LD_LIBRARY_PATH": str(LIB), "VGPU_ENDPOINT": request.getfixturevalue(device)}
    told = doctor("--", python, script, env=environment)
    assert told.verdict == "no-device-code", told.everything
    assert "brings vgpu-torch" in told.answer["advice"]
    environment["PYTHONPATH"] = str(LIB / "torch")
    told = doctor("--", python, script, env=environment)
    assert told.verdict == "ok", told.everything
    assert any("vgpu-torch" in line for line in told.answer["evidence"])
    assert not any("libtorch" in line for line in told.answer["warnings"])
    told = doctor("--", python, script, env=environment | {"VGPU_TORCH": "0"})
    assert told.verdict == "no-device-code", told.everything


@pytest.mark.client
def test_GD8_libraries_without_a_kernel_for_the_device_are_named(python: Path, unix: str, tmp_path: Path) -> None:
    folder = python.parent.parent / "lib/python3.11/site-packages/nvidia/cublas/lib"
    folder.mkdir(parents=True)
    shutil.copy(cuda13().build("saxpy", MACHINE_CODE), folder / "libcublas.so.13")
    shutil.copy(cuda13().build("saxpy"), folder / "libcurand.so.10")
    script = tmp_path / "program.py"
    script.write_text("import cupy\n")
    environment = {"LD_LIBRARY_PATH": str(LIB), "VGPU_ENDPOINT": unix, **PTX_IN_CUPY, "CUPY_ACCELERATORS": ""}
    told = doctor("--", python, script, env=environment)
    assert told.verdict == "ok", told.everything
    [line] = [line for line in told.answer["warnings"] if "libcublas.so.13" in line]
    assert "libcurand" not in line


def test_GD9_runtime_functions_that_answer_801(tree: Tree) -> None:
    from vgpu_guest._gen.coverage import NOT_SUPPORTED

    runtime = LIB / "cudart/12/libcudart.so.12"
    names = sorted(n for n in NOT_SUPPORTED["libcudart.so.12"] if n.startswith("cuda"))[:3]
    tree.copy(runtime, "usr/lib/app/libcudart.so.12")
    calls = " + ".join(f"{name}()" for name in names)
    source = "".join(f"int {name}(void);" for name in names) + f"int main(void) {{ return {calls}; }}"
    compile_c(tree.path(tree.program), source, "-x", "none", str(runtime), "-Wl,-rpath,/usr/lib/app")
    told = tree.doctor()
    assert (told.code, told.verdict) == (50, "function-unsupported"), told.everything
    assert all(name in told.answer["text"] for name in names)


@pytest.mark.parametrize("how", ["script", "wrapper", "env", "file without #!"])
def test_GM10_scripts_and_wrappers_are_programs(python: Path, unix: str, how: str) -> None:
    folder = python.parent.parent.parent
    script = folder / "t.py"
    script.write_text("" if how == "file without #!" else f"#!{python}\nimport harmless\n")
    script.chmod(0o644 if how == "file without #!" else 0o755)
    wrapper = folder / "wrap.sh"
    wrapper.write_text("#!/bin/sh\nexec ./t.py\n")
    wrapper.chmod(0o755)
    environment = {"LD_LIBRARY_PATH": str(LIB), "VGPU_ENDPOINT": unix}
    command: list[str | Path] = [wrapper if how == "wrapper" else script]
    if how == "env":
        command = ["--", "env", "-u", "LD_LIBRARY_PATH", f"LD_LIBRARY_PATH={LIB}", script]
        environment["LD_LIBRARY_PATH"] = "/nowhere"
    told = doctor(*command, env=environment)
    assert told.verdict == "ok", told.everything
    if how == "wrapper":
        assert any("not what its script starts" in note for note in told.answer["warnings"])
