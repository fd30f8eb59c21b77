"""A small system in a directory, into which a test plants one fault: a loader, a C library, vgpu's library, a program;
and the doctor's verdict on that system."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import ROOT, merged
from tests.guest.elf_file import compile_c, compile_library
from tests.patience import PATIENCE_S

LIB = ROOT / "build/guest"
DOCTOR = [sys.executable, "-c", "from vgpu_guest.cli import vgpu; vgpu()", "doctor"]
CUDA = 'int cuInit(unsigned f) { return f ? 1 : 999; } const char *maker = "NVIDIA Corporation";'
MAIN = "int main(void) { return 0; }"
NOBODY = 65534


@dataclass
class Told:
    """The doctor's exit code, JSON answer and standard error."""

    code: int
    answer: dict[str, Any]
    stderr: str

    @property
    def verdict(self) -> str:
        return str(self.answer["verdict"])

    @property
    def everything(self) -> str:
        return json.dumps(self.answer)


def doctor(
    *arguments: str | Path, env: dict[str, str] | None = None, timeout_s: float = 60, cwd: Path | None = None
) -> Told:
    """Run `vgpu doctor --json` with the variables of `env` and those that Python needs, and no others."""
    inherited = {"PYTHONPATH": merged(None)["PYTHONPATH"], "PATH": os.environ["PATH"], "HOME": "/dev/null"}
    result = subprocess.run(
        [*DOCTOR, "--json", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=inherited | (env or {}),
        cwd=cwd,
    )
    assert result.stdout, result.stderr
    return Told(result.returncode, json.loads(result.stdout), result.stderr)


@dataclass
class Tree:
    """`environment` is that of the program; by default it leads to vgpu's libraries and to the endpoint."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    program: str = "/usr/bin/program"

    def __post_init__(self) -> None:
        for folder in ("lib64", "lib/x86_64-linux-gnu", "usr/bin", "etc", "proc", "usr/lib/vgpu", "tmp", "run"):
            self.path(folder).mkdir(parents=True)
        self.copy("/lib64/ld-linux-x86-64.so.2", "lib64/ld-linux-x86-64.so.2")
        self.copy("/lib/x86_64-linux-gnu/libc.so.6", "lib/x86_64-linux-gnu/libc.so.6")
        for stem in ("libcuda", "libnvidia-ml"):
            real = (LIB / f"{stem}.so.1").resolve()
            self.copy(real, f"usr/lib/vgpu/{real.name}")
            for alias in (f"{stem}.so.1", f"{stem}.so"):
                self.path(f"usr/lib/vgpu/{alias}").symlink_to(real.name)
        compile_c(self.path(self.program), MAIN)
        self.environment.setdefault("LD_LIBRARY_PATH", "/usr/lib/vgpu")

    def path(self, inside: str) -> Path:
        return self.root / inside.lstrip("/")

    def copy(self, file: str | Path, inside: str) -> Path:
        target = self.path(inside)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
        target.chmod(0o755)
        return target

    def write(self, inside: str, text: str) -> Path:
        target = self.path(inside)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    def library(self, inside: str, *flags: str, source: str = CUDA) -> Path:
        return compile_library(self.path(inside), *flags, source=source)

    def unit(self, text: str, name: str = "gpu.service") -> None:
        self.write(f"etc/systemd/system/{name}", text)

    def ldconfig(self) -> None:
        """Build the tree's own loader cache."""
        subprocess.run(["/sbin/ldconfig", "-r", str(self.root)], check=True, timeout=PATIENCE_S, capture_output=True)

    def doctor(self, *arguments: str | Path) -> Told:
        """Run the doctor on the tree's program, or with `arguments` instead."""
        return doctor("--root", self.root, *(arguments or (self.program,)), env=self.environment)
