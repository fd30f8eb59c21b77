"""The CDI spec follows the interface's rules, and programs compute in a container to which it is applied."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from vgpu_guest.cdi import KIND, NVIDIA, names_kind, to_json, to_yaml
from vgpu_guest.cli import vgpu
from vgpud.cli.private_daemon import PrivateDaemon

from tests.guest.install.conftest import Vgpu
from tests.guest.install.guest import BARE, ROOT, Guest
from tests.guest.install.test_programs import build_profiler
from tests.programs.toolchain import PTX, SHARED, cuda13

LIBRARIES = ROOT / "build/guest"
COUNT = """
import ctypes
driver, count = ctypes.CDLL("libcuda.so"), ctypes.c_int()
assert driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
print(count.value)
"""
SOCKET = "unix:/run/vgpu/vgpud.sock"


def check(spec: dict[str, Any]) -> None:
    """Check the rules of CDI's SPEC.md and reference implementation, version 0.5, for what vgpu uses."""
    assert set(spec) == {"cdiVersion", "kind", "devices", "containerEdits"}
    assert spec["cdiVersion"] == "0.5.0"
    vendor, _, kind = spec["kind"].partition("/")
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]", vendor)
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*[A-Za-z0-9]", kind)
    names = [device["name"] for device in spec["devices"]]
    assert names
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?", name) for name in names)
    assert all(set(device) == {"name", "containerEdits"} for device in spec["devices"])
    for edits in [spec["containerEdits"], *(device["containerEdits"] for device in spec["devices"])]:
        assert edits, "a device without edits is refused"
        assert set(edits) <= {"env", "mounts"}, "no hooks, no device nodes"
        assert all(re.fullmatch(r"[A-Z_]+=.+", variable) for variable in edits.get("env", []))
        for mount in edits.get("mounts", []):
            assert set(mount) == {"hostPath", "containerPath", "options"}
            assert mount["hostPath"].startswith("/")
            assert mount["containerPath"].startswith("/")
            assert "ro" in mount["options"]
            assert all(isinstance(option, str) for option in mount["options"])


def generate(*options: str, code: int = 0) -> str:
    arguments = ["cdi", "generate", "--output", "-", "--library-dir", str(LIBRARIES), *options]
    result = CliRunner().invoke(vgpu, arguments, prog_name="vgpu")
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.parametrize("kind", [KIND, NVIDIA])
@pytest.mark.parametrize("find_by", ["variable", "mount"])
@pytest.mark.parametrize("endpoint", [SOCKET, "tcp://10.0.0.1:7070", "vsock://2:7070"])
def test_by_the_rules(kind: str, find_by: str, endpoint: str) -> None:
    options = ["--as-nvidia"] if kind == NVIDIA else []
    text = generate("--endpoint", endpoint, "--find-by", find_by, "--count", "2", "--with-cudart", "12", *options)
    spec = json.loads(text)
    check(spec)
    assert spec["kind"] == kind
    assert names_kind(text, kind)
    mounts = [mount["containerPath"] for mount in spec["containerEdits"]["mounts"]]
    assert ("/run/vgpu/vgpud.sock" in mounts) == (endpoint == SOCKET)
    assert [device["name"] for device in spec["devices"]] == ["all", "0", "1"]


def test_the_two_forms_say_the_same() -> None:
    """read_yaml() reads only what vgpu writes: a full YAML parser exists for Debian's own Python alone."""
    options = ["--endpoint", SOCKET, "--count", "2"]
    spec = json.loads(generate(*options))
    text = generate(*options, "--format", "yaml")
    assert names_kind(text, KIND)
    assert read_yaml(text) == spec
    tricky = {"a": [{"b": 'x: "y" # z', "c": ["- 1", "no"]}, {"b": "'"}], "d": {"e": "\\"}}
    assert read_yaml(to_yaml(tricky)) == tricky == json.loads(to_json(tricky))


def read_yaml(text: str) -> Any:
    lines = [line for line in text.splitlines() if line != "---"]

    def block(depth: int) -> Any:
        pad, found = "  " * depth, None
        while lines and lines[0].startswith(pad) and not lines[0].startswith(f"{pad} "):
            line = lines.pop(0)[len(pad) :]
            if line.startswith("- "):
                found = found if found is not None else []
                if re.match(r"[A-Za-z]+:", line[2:]):
                    lines.insert(0, f"{pad}  {line[2:]}")
                    found.append(block(depth + 1))
                else:
                    found.append(json.loads(line[2:]))
            else:
                found = found if found is not None else {}
                key, _, value = line.partition(":")
                found[key] = json.loads(value) if value else block(depth + 1)
        return found

    return block(0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--endpoint", "tcp://127.1:1"], "the host is not a name"),
        (["--library-path", "relative"], "is not an absolute path"),
        (["--library-path", "/a:/b"], "is not an absolute path"),
        (["--count", "65"], "not in the range"),
    ],
)
def test_wrong_usage(options: list[str], says: str) -> None:
    assert says in generate(*options, code=2)


def test_a_folder_without_libraries(tmp_path: Path) -> None:
    assert "has no libcuda.so.1" in generate("--library-dir", str(tmp_path), code=1)


def test_a_file_of_somebody_else_stays(tmp_path: Path, run: Vgpu) -> None:
    file = tmp_path / "nvidia.yaml"
    file.write_text("kind: nvidia.com/gpu\n")
    arguments = ["cdi", "generate", "--library-dir", LIBRARIES, "--as-nvidia", "--output", file]
    assert "not of vgpu cdi generate" in run(*arguments, code=1).output
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere")
    assert "link" in run(*arguments, code=1).output
    assert not (tmp_path / "elsewhere").exists()
    file.unlink()
    run(*arguments)
    run(*arguments, "--count", "1")
    assert 'name: "0"' in file.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["nvidia.yaml"]


# Specs applied to containers


@pytest.fixture(scope="module")
def daemon() -> Iterator[PrivateDaemon]:
    with PrivateDaemon("h100,t4") as daemon:
        yield daemon


@pytest.fixture
def host(tmp_path: Path, daemon: PrivateDaemon) -> Guest:
    """The guest in which `vgpu cdi generate` makes the spec."""
    return Guest(tmp_path / "host", {"/run/vgpu": Path(daemon.endpoint.path).parent})


class Container:
    """A root without vgpu, to which a spec is applied as by a container runtime."""

    def __init__(self, root: Path, daemon: PrivateDaemon, spec: dict[str, Any], device: str) -> None:
        check(spec)
        self.guest = Guest(root)
        self.environment = {"LD_LIBRARY_PATH": "/usr/local/nvidia/lib"}
        (chosen,) = (found["containerEdits"] for found in spec["devices"] if found["name"] == device)
        for edits in (spec["containerEdits"], chosen):
            self.environment |= dict(variable.split("=", 1) for variable in edits.get("env", []))
            for mount in edits.get("mounts", []):
                source = mount["hostPath"].replace("/run/vgpu", str(Path(daemon.endpoint.path).parent))
                self.guest.mount(Path(source), mount["containerPath"].lstrip("/"), read_only="ro" in mount["options"])

    def says(self, *command: str | Path) -> str:
        result = self.guest.run(command, self.environment)
        assert result.returncode == 0, result
        return result.stdout


@pytest.mark.client
@pytest.mark.timeout(700)
@pytest.mark.parametrize("find_by", ["variable", "mount"])
def test_a_container_computes(host: Guest, daemon: PrivateDaemon, tmp_path: Path, find_by: str) -> None:
    options = ["--library-dir", str(LIBRARIES), "--count", "2", "--with-cudart", "13", "--find-by", find_by]
    result = host.vgpu("cdi", "generate", *options)
    assert result.returncode == 0, result.stderr
    spec = json.loads((host.root / "etc/cdi/vgpu.json").read_text())
    with_all, with_one = (Container(tmp_path / device, daemon, spec, device) for device in ("all", "1"))
    for flavour in (PTX, SHARED):
        assert with_all.says(cuda13().build("saxpy", flavour)).startswith("ok saxpy")
    assert with_all.says(sys.executable, "-c", COUNT) == "2\n"
    assert with_one.says(sys.executable, "-c", COUNT) == "1\n"


@pytest.mark.parametrize("find_by", ["variable", "mount"])
def test_a_containers_profiler_binds_vgpus_libcupti(
    host: Guest, daemon: PrivateDaemon, tmp_path: Path, find_by: str
) -> None:
    """A profiler with an RPATH to NVIDIA's libcupti, as in PyTorch, and one that finds no libcupti."""
    options = ["--library-dir", str(LIBRARIES), "--find-by", find_by, "--output", "-"]
    found = []
    for more in ([], ["--with-cupti", "13"]):
        result = host.vgpu("cdi", "generate", *options, *more)
        assert result.returncode == 0, result.stderr
        container = Container(tmp_path / f"container{len(found)}", daemon, json.loads(result.stdout), "all")
        program = build_profiler(container.guest.root)
        found.append(container.says(program).strip())
        (container.guest.root / "opt/venv/lib/libcupti.so.13").unlink()
        found.append(container.says(program).strip())
    assert found[0] == "/opt/venv/lib/libcupti.so.13"
    assert all(name.endswith("/libcupti.so.13") and not name.startswith("/opt") for name in found[1:]), found


def test_a_libcupti_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").touch()
    said = generate("--library-dir", str(tmp_path), "--with-cupti", "12", code=1)
    assert "has no libcupti of CUDA 12" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="a container's process is looked into by root alone")
def test_the_doctor_looks_into_a_container(host: Guest, daemon: PrivateDaemon, tmp_path: Path) -> None:
    assert host.vgpu("cdi", "generate", "--library-dir", str(LIBRARIES)).returncode == 0
    spec = json.loads((host.root / "etc/cdi/vgpu.json").read_text())
    container = Container(tmp_path / "container", daemon, spec, "all")
    command = container.guest.command(["/bin/sh", "-c", "echo; exec sleep 100"])
    with subprocess.Popen(command, env={**BARE, **container.environment}, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.read(1) == b"\n"
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            result = CliRunner().invoke(vgpu, ["doctor", "--pid", children[0]])
        finally:
            process.kill()
    assert result.output.startswith("OK: "), result.output
    assert result.exit_code == 0


def test_in_the_usual_folder(host: Guest) -> None:
    library = ["--library-dir", str(LIBRARIES)]
    assert host.vgpu("cdi", "generate", *library).returncode == 0
    folder = host.root / "etc/cdi"
    (folder / "vgpu.json").rename(folder / "other.json")
    twice = host.vgpu("cdi", "generate", *library)
    assert twice.returncode == 1
    assert "/etc/cdi/other.json gives vgpu.dev/gpu already" in twice.stderr
    assert host.vgpu("cdi", "generate", *library, "--as-nvidia", "--format", "yaml").returncode == 0
    assert sorted(path.name for path in folder.iterdir()) == ["other.json", "vgpu-nvidia.yaml"]


def test_uninstall_names_a_spec_that_leads_nowhere_now(host: Guest) -> None:
    assert host.vgpu("install").returncode == 0
    assert host.vgpu("cdi", "generate").returncode == 0
    result = host.vgpu("uninstall")
    assert result.returncode == 0
    assert "/etc/cdi/vgpu.json, by vgpu cdi generate, names what is gone" in result.stderr


def test_a_link_in_place_of_the_usual_folder_is_not_followed(host: Guest) -> None:
    (host.root / "tmp/elsewhere").mkdir()
    (host.root / "etc/cdi").symlink_to("/tmp/elsewhere")
    result = host.vgpu("cdi", "generate", "--library-dir", str(LIBRARIES))
    assert result.returncode == 1
    assert "link, which is not followed" in result.stderr
    assert not list((host.root / "tmp/elsewhere").iterdir())


def test_the_endpoint_of_the_machine(host: Guest) -> None:
    conf = host.root / "etc/vgpu/guest.conf"
    conf.parent.mkdir()
    conf.write_text("endpoint = tcp://127.0.0.1:7070\n")
    said = host.vgpu("cdi", "generate", "--library-dir", str(LIBRARIES)).stderr
    assert "is the container itself, unless it runs with --network=host" in said
    spec = json.loads((host.root / "etc/cdi/vgpu.json").read_text())
    assert spec["devices"][0]["containerEdits"]["env"] == ["VGPU_ENDPOINT=tcp://127.0.0.1:7070"]
    assert len(spec["containerEdits"]["mounts"]) == 1
    conf.write_text("endpoint = tcp://10.0.0.1:7070\ntoken = secret\n")
    host.vgpu("cdi", "generate", "--library-dir", str(LIBRARIES))
    text = (host.root / "etc/cdi/vgpu.json").read_text()
    assert "secret" not in text  # the file is world-readable
    assert json.loads(text)["containerEdits"]["mounts"][1]["hostPath"] == "/etc/vgpu/guest.conf"
