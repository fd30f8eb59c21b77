"""The guest's package, as a .deb and as a .tar.gz: the libraries to install, and the `vgpu` that installs them.

Both contain bin/vgpu and lib/vgpu-guest with its Python package and the libraries (lib/vgpu-guest/payload): the .deb
below /usr, the archive in a folder that may be anywhere and that also contains click.
"""

from __future__ import annotations

import email.utils
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from vgpu_guest.layout import RELEASE, STEMS
from vgpu_guest.payload import PayloadError, find_payload

from .binary import newest_glibc, stripped
from .cache import cache_folder
from .contents import Contents, compress
from .share import share
from .source import ROOT, Source

NAME = "vgpu-guest"
FILES = Path(__file__).resolve().parent / "files"
_HOME = f"lib/{NAME}"
# Files in the payload besides the libraries: the probe that vgpu doctor runs, and what notice/set-up installs.
_EXTRAS = ("vgpu-probe", "notice/libvgpu-notice.so", "notice/libvgpu-next.so")
# In the archive only; pinned, so that a commit always gives the same bytes. The oldest version of guests is 8.0.
_CLICK = ("click", "8.1.8", "63c132bbbed01578a06712a2d1f497bb62d9c1c0d329b7903a866228027263b2")
# The modules of vgpud's package that the guest's commands need to talk to vgpud (guest/vgpu_guest/cli.py); they run on
# Python 3.10.
_CLIENT = (
    *("__init__.py", "endpoint.py", "_gen/__init__.py", "_gen/api.py", "_gen/nvml.py", "proto/*.py", "smi/*.py"),
    *("cli/standin/bin/*", "cli/standin/python/*/*", "cli/standin/jax/*/*"),
    *("devices/__init__.py", "devices/inventory_check.py"),
    *("supervision/__init__.py", "supervision/child_environment.py", "cli/__init__.py"),
    *(f"cli/{name}.py" for name in ("api", "client", "descendants", "devices", "fail", "guest_libraries", "option")),
    *(f"cli/{name}.py" for name in ("ping", "private_daemon", "run", "smi", "status", "steering", "table")),
    *(f"cli/{name}.py" for name in ("torch_overlay", "trace", "version")),
)
_VENDORED = ("nvidia-ml-py",)  # pynvml, which Debian does not package; the archive also has msgpack's Python code
_TOOL_TIMEOUT_S = 900


class GuestError(Exception):
    """The package cannot be built; the text names what is missing."""


@dataclass(frozen=True, slots=True)
class Guest:
    """The files that both packages contain, without the command bin/vgpu."""

    files: Contents
    glibc: tuple[int, int]


def guest_files() -> Guest:
    """Collect the files of the guest's packages from the build.

    Raises:
        GuestError: the guest libraries are not built.
        TooNewError: a file needs a newer glibc than the packages declare.
    """
    built = ROOT / "build/guest"
    try:
        payload = find_payload(built)
    except PayloadError as error:
        raise GuestError(f"{error}: run `make build`") from error
    for name in _EXTRAS:
        if not (built / name).is_file():
            raise GuestError(f"{built / name} is missing: run `make build`")
        payload[name] = built / name
    files = Contents()
    files.add_tree(f"{_HOME}/vgpu_guest", ROOT / "guest/vgpu_guest")
    for pattern in _CLIENT:
        found = (ROOT / "daemon/vgpud").glob(pattern)
        for file in sorted(path for path in found if path.is_file()):  # skips folders such as __pycache__
            path = f"{_HOME}/vgpud/{file.relative_to(ROOT / 'daemon/vgpud')}"
            content = file.read_bytes()
            files.add(path, content, 0o755 if content.startswith(b"#!/bin") else 0o644)
    files.link(f"{_HOME}/vgpu_guest/_lib", "../payload")
    for name in _VENDORED:
        _add_installed(files, name)
    files.add(f"{_HOME}/__main__.py", (FILES / "guest-main.py").read_text())
    for path, library in sorted(payload.items()):
        files.add(f"{_HOME}/payload/{path}", stripped(library), 0o644 if ".so" in path else 0o755)
    for stem in STEMS:  # vgpu run and vgpu smi load the libraries from this folder by these names
        files.link(f"{_HOME}/payload/{stem}.so.1", f"{stem}.so.{RELEASE}")
    for file in sorted((ROOT / "deploy/notice").iterdir()):
        is_script = file.read_bytes().startswith(b"#!")
        files.add(f"{_HOME}/notice/{file.name}", file.read_bytes(), 0o755 if is_script else 0o644)
    with tempfile.TemporaryDirectory() as scratch:
        files.write(Path(scratch) / "files", 0)
        return Guest(files, newest_glibc(Path(scratch) / "files"))


def _command(python: str) -> str:
    return (FILES / "guest-command.sh").read_text().replace("@PYTHON@", python)


def make_archive(guest: Guest, source: Source, out: Path) -> Path:
    """Write the .tar.gz into the folder `out`. Raises GuestError."""
    name = f"{NAME}-{source.file_version}-linux-x86_64"
    contents = Contents()
    contents.merge("", guest.files)
    contents.add(f"{_HOME}/vgpu", _command("python3"), 0o755)
    contents.link("bin/vgpu", f"../{_HOME}/vgpu")
    contents.add("LICENSE", (ROOT / "LICENSE").read_bytes())
    for path, text in _share(source).items():
        contents.add(path, text)
    _add_click(contents)
    _add_installed(contents, "msgpack")
    readme = (FILES / "guest-readme.txt").read_text().replace("@VERSION@", source.version)
    contents.add("README", readme.replace("@GLIBC@", ".".join(map(str, guest.glibc))))
    archive = out / f"{name}.tar.gz"
    archive.write_bytes(contents.tar_gz(name, source.epoch_s))
    return archive


def _add_click(contents: Contents) -> None:
    name, version, sha256 = _CLICK
    folder = cache_folder("wheels")
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    if not wheel.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", str(folder), f"{name}=={version}"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S)
        if result.returncode:
            raise GuestError(f"pip could not download {name} {version}:\n{result.stderr[-1000:]}")
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != sha256:
        wheel.unlink()
        raise GuestError(f"{wheel.name} is not the file that was expected")
    with zipfile.ZipFile(wheel) as archive:
        for member in sorted(archive.namelist()):
            if member.startswith(f"{name}/") or "license" in member.lower():
                contents.add(f"{_HOME}/{member}", archive.read(member))


def _add_installed(contents: Contents, name: str) -> None:
    """Add the Python files and the licence of a package of the build environment, without its compiled files."""
    try:
        found = distribution(name)
    except PackageNotFoundError as error:
        raise GuestError(f"{name} is not installed: run `make setup`") from error
    for file in sorted(found.files or (), key=str):
        is_licence = "licen" in file.name.lower() or "copying" in file.name.lower()
        if (file.suffix == ".py" and ".." not in file.parts and file.name != "example.py") or is_licence:
            contents.add(f"{_HOME}/{file}", Path(str(file.locate())).read_bytes())


def copyright_text(others: str = "") -> str:
    """Debian's copyright file; `others` are paragraphs about files that are not part of vgpu."""
    return (FILES / "copyright").read_text().replace("@OTHERS@", others)


_PYNVML = """
Files: usr/lib/vgpu-guest/pynvml.py usr/lib/vgpu-guest/nvidia_ml_py*
Copyright: NVIDIA Corporation
License: BSD-3-clause
 The text is at the top of pynvml.py.
"""


def add_share(contents: Contents, files: dict[str, str]) -> None:
    """Add the manual pages and completions (share.py) at Debian's paths."""
    for path, text in files.items():
        if "/man/" in path:
            contents.add(f"usr/{path}.gz", compress(text.encode()))
        else:
            contents.add(f"usr/{path.replace('/site-functions/', '/vendor-completions/')}", text)


def build_deb(contents: Contents, control: dict[str, str], source: Source, target: Path, level: int = 6) -> Path:
    """Write a .deb with dpkg-deb; `level` is xz's. Raises GuestError: there is no dpkg-deb."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "root"
        contents.write(root, source.epoch_s)
        (root / "DEBIAN").mkdir()
        (root / "DEBIAN").chmod(0o755)  # independent of the umask
        for name, text in control.items():
            path = root / "DEBIAN" / name
            path.write_text(text)
            path.chmod(0o755 if text.startswith("#!") else 0o644)
        command = ["dpkg-deb", "--root-owner-group", "-Zxz", f"-z{level}", "--build", str(root), str(target)]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(source.epoch_s)}
        try:
            subprocess.run(command, check=True, timeout=_TOOL_TIMEOUT_S, stdout=subprocess.DEVNULL, env=environment)
        except FileNotFoundError as error:
            raise GuestError("no dpkg-deb: the .deb is made on Debian or Ubuntu") from error
    return target


def make_deb(guest: Guest, source: Source, out: Path) -> Path:
    """Write the .deb into the folder `out`, with dpkg-deb.

    Raises:
        GuestError: there is no dpkg-deb.
    """
    contents = Contents()
    contents.merge("usr", guest.files)
    contents.add(f"usr/{_HOME}/vgpu", _command("/usr/bin/python3"), 0o755)
    contents.link("usr/bin/vgpu", f"../{_HOME}/vgpu")
    add_share(contents, _share(source))
    contents.add(f"usr/share/doc/{NAME}/copyright", copyright_text(_PYNVML))
    contents.add(f"usr/share/doc/{NAME}/changelog.gz", compress(changelog(source).encode()))
    contents.add(f"usr/share/doc/{NAME}/CHANGELOG.md.gz", compress((ROOT / "CHANGELOG.md").read_bytes()))
    contents.add_tree(f"usr/share/doc/{NAME}", ROOT / "docs", "*.md")
    control = {
        "control": _control(contents, guest, source),
        "md5sums": contents.md5sums(),
        "postinst": (FILES / "postinst.sh").read_text(),
        "prerm": (FILES / "prerm.sh").read_text(),
    }
    return build_deb(contents, control, source, out / f"{NAME}_{source.version}_amd64.deb")


def _share(source: Source) -> dict[str, str]:
    from vgpu_guest.cli import packaged

    return share(source, packaged())


def maintainer() -> str:
    """The package's maintainer: whoever builds it, by the variables of Debian's tools."""
    return f"{os.environ.get('DEBFULLNAME', 'The authors of vgpu')} <{os.environ.get('DEBEMAIL', 'vgpu@example.org')}>"


def changelog(source: Source, name: str = NAME) -> str:
    """Debian's changelog, of one entry."""
    day = email.utils.formatdate(source.epoch_s)
    entry = "  * What has changed: CHANGELOG.md.gz beside this file."
    return f"{name} ({source.version}) unstable; urgency=medium\n\n{entry}\n\n -- {maintainer()}  {day}\n"


def _control(contents: Contents, guest: Guest, source: Source) -> str:
    glibc = ".".join(map(str, guest.glibc))
    return f"""\
Package: {NAME}
Version: {source.version}
Architecture: amd64
Maintainer: {maintainer()}
Section: misc
Priority: optional
Installed-Size: {(contents.nbytes + 1023) // 1024}
Depends: libc6 (>= {glibc}), python3 (>= 3.10), python3-click, python3-msgpack
Recommends: python3-pyroute2
Description: GPUs for a machine that has none: the guest's side
 Unmodified CUDA programs load these libraries in place of NVIDIA's driver, and
 their calls are carried out by vgpud on a host with GPUs, or by its simulator.
 .
 Installing the package puts the libraries first into the loader's path, by
 "vgpu install"; removing it takes them back. Nothing of another package's is
 replaced. "vgpu doctor" says why a program does not see a GPU.
"""
