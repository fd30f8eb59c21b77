"""The host's .deb: vgpud and vgpu with their own Python, the units, the configuration, and a user for vgpud.

The files are those of the bundle, below /usr/lib/vgpud: the system's Python is neither used nor changed. Libraries that
Debian has (zlib, OpenSSL, libffi) are Debian's, so that security updates apply.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from .contents import Contents, File, compress
from .guest import add_share, build_deb, changelog, copyright_text, maintainer
from .python import LIBRARIES, link_to_system
from .share import whole_share
from .source import ROOT

if TYPE_CHECKING:
    from .source import Source

NAME = "vgpud"
FILES = Path(__file__).resolve().parent / "files"
_HOME = "usr/lib/vgpud"
_UNITS = ("vgpud.service", "vgpud.socket", "vgpud-vm@.service")
# Files of the bundle that the package has at other paths, by Debian's rules.
_LEFT_OUT = ("README", "CONTENTS", "share/vgpu/vgpud.toml", "share/vgpu/vgpud.service", "share/vgpu/vgpud-vm@.service")


def make_host_deb(bundle: Path, source: Source, out: Path) -> Path:
    """Write the .deb into the folder `out`.

    Args:
        bundle: a folder that make_bundle() has filled.
    Raises:
        GuestError: there is no dpkg-deb.
        DebianError: the packages that the interpreter is linked from could not be downloaded.
    """
    contents = Contents()
    _add_bundle(contents, bundle)
    for command in ("vgpu", "vgpud"):
        contents.link(f"usr/bin/{command}", f"../lib/vgpud/bin/{command}")
    for name in _UNITS:
        contents.add(f"usr/lib/systemd/system/{name}", unit(name))
    contents.add("usr/lib/sysusers.d/vgpud.conf", 'u vgpud - "GPUs for machines that have none"\ng vgpu -\n')
    contents.add("etc/vgpu/vgpud.toml", (ROOT / "deploy/vgpud.toml").read_bytes())
    contents.add(f"usr/share/doc/{NAME}/copyright", copyright_text(_licences(bundle)))
    contents.add(f"usr/share/doc/{NAME}/changelog.gz", compress(changelog(source, NAME).encode()))
    contents.add(f"usr/share/doc/{NAME}/CONTENTS", (bundle / "CONTENTS").read_bytes())
    contents.add_tree(f"usr/share/doc/{NAME}", ROOT / "docs", "*.md")
    add_share(contents, whole_share(source))
    glibc = (bundle / "CONTENTS").read_text().split()[1]
    control = {
        "control": _control(contents, glibc, source),
        "conffiles": "/etc/vgpu/vgpud.toml\n",
        "md5sums": contents.md5sums(),
        **{name: (FILES / f"host-{name}.sh").read_text() for name in ("postinst", "prerm", "postrm")},
    }
    return build_deb(contents, control, source, out / f"{NAME}_{source.version}_amd64.deb", level=1)


def unit(name: str) -> str:
    """A unit with the package's static user instead of a dynamic one; the socket's folder outlives a stop, too."""
    text = (ROOT / "deploy" / name).read_text()
    text = text.replace("DynamicUser=yes\nUser=vgpud\n", "User=vgpud\nGroup=vgpud\n")
    return text.replace("RuntimeDirectory=vgpu\n", "RuntimeDirectory=vgpu\nRuntimeDirectoryPreserve=yes\n")


def _add_bundle(contents: Contents, bundle: Path) -> None:
    for path in sorted(bundle.rglob("*")):
        name = path.relative_to(bundle).as_posix()
        if name in _LEFT_OUT or name in (f"python/lib/{library}" for library in LIBRARIES):
            continue
        if name == "python/bin/python3":
            contents.files[f"{_HOME}/{name}"] = File(_interpreter(), 0o755)
            continue
        if path.is_symlink():
            contents.link(f"{_HOME}/{name}", str(path.readlink()))
        elif path.is_file() and "__pycache__" not in path.parts:  # postinst creates __pycache__
            runs = bool(path.stat().st_mode & 0o100) and ".so" not in path.name and path.suffix != ".py"
            contents.files[f"{_HOME}/{name}"] = File(_without_interpreter(path), 0o755 if runs else 0o644)


def _interpreter() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "python3"
        link_to_system(target, Path(folder))
        return target.read_bytes()


def _without_interpreter(path: Path) -> bytes:
    """A file's content, for a module without the `#!` line, which would name the system's Python."""
    content = path.read_bytes()
    if path.suffix != ".py" or not content.startswith(b"#!"):
        return content
    return b"# Run by the Python of this package." + content[content.index(b"\n") :]


def _licences(bundle: Path) -> str:
    found = sorted({path.parent.relative_to(bundle).as_posix() for path in bundle.rglob("licenses/*")})
    where = "".join(f" {_HOME}/{folder}/*\n" for folder in found) or f" {_HOME}/python/*\n"
    return (
        f"\nFiles:\n{where}Copyright: the authors of Python, LLVM and the packages that CONTENTS lists\n"
        "License: theirs\n The text of each lies beside its files.\n"
    )


def _control(contents: Contents, glibc: str, source: Source) -> str:
    return f"""\
Package: {NAME}
Version: {source.version}
Architecture: amd64
Maintainer: {maintainer()}
Section: misc
Priority: optional
Installed-Size: {(contents.nbytes + 1023) // 1024}
Depends: libc6 (>= {glibc}), libstdc++6, libffi8, libssl3 | libssl3t64, zlib1g, adduser
Conflicts: vgpu-guest
Replaces: vgpu-guest
Description: GPUs for machines that have none: the host's side
 vgpud carries out the calls of CUDA programs that run elsewhere: in virtual
 machines, in containers or on other machines. A real GPU does the work, or one
 that is simulated on the CPU.
 .
 The package brings its own Python; "systemctl enable --now vgpud.socket" starts
 the daemon with its first client. It has all of vgpu-guest's commands, too.
"""
