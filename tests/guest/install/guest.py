"""A guest: this system's own programs and libraries under a root of its own, whose /etc, /var and /usr/lib are fresh.

It needs root, or user namespaces. What is installed into the guest lasts as long as the guest's folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess

from tests.pypi import CACHE

ROOT = Path(__file__).resolve().parents[3]
ENTER = Path(__file__).with_name("enter_guest.py")
VGPU = (sys.executable, "-c", "import sys; from vgpu_guest.cli import vgpu; sys.exit(vgpu(prog_name='vgpu'))")
_COPIED = ("etc/ld.so.conf", "etc/ld.so.conf.d", "etc/passwd", "etc/group", "etc/nsswitch.conf", "etc/alternatives")
# Prefixes of files that are hidden from a guest: the GPU libraries of the machine that runs the tests.
_HIDDEN = ("libcuda", "libnvidia", "libcudart", "libcublas", "vgpu", "cuda")
BARE = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root", "LANG": "C.UTF-8"}


class Guest:
    """A system's tree at `root`, which each command enters anew."""

    def __init__(self, root: Path, shared: Mapping[str, Path] | None = None) -> None:
        """`shared` maps paths in the guest to further folders of this machine."""
        self.root = root
        self.binds: list[tuple[str, str, bool]] = []
        for path in (
            "tmp",
            "proc",
            "dev",
            "run",
            "root",
            "etc",
            "var/lib",
            "var/cache/ldconfig",
            "usr/lib",
            "opt",
            "sys",
        ):
            (root / path).mkdir(parents=True, exist_ok=True)
        for name in _COPIED:
            source = Path("/", name)
            if source.is_dir():
                shutil.copytree(source, root / name, symlinks=True)
            elif source.exists():
                shutil.copy(source, root / name)
        self._bind_entries(Path("/usr"), "usr", {"lib", "lib64", "local"})
        self._bind_entries(Path("/usr/lib64"), "usr/lib64", set())
        self._bind_entries(Path("/usr/local"), "usr/local", {"bin"})
        self._bind_entries(Path("/usr/local/bin"), "usr/local/bin", {"vgpu", "vgpud", "nvidia-smi"})
        self._bind_entries(Path("/usr/lib"), "usr/lib", {"x86_64-linux-gnu"})
        self._bind_entries(Path("/usr/lib/x86_64-linux-gnu"), "usr/lib/x86_64-linux-gnu", set())
        for name in ("bin", "sbin", "lib", "lib64"):
            self.mount(Path("/", name), name)
        for device in ("null", "zero", "urandom", "full", "tty", "shm"):
            if Path("/dev", device).exists():
                self.mount(Path("/dev", device), f"dev/{device}", read_only=False)
        for folder in dict.fromkeys([ROOT, Path(sys.base_prefix), Path(sys.prefix), CACHE]):
            if folder.exists() and not folder.is_relative_to("/usr"):
                self.mount(folder, str(folder).lstrip("/"))
        for path, source in (shared or {}).items():
            self.mount(source, path.lstrip("/"), read_only=False)
        self.run(["/sbin/ldconfig"])

    def _bind_entries(self, folder: Path, path: str, without: set[str]) -> None:
        (self.root / path).mkdir(parents=True, exist_ok=True)
        for entry in sorted(folder.iterdir()) if folder.exists() else []:
            if entry.name not in without and not entry.name.startswith(_HIDDEN):
                self.mount(entry, f"{path}/{entry.name}")

    def mount(self, source: Path, path: str, *, read_only: bool = True) -> None:
        """Show a file or folder of this machine in the guest."""
        target = self.root / path
        if source.is_symlink():
            target.symlink_to(os.readlink(source))
            return
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        self.binds.append((str(source), path, read_only))

    def command(self, command: Sequence[str | Path]) -> list[str]:
        """The command line that starts a program in the guest."""
        binds = self.root.with_suffix(".json")
        binds.write_text(json.dumps(self.binds))
        namespaces = ["unshare", "--kill-child", "-mpf" if os.geteuid() == 0 else "-mpfr"]
        return [*namespaces, sys.executable, str(ENTER), str(self.root), str(binds), *map(str, command)]

    def run(
        self, command: Sequence[str | Path], environment: Mapping[str, str] | None = None, timeout_s: float = 100
    ) -> CompletedProcess[str]:
        """Run a program in the guest, with a service's bare environment and `environment`."""
        return subprocess.run(
            self.command(command),
            env={**BARE, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
        )

    def vgpu(self, *arguments: str) -> CompletedProcess[str]:
        """Run `vgpu` in the guest."""
        path = f"{ROOT}/guest"
        return self.run([*VGPU, *arguments], {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"})
