"""The bundle's Python: Debian's, linked statically and with its standard library beside it.

It needs only glibc of the machine, so it runs on every machine with OLDEST_GLIBC or newer. Debian's own executable
needs a newer glibc, because of one function that libexpat takes from glibc 2.36.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from .debian import DebianError, fetch, package_version, release_name, unpack

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = "3.11"  # of bookworm, which has the oldest glibc of the releases whose Python is new enough for vgpud
RELEASE = "bookworm"
_HERE = Path(__file__).resolve().parent
_PACKAGES = (
    *("libpython3.11-minimal", "libpython3.11-stdlib", "libpython3.11-dev"),
    *("libexpat1-dev", "zlib1g-dev", "zlib1g", "libssl3", "libffi8"),
)
LIBRARIES = ("libssl.so.3", "libcrypto.so.3", "libffi.so.8", "libz.so.1")
# Modules whose libraries are not shipped, and modules that only developers of Python use.
_EXTENSIONS_LEFT_OUT = (
    *("_bz2", "_crypt", "_curses", "_curses_panel", "_dbm", "_lzma", "_sqlite3", "_uuid", "nis", "ossaudiodev"),
    *("_ctypes_test", "_testbuffer", "_testcapi", "_testclinic", "_testimportmultiple", "_testinternalcapi"),
    *("_testmultiphase", "_xxsubinterpreters", "_xxtestfuzz", "readline", "xxlimited", "xxlimited_35"),
)
_MODULES_LEFT_OUT = (
    *("EXTERNALLY-MANAGED", "_sysconfigdata__linux_x86_64-linux-gnu.py", "curses", "dbm", "distutils", "idlelib"),
    *("lib2to3", "pydoc_data", "sitecustomize.py", "sqlite3", "test", "tkinter", "turtle.py", "turtledemo", "unittest"),
    *("ensurepip", "venv"),
)
_BUILD_TIMEOUT_S = 300


def make_python(folder: Path, scratch: Path) -> Mapping[str, str]:
    """Put an interpreter into `folder`: bin/python3, its libraries in lib/, an empty site/.

    Args:
        scratch: an empty folder for unpacked packages.
    Returns:
        The Debian packages that the interpreter is made from, with their versions.
    Raises:
        DebianError: this machine is of another release, or apt failed.
        subprocess.CalledProcessError: the compiler failed; it has said why.
    """
    if release_name() != RELEASE:
        raise DebianError(
            f"the bundle is made on Debian 12 ({RELEASE}), so that it runs on every newer system: try in a container"
        )
    packages = fetch(_PACKAGES)
    root = scratch / "debian"
    unpack(list(packages.values()), root)
    library = folder / f"lib/python{VERSION}"
    shutil.copytree(root / f"usr/lib/python{VERSION}", library, ignore=_left_out, symlinks=False)
    for name in LIBRARIES:
        found = next(path for path in _library_folders(root) if (path / name).exists())
        shutil.copy(found / name, folder / "lib" / name)
    (folder / "bin").mkdir()
    (folder / "site").mkdir()
    _link(root, folder / "bin/python3", ("libexpat.a", "libz.a"))
    for name in packages:
        notice = root / f"usr/share/doc/{name}/copyright"
        if notice.is_file():
            (folder / "licenses").mkdir(exist_ok=True)
            shutil.copyfile(notice, folder / f"licenses/{name}")
    return {name: package_version(package) for name, package in packages.items()}


def link_to_system(target: Path, scratch: Path) -> None:
    """Link the interpreter for a Debian package: zlib, like LIBRARIES, is the system's; there is no expat.

    Args:
        scratch: an empty folder for unpacked packages.
    Raises:
        DebianError: apt failed.
        subprocess.CalledProcessError: the compiler failed; it has said why.
    """
    root = scratch / "debian"
    unpack(list(fetch(_PACKAGES).values()), root)
    _link(root, target, ("libz.so.1",), "-DWITHOUT_EXPAT")


def _library_folders(root: Path) -> list[Path]:
    return [root / "usr/lib/x86_64-linux-gnu", root / "lib/x86_64-linux-gnu"]


def _left_out(directory: str, names: list[str]) -> set[str]:
    if Path(directory).name == "lib-dynload":
        return {name for name in names if name.split(".")[0] in _EXTENSIONS_LEFT_OUT}
    if Path(directory).name != f"python{VERSION}":
        return {name for name in names if name == "__pycache__"}
    return {name for name in names if name in _MODULES_LEFT_OUT or name.startswith("config-") or name == "__pycache__"}


def _link(root: Path, target: Path, libraries: tuple[str, ...], *options: str) -> None:
    archives = [
        root / f"usr/lib/python{VERSION}/config-{VERSION}-x86_64-linux-gnu/libpython{VERSION}.a",
        *(next(path / name for path in _library_folders(root) if (path / name).exists()) for name in libraries),
    ]
    headers = [root / "usr/include" / name for name in (f"python{VERSION}", "", f"x86_64-linux-gnu/python{VERSION}")]
    command = [
        # Debian's libpython archive is compiled without -fPIE, like Debian's own executable.
        *("cc", "-no-pie", "-O2", "-Wall", "-Wextra", "-Werror", "-s", *options, *(f"-I{path}" for path in headers)),
        *(str(_HERE / "vgx_python.c"), *map(str, archives), "-lm", "-ldl"),
        # Extension modules take Python's functions from the executable, and their libraries from ../lib. RPATH, not
        # RUNPATH, because only RPATH also applies to libraries that those modules load.
        *(
            "-Wl,--export-dynamic,-O1,-Bsymbolic-functions,-z,relro,-z,now",
            "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../lib",
        ),
        *("-o", str(target)),
    ]
    subprocess.run(command, check=True, timeout=_BUILD_TIMEOUT_S)
