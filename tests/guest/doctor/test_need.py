"""What a program needs is read from its files, before it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.guest.doctor.tree import LIB, Tree, doctor
from tests.guest.elf_file import compile_c, compile_library

FATBINS = ROOT / "tests/vgpusim/image/data"
USER = "int cudaGetDeviceCount(int *); int main(void) { int n; return cudaGetDeviceCount(&n); }"
RUNTIME = "int cudaGetDeviceCount(int *n) { *n = 1; return 0; }"
SONAME = "libcudart.so.12"


def bundle(tree: Tree, tmp_path: Path, node: str | None = SONAME, source: str = RUNTIME) -> None:
    """Put a libcudart.so.12 into the tree; `node` is the name of its version node, None for no versions."""
    options = []
    if node is not None:
        script = tmp_path / "map"
        script.write_text(f"{node} {{ global: *; }};")
        options = [f"-Wl,--version-script={script}"]
    tree.library(f"usr/lib/app/{SONAME}", *options, source=source)


@pytest.fixture
def app(tree: Tree, tmp_path: Path) -> Tree:
    """A tree whose program is linked to a bundled libcudart.so.12 with version tags, as all programs are."""
    bundle(tree, tmp_path)
    library = tree.path(f"usr/lib/app/{SONAME}")
    compile_c(tree.path(tree.program), USER, "-x", "none", str(library), "-Wl,-rpath,/usr/lib/app")
    return tree


def test_a_sound_bundle_is_ok(app: Tree) -> None:
    told = app.doctor()
    assert told.verdict == "ok", told.everything
    assert told.answer["libs"][SONAME]["resolved"] == f"/usr/lib/app/{SONAME}"
    assert told.answer["need"]["files"][0]["runtime"] == 12
    assert told.answer["need"]["files"][0]["imports"] == {"libcudart": ["cudaGetDeviceCount"]}


def test_GR9_managed_memory_over_a_plain_socket(app: Tree, tmp_path: Path) -> None:
    bundle(app, tmp_path, source=RUNTIME + "int cudaMallocManaged(void) { return 801; }")
    library = app.path(f"usr/lib/app/{SONAME}")
    source = "int cudaMallocManaged(void); int main(void) { return cudaMallocManaged(); }"
    compile_c(app.path(app.program), source, "-x", "none", str(library), "-Wl,-rpath,/usr/lib/app")
    told = app.doctor()
    assert told.verdict == "ok", told.everything
    [warning] = told.answer["warnings"]
    assert "calls cudaMallocManaged: on a plain socket such memory is copied at launches and waits" in warning


def test_L02_a_bundled_libcudart_replaced_by_one_without_tags(app: Tree, tmp_path: Path) -> None:
    bundle(app, tmp_path, node=None)
    told = app.doctor()
    assert (told.code, told.verdict) == (10, "symbol-version"), told.everything
    assert SONAME in told.answer["text"]


def test_L02_a_bundled_libcudart_replaced_by_one_with_other_tags(app: Tree, tmp_path: Path) -> None:
    bundle(app, tmp_path, node="libcudart.so.11.0")
    told = app.doctor()
    assert told.verdict == "symbol-version", told.everything


def test_L03_a_runtime_that_lacks_a_name(app: Tree, tmp_path: Path) -> None:
    bundle(app, tmp_path, source="int cudaSomethingElse(void) { return 0; }")
    told = app.doctor()
    assert told.verdict == "symbol-version", told.everything
    assert "cudaGetDeviceCount" in told.answer["text"]


def test_I01_the_bundle_is_gone(app: Tree) -> None:
    app.path(f"usr/lib/app/{SONAME}").unlink()
    told = app.doctor()
    assert (told.code, told.verdict) == (10, "runtime-missing"), told.everything
    assert SONAME in told.answer["text"]
    assert told.answer["libs"]["libcuda.so.1"]["kind"] == "ours"  # the libcuda that was found is still shown


def test_L05_a_library_that_wants_what_nobody_has(tree: Tree) -> None:
    source = "extern int cuNoSuchThing(void); int call(void) { return cuNoSuchThing(); }"
    tree.library("usr/lib/app/libplugin.so", source=source)
    told = tree.doctor("/usr/lib/app/libplugin.so")
    assert (told.code, told.verdict) == (50, "functions-missing"), told.everything
    assert "cuNoSuchThing" in told.answer["text"]


def test_functions_that_are_not_implemented_are_named(tree: Tree) -> None:
    from vgpu_guest._gen.coverage import NOT_SUPPORTED

    name = min(NOT_SUPPORTED["libcuda.so.1"])
    source = f"extern int {name}(void); int main(void) {{ return {name}(); }}"
    compile_c(tree.path(tree.program), source, "-x", "none", str((LIB / "libcuda.so.1").resolve()))
    told = tree.doctor()
    assert (told.code, told.verdict) == (50, "function-unsupported"), told.everything
    assert name in told.answer["text"]


def carrying(tmp_path: Path, fatbin: str) -> Path:
    """A library with a fat binary in the section that nvcc uses for device code."""
    source = f'__asm__(".section .nv_fatbin,\\"a\\"\\n.incbin \\"{FATBINS / fatbin}\\"\\n.previous"); int nothing;'
    return compile_library(tmp_path / "libkernels.so", source=source)


@pytest.mark.parametrize(
    ("fatbin", "verdict"),
    [("none.fatbin", "ok"), ("nothing.fatbin", "no-device-code"), ("lto.fatbin", "no-device-code")],
)
def test_device_code_is_read_before_the_program_runs(tmp_path: Path, unix: str, fatbin: str, verdict: str) -> None:
    told = doctor(carrying(tmp_path, fatbin), env={"LD_LIBRARY_PATH": str(LIB), "VGPU_ENDPOINT": unix})
    assert told.verdict == verdict, told.everything
    assert told.answer["exit_code"] == told.code == (0 if verdict == "ok" else 50)


def test_the_machine_code_of_the_endpoints_own_kind_is_enough_where_it_is_executed() -> None:
    from vgpu_guest.device_code import runs
    from vgpu_guest.fatbin import KIND_ELF, Compression, Entry, Target

    def entry(number: int, suffix: str = "") -> Entry:
        return Entry(KIND_ELF, Target(number, suffix), Compression.NONE, memoryview(b""), 0)

    assert runs(entry(80), (8, 6), True)
    assert not runs(entry(80), (8, 6), False)
    assert not runs(entry(86), (8, 0), True)
    assert not runs(entry(80), (9, 0), True)
    assert runs(entry(90, "a"), (9, 0), True)
    assert not runs(entry(90, "a"), (9, 1), True)


def test_L15_a_static_runtime_is_recognised(unix: str) -> None:
    from tests.programs.toolchain import PTX, cuda13

    program = cuda13().build("saxpy", PTX)
    told = doctor(program, env={"LD_LIBRARY_PATH": str(LIB), "VGPU_ENDPOINT": unix})
    assert told.verdict == "ok", told.everything
    need = told.answer["need"]["files"][0]
    assert need["static_runtime"]
    assert "6bd5fb6c5bf4e74a8987d93912fd9df9" in need["tables"]
    assert told.answer["probe"]["cuda"]["tables"]["6bd5fb6c5bf4e74a8987d93912fd9df9"] == 0


def test_GR9_what_a_program_calls_of_its_static_runtime(tcp: str, unix: str) -> None:
    """nvcc links the runtime statically by default: only GNU ld's symbol table shows the use of managed memory."""
    from tests.programs.toolchain import PTX, cuda13

    program = cuda13().build("managed", PTX)
    env = {"LD_LIBRARY_PATH": str(LIB), "VGPU_ENDPOINT": tcp}
    told = doctor(program, env=env)
    assert told.verdict == "ok", told.everything
    [warning] = [text for text in told.answer["warnings"] if "cudaMallocManaged" in text]
    assert "such memory is copied at launches and waits" in warning
    for other, endpoint in ((cuda13().build("saxpy", PTX), tcp), (program, unix)):
        told = doctor(other, env=env | {"VGPU_ENDPOINT": endpoint})
        assert told.verdict == "ok", told.everything
        assert not any("copied at launches" in text for text in told.answer["warnings"])


def test_a_program_that_opens_the_driver_itself(app: Tree) -> None:
    source = '#include <dlfcn.h>\nint main(void) { return !dlopen("libcuda.so.1", RTLD_NOW); }'
    compile_c(app.path(app.program), source)
    told = app.doctor()
    assert told.verdict == "ok", told.everything
    assert any("opens libcuda.so.1 itself" in line for line in told.answer["evidence"]), told.everything


def test_an_interpreters_packages_are_looked_into(app: Tree, tmp_path: Path) -> None:
    """The command names only the interpreter; the doctor finds its torch package, whose kernels are machine code."""
    app.copy(app.path(app.program), "opt/venv/bin/python3.11")
    package = "opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so"
    app.copy(carrying(tmp_path, "nothing.fatbin"), package)
    told = app.doctor("/opt/venv/bin/python3.11")
    assert told.verdict == "ok", told.everything
    assert any("no kernel" in note and "libtorch_cuda.so" in note for note in told.answer["warnings"]), told.everything


def test_a_missing_library_is_not_mistaken_for_a_bad_one(app: Tree) -> None:
    """A missing library's symbols are undefined, too; the verdict names the cause, which is the missing file."""
    app.path(f"usr/lib/app/{SONAME}").unlink()
    told = app.doctor()
    assert "symbol-version" not in [other["verdict"] for other in told.answer["others"]], told.everything
