"""Variables that `vgpu run` sets for programs that assemble kernels themselves (GR6: CuPy's sums were silently 0)."""

from __future__ import annotations

import os
import subprocess
from importlib.metadata import distributions
from pathlib import Path

import pytest
from vgpu_guest.doctor import check_python
from vgpud.cli import steering
from vgpud.cli.guest_libraries import Libraries, give_libraries, program_of
from vgpud.endpoint import UnixEndpoint

from tests.conftest import VGPU, merged
from tests.daemon.running import Running

PTX = b"\n// by a compiler\n\n.version 9.0\n.target sm_89\n.address_size 64\n.visible .entry k() { ret; }\n"
PTXAS = steering.STANDIN / "bin/ptxas"


def names(*capabilities: tuple[int, int]) -> dict[str, str]:
    return {setting.name: setting.value for setting in steering.settings(capabilities)}


def test_nothing_is_set_where_nothing_is_simulated(tmp_path: Path) -> None:
    assert names() == {}
    assert steering.simulated_capabilities(UnixEndpoint(str(tmp_path / "nobody"))) == []
    environment = {"PATH": "/bin"}
    assert steering.apply(environment, []) == []
    assert environment == {"PATH": "/bin"}


def test_settings_follow_the_devices() -> None:
    assert names((9, 0))["TRITON_OVERRIDE_ARCH"] == "sm89"
    assert not {"TRITON_OVERRIDE_ARCH"} & {*names((8, 0)), *names((13, 0))}
    assert "NUMBA_FORCE_CUDA_CC" in names((9, 0), (13, 0))
    assert "NUMBA_FORCE_CUDA_CC" not in names((9, 0))
    assert names((9, 0))["CUPY_ACCELERATORS"] == "", "CuPy's own CUB has no PTX for 9.0, and it ignores the error"
    assert "CUPY_ACCELERATORS" not in names((13, 0))
    assert names((13, 0))["TRITON_DEFAULT_BACKEND"] == "vgpu"
    assert "TRITON_DEFAULT_BACKEND" not in names((9, 0))


def test_jax_is_told_of_a_device_without_a_device_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This applies to any endpoint, also one with a real card; tests/clients runs JAX itself."""
    monkeypatch.setattr(steering, "JAX_LOOKS_FOR", (str(tmp_path / "nvidia0"), str(tmp_path / "nvidiactl")))
    environment = {"PYTHONPATH": "/mine"}
    (setting,) = steering.show_jax_the_device(environment)
    assert environment == {"PYTHONPATH": setting.value}
    mine, plugins = setting.value.split(":")
    assert mine == "/mine"
    (found,) = distributions(path=[plugins])
    (plugin,) = found.entry_points.select(group="jax_plugins")
    monkeypatch.syspath_prepend(plugins)
    plugin.load().initialize()  # JAX is not installed here: nothing happens

    (tmp_path / "nvidiactl").touch()
    assert steering.show_jax_the_device(environment) == []


@pytest.mark.parametrize("capability", [(9, 0), (13, 0)])
def test_GD8_the_doctor_asks_for_what_is_set_here(capability: tuple[int, int]) -> None:
    set_here = names(capability)
    for compiler in check_python._COMPILERS.values():
        forward = list(capability) > check_python._NEWEST_KNOWN
        for name, value in compiler.forward if forward else compiler.variables:
            assert set_here[name] == value
        assert set_here.keys() >= set(compiler.run_forward if forward else compiler.run)


def test_a_guest_is_steered_by_what_its_endpoint_has(shared: Running, tmp_path: Path) -> None:
    conf = tmp_path / "guest.conf"
    conf.write_text(f"endpoint = {shared.endpoint}\n")
    environment = {"VGPU_GUEST_CONF": str(conf), "PATH": "/bin"}
    give_libraries(environment, "sh", None, Libraries())
    assert environment["CUPY_COMPILE_WITH_PTX"] == "1"
    conf.write_text("endpoint = nonsense\n")
    give_libraries(environment, "sh", None, Libraries())


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("python3 t.py", "python3"),
        ("bin/vgpu doctor -- python3 t.py", "python3"),
        ("vgpu doctor --json ./program", "./program"),
        ("vgpu doctor --json", "vgpu"),
        ("vgpu doctor", "vgpu"),
        ("vgpu devices", "vgpu"),
    ],
)
def test_the_doctor_is_given_the_libraries_of_what_it_looks_at(command: str, program: str) -> None:
    assert program_of(tuple(command.split())).endswith(program)


def test_what_the_user_has_set_stays() -> None:
    environment = {"XLA_FLAGS": "--mine", "PATH": "/bin"}
    made = [setting.name for setting in steering.apply(environment, [(13, 0)])]
    assert environment["XLA_FLAGS"] == "--mine"
    assert "XLA_FLAGS" not in made
    assert environment["PATH"] == f"{PTXAS.parent}:/bin"


def test_tritons_backend_is_found_where_it_is_named() -> None:
    """An environment that names a backend which is not on the path would end every Triton program."""
    environment = {"PYTHONPATH": "/mine"}
    steering.apply(environment, [(13, 0)])
    own, folder = environment["PYTHONPATH"].split(":")
    assert own == "/mine"
    found = [point for dist in distributions(path=[folder]) for point in dist.entry_points]
    assert [(point.group, point.name) for point in found] == [
        ("triton.backends", environment["TRITON_DEFAULT_BACKEND"])
    ]
    assert {file.stem for file in (Path(folder) / found[0].value).glob("*.py")} == {"__init__", "compiler", "driver"}
    users = {"TRITON_DEFAULT_BACKEND": "nvidia"}
    steering.apply(users, [(13, 0)])
    assert "PYTHONPATH" not in users


@pytest.mark.parametrize("form", ["-o {out}", "--output-file {out}", "-o={out}", "-lineinfo --opt-level 0 -o {out}"])
def test_ptxas_leaves_ptx_as_it_is(tmp_path: Path, form: str) -> None:
    source, out = tmp_path / "a b.ptx", tmp_path / "out"
    source.write_bytes(PTX + b"\0")
    options = [part.format(out=out) for part in form.split()]
    subprocess.run([PTXAS, "-v", "--gpu-name=sm_89", str(source), *options], check=True)
    assert out.read_bytes() == PTX + b"\0"


@pytest.mark.parametrize("option", ["-maxrregcount=40", "--maxrregcount 40"])
def test_ptxas_passes_a_limit_of_registers_on(tmp_path: Path, option: str) -> None:
    source, out = tmp_path / "x.ptx", tmp_path / "out"
    source.write_bytes(PTX)
    subprocess.run([PTXAS, *option.split(), str(source), "-o", str(out)], check=True)
    assert out.read_bytes() == PTX + b'\n.pragma "vgpu_maxnreg 40";\n\0'


def test_ptxas_refuses_a_limit_that_is_no_number(tmp_path: Path) -> None:
    source, out = tmp_path / "x.ptx", tmp_path / "out"
    source.write_bytes(PTX)
    command = [PTXAS, "-maxrregcount=many", str(source), "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "ptxas: -maxrregcount: many is not a number\n")
    assert not out.exists()


def test_ptxas_refuses_what_is_no_ptx(tmp_path: Path) -> None:
    source, out = tmp_path / "x.ptx", tmp_path / "out"
    source.write_bytes(b"define void @k() { ret void }\n")
    for arguments in ([str(source)], [str(tmp_path / "missing")], []):
        done = subprocess.run([PTXAS, *arguments, "-o", str(out)], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "no PTX" in done.stderr
    assert not out.exists()


def test_ptxas_names_a_version_that_programs_parse() -> None:
    said = subprocess.run([PTXAS, "--version"], capture_output=True, text=True, check=True).stdout
    assert "release 13.0, V13.0.88" in said


def test_run_sets_and_says_what_it_sets() -> None:
    command = [*VGPU, "run", "--verbose", "--", "sh", "-c", "echo $NUMBA_FORCE_CUDA_CC; command -v ptxas"]
    env = {k: v for k, v in merged(None).items() if k not in names((13, 0)) and k != "VGPU_ENDPOINT"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["8.9", str(PTXAS)], "the default device is newer than any machine code"
    assert "vgpu run: CUPY_COMPILE_WITH_PTX=1 (CuPy" in done.stderr
    assert os.access(PTXAS, os.X_OK)
