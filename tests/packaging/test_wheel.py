"""From a clean tree to a source archive, from that to a wheel, from that to an environment in which vgpu works."""

import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterable, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from vgpu_guest.layout import RUNTIMES

from tests.packaging.isolated import ROOT, run_without, why_not
from tests.programs.toolchain import cuda13

pytestmark = pytest.mark.timeout(1500)  # whichever test runs first builds the wheel
BUILD_TIMEOUT_S = 1200
_HOOK = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


def empty_environment(folder: Path) -> tuple[Path, Path]:
    """An environment without packages: its interpreter, and where packages belong."""
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin/python", folder / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


def needed(requirements: Iterable[str]) -> dict[str, Distribution]:
    """The installed distributions that requirements name, and those that these require."""
    found: dict[str, Distribution] = {}
    left = [Requirement(line) for line in requirements]
    while left:
        requirement = left.pop()
        if requirement.name not in found and (not requirement.marker or requirement.marker.evaluate({"extra": ""})):
            found[requirement.name] = distribution(requirement.name)
            left += map(Requirement, found[requirement.name].requires or [])
    return found


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter that builds. As with `pip install .` it has what the build requires and nothing else."""
    python, site = empty_environment(tmp_path_factory.mktemp("builder"))
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    for each in needed(requires).values():
        for name in {file.parts[0] for file in each.files or []} - {"..", "__pycache__"}:
            (site / name).symlink_to(str(each.locate_file(name)))
    return python


def build(python: Path, hook: str, tree: Path, out: Path) -> Path:
    """Run a hook of the build backend (PEP 517) in a source tree; return the file that it made."""
    out.mkdir(exist_ok=True)
    command = [str(python), "-c", _HOOK, hook, str(out)]
    made = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)
    assert made.returncode == 0, made.stdout[-2000:] + made.stderr[-2000:]
    return out / made.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def sdist(builder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source archive of the files that git tracks, as in a fresh clone: build outputs must not get in."""
    folder = tmp_path_factory.mktemp("sdist")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    names = [name for name in listed.split("\0") if name and (ROOT / name).exists()]
    for name in names:
        target = folder / "clone" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    return build(builder, "build_sdist", folder / "clone", folder / "dist")


@pytest.fixture(scope="module")
def wheel(builder: Path, sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(["tar", "-C", folder, "-xf", sdist], check=True)
    (tree,) = folder.iterdir()
    return build(builder, "build_wheel", tree, folder / "dist")


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel alone; a .pth file adds the running environment, which has its dependencies."""
    folder = tmp_path_factory.mktemp("environment")
    python, site = empty_environment(folder)
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
    subprocess.run([*command, "--disable-pip-version-check", str(wheel)], check=True, timeout=BUILD_TIMEOUT_S)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def run(environment: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command of the environment where the checkout's folders with vgpu's code are hidden."""
    if reason := why_not():
        pytest.skip(reason)
    hidden = [ROOT / name for name in ("build", "daemon", "guest", "protocol", "shim")]
    name, *arguments = command
    return run_without(hidden, [environment / "bin" / name, *arguments], {"HOME": str(environment), "PATH": "/usr/bin"})


def test_the_source_archive_has_sources_alone(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = [name.split("/", 1)[-1] for name in archive.getnames()]
    for expected in ("shim/build.py", "protocol/ids.lock", "guest/vgpu_guest/cli.py", "deploy/vgpud.service"):
        assert expected in names
    built = [name for name in names if name.endswith((".so", ".pyc", ".o")) or "/_gen/" in name or "/_lib/" in name]
    assert built == []


def test_the_wheel_has_libraries_data_and_the_guests_tools(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    libraries = ["libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "notice/libvgpu-notice.so", "vgpu-probe"]
    libraries.append("notice/libvgpu-next.so")
    libraries += [f"cudart/{major}/{soname}" for major, soname in RUNTIMES.items()]
    for library in libraries:
        assert f"vgpu_guest/_lib/{library}" in names
    assert any(name.startswith("vgpud/_executor") for name in names)
    kept = ("daemon/vgpud", "daemon/vgpusim/*.py", "daemon/vgpusim/*.toml", "guest/vgpu_guest")
    listed = subprocess.run(
        ["git", "ls-files", "-z", *kept], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    tracked = {name.split("/", 1)[1] for name in listed.split("\0") if name and (ROOT / name).exists()}
    assert tracked - set(names) == set()
    assert [name for name in names if name.startswith("vgpusim/device")] == []


def test_an_environment_has_the_manuals_and_the_completions(environment: Path) -> None:
    pages = [environment / "share/man/man1/vgpu.1", environment / "share/man/man8/vgpud.8"]
    assert [page.read_text().split()[1] for page in pages] == ["VGPU", "VGPUD"]
    page = pages[0].read_text()
    for command in ("vgpu doctor", "vgpu run", r"vgpu vm snippet", "vgpu smi"):
        assert rf'.SS "{command}' in page
    for path in ("bash-completion/completions/@", "zsh/site-functions/_@", "fish/vendor_completions.d/@.fish"):
        for command in ("vgpu", "vgpud"):
            assert f"_{command.upper()}_COMPLETE" in (environment / "share" / path.replace("@", command)).read_text()
    asked = {"_VGPUD_COMPLETE": "bash_complete", "COMP_WORDS": "vgpud --li", "COMP_CWORD": "1"}
    answer = subprocess.run([environment / "bin/vgpud"], env=asked, capture_output=True, text=True, timeout=60)
    assert answer.stdout.split() == ["plain,--listen"], answer.stderr


def test_a_wheel_is_built_with_what_pyproject_says_alone(tmp_path: Path) -> None:
    """The manuals are made from the commands, which must not import what build-system.requires leaves out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = [re.split(r"[<>=~ ]", text)[0] for text in project["build-system"]["requires"]]
    absent = {re.split(r"[<>=~ ]", text)[0] for text in project["project"]["dependencies"]} - set(named)
    hidden = {"nvidia-ml-py": "pynvml"}
    modules = {hidden.get(name, name) for name in absent}
    assert {"llvmlite", "uvloop"} <= modules
    script = f"import sys; sys.modules.update(dict.fromkeys({sorted(modules)!r})); sys.argv[1:] = [{str(tmp_path)!r}]\n"
    script += "from deploy.packaging.share import main; main()"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "share/man/man8/vgpud.8").is_file()


def commands() -> Sequence[Sequence[str]]:
    return [["vgpu", "profiles"], ["vgpu", "doctor", "--help"], ["vgpu", "vm", "--help"], ["vgpud", "--version"]]


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_the_commands_of_an_installed_wheel_start(environment: Path, command: Sequence[str]) -> None:
    result = run(environment, *command)
    assert result.returncode == 0, result.stderr


@pytest.mark.client
@pytest.mark.timeout(1500)
def test_an_installed_wheel_computes(environment: Path, tmp_path: Path) -> None:
    program = tmp_path / "saxpy"
    program.write_bytes(cuda13().build("saxpy").read_bytes())
    program.chmod(0o755)
    result = run(environment, "vgpu", "run", "--", program, "3")
    assert (result.returncode, result.stdout[:8]) == (0, "ok saxpy"), result.stderr
