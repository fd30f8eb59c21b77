"""vgpu-vm [--config FILE] [PROGRAM...]: boot the bundle's guest and run CUDA programs in it.

It starts a vgpud that provides the guest's vsock device. The backend is the simulator, or as configured in FILE: with
share/vgpu/cuda.toml, this machine's card. PROGRAM is a name in share/vgpu/programs; the default is all programs of
the guest. The exit code is 0 if every program succeeded, 1 if not, 2 if the guest did not start.
"""

from __future__ import annotations

import argparse
import base64
import importlib.util
import re
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
START_TIMEOUT_S = 30
BOOT_TIMEOUT_S = 120  # 3 s on a quiet machine
PROGRAM_TIMEOUT_S = 300
MEMORY_MIB = 512
_VGPUD = "from vgpud.cli.main import vgpud; vgpud()"
_OUTPUT_CAP = 1 << 20


class NoGuestError(Exception):
    """A part of the check did not start; the text names it."""


class Console:
    """The guest's serial line: a shell that runs commands and reports their end (tests/vm/init.sh)."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process, self._log, self._seen, self._count = process, log, b"", 0

    def wait_for(self, pattern: bytes, timeout_s: float) -> re.Match[bytes]:
        """Read until the pattern appears, and discard the text before it."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        while not (found := re.search(pattern, self._seen)):
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([self._process.stdout], [], [], left_s)[0]:
                raise NoGuestError(f"the guest said nothing within {timeout_s} s:\n{self._tail()}")
            data = self._process.stdout.read1(65536)  # type: ignore[attr-defined]
            if not data or len(self._seen) > _OUTPUT_CAP:
                raise NoGuestError(f"the guest has ended or says too much:\n{self._tail()}")
            self._seen += data
        self._seen = self._seen[found.end() :]
        return found

    def run(self, command: str) -> tuple[int, str]:
        """Run a shell line in the guest; returns its exit code and output."""
        assert self._process.stdin is not None
        self._count += 1
        text = base64.b64encode(command.encode()).decode()
        self._process.stdin.write(f"{self._count} {PROGRAM_TIMEOUT_S} {text}\n".encode())
        self._process.stdin.flush()
        found = self.wait_for(rb"(?s)\A(.*?)@end %d (\d+)\r?\n" % self._count, PROGRAM_TIMEOUT_S + 10)
        return int(found[2]), found[1].decode(errors="replace").replace("\r", "").strip()

    def _tail(self) -> str:
        return (self._seen + self._log.read_bytes())[-2000:].decode(errors="replace")


def run_all(directory: Path, config: str, wanted: list[str]) -> bool:
    """Run the programs in the guest; whether every one succeeded."""
    socket, log = directory / "vm.sock", directory / "vgpud.log"
    (directory / "vgpud.toml").write_text(
        f"listen = ['unix:{directory}/vgpud.sock']\nadmin = ''\n{config}\n"
        f"[[vm]]\nname = 'guest'\ncid = 3\nvsock = '{socket}'\n"
    )
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with log.open("wb") as file:
            command = [sys.executable, "-c", _VGPUD, "--config", str(directory / "vgpud.toml")]
            processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=file))
        deadline = time.monotonic() + START_TIMEOUT_S
        while not socket.exists():
            if processes[0].poll() is not None or time.monotonic() > deadline:
                raise NoGuestError(f"vgpud did not start:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)
        command = [
            str(HERE / "qemu-system-x86_64"),
            *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio"),
            *("-machine", "pc,memory-backend=ram", "-accel", "tcg", "-cpu", "Nehalem", "-m", str(MEMORY_MIB)),
            *("-object", f"memory-backend-memfd,id=ram,size={MEMORY_MIB}M,share=on"),
            *("-kernel", str(HERE / "vmlinuz"), "-initrd", str(HERE / "initramfs")),
            *("-append", "console=ttyS0 quiet panic=-1 nokaslr mitigations=off"),
            *("-chardev", f"socket,id=vsock,path={socket}", "-device", "vhost-user-vsock-pci,chardev=vsock"),
        ]
        with (directory / "qemu.log").open("wb") as file:
            pipe = subprocess.PIPE
            processes.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=file))
        console = Console(processes[1], directory / "qemu.log")
        found = console.wait_for(rb"@ready ([\d.]+)\r?\n", BOOT_TIMEOUT_S)
        print(f"guest up, its clock at {found[1].decode()} s", flush=True)
        names = wanted or sorted(console.run("ls /programs")[1].split())
        right = True
        for name in names:
            line = f"LD_LIBRARY_PATH=/usr/lib/vgpu VGPU_ENDPOINT=vsock://2:7070 /programs/{name}"
            code, output = console.run(line)
            right = right and code == 0
            print(f"{name}: exit {code}: {output}", flush=True)
        return right
    finally:
        for process in reversed(processes):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def main() -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="vgpu-vm", description="Boot a guest and run CUDA programs in it.")
    parser.add_argument("--config", type=Path, help="vgpud's configuration, less listen, admin and [[vm]]")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="of share/vgpu/programs (default: all it has)")
    options = parser.parse_args()
    if bad := [name for name in options.programs if not re.fullmatch(r"[a-z_]+", name)]:
        parser.error(f"{bad[0]!r} is not a program of the guest")
    if options.config is None and importlib.util.find_spec("llvmlite") is None:
        parser.error("this bundle has no simulator: --config share/vgpu/cuda.toml computes on this machine's card")
    try:
        config = options.config.read_text() if options.config else 'gpus = "h100"'
        with tempfile.TemporaryDirectory(prefix="vgpu-vm-") as folder:
            return 0 if run_all(Path(folder), config, options.programs) else 1
    except (NoGuestError, OSError) as error:
        print(f"vgpu-vm: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
