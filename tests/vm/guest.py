"""A virtual machine under QEMU's TCG: boot it, run commands in it over its serial line, reset it, switch it off.

    with boot(vsock=Path("/run/vgpu/vm1.sock")) as guest:
        assert guest.run("cat /proc/version").status == 0
        guest.hosted(["/usr/bin/python3", "-c", "print(1)"])  # in a writable copy of this host's own file system

/dev/kvm proves nothing: nested, it may exist and yet run no stock kernel. Therefore QEMU always uses TCG.
"""

import base64
import json
import os
import re
import shlex
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.patience import PATIENCE_S
from tests.vm import initramfs, packages

MEMORY_MIB = 768
CPU = "Nehalem"  # the oldest CPU that numpy's wheels support, and TCG's fastest in our measurements
COMMAND_LINE = "console=ttyS0 quiet panic=-1 nokaslr mitigations=off"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class GuestError(Exception):
    """The guest did not boot or no longer answers; the message ends with the console's output."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended; `output` is its standard output and error together."""

    status: int
    output: str


@dataclass
class Guest:
    """A running VM. Commands run one after the other; a background command needs `&` and a file for its output."""

    process: subprocess.Popen[bytes]
    directory: Path
    _console: bytearray = field(default_factory=bytearray)
    _arrived: threading.Condition = field(default_factory=threading.Condition)
    _reader: threading.Thread | None = None
    _ended: bool = False
    _number: int = 0
    _read: int = 0  # bytes of the console that earlier commands have consumed

    def run(self, command: str, timeout_s: float = PATIENCE_S) -> Outcome:
        """Run a line (or a script) of busybox's shell in the initramfs. At `timeout_s` it is killed (status 137)."""
        self._number += 1
        text = base64.b64encode(command.encode()).decode()
        self._write(f"{self._number} {timeout_s} {text}\n".encode())
        found = self._wait_for(rb"(?<![^\n])@end %d (\d+)\n" % self._number, timeout_s + PATIENCE_S)
        return Outcome(int(found[1]), found[0].removesuffix("\n"))  # init puts a newline before @end

    def check(self, command: str, timeout_s: float = PATIENCE_S) -> str:
        """Call run(), assert status 0, and return the output."""
        outcome = self.run(command, timeout_s)
        assert outcome.status == 0, f"{command}: status {outcome.status}\n{outcome.output[-4000:]}"
        return outcome.output

    def hosted(
        self, command: Sequence[str | Path], env: Mapping[str, str] | None = None, timeout_s: float = PATIENCE_S
    ) -> Outcome:
        """Run a program of this host's file system, of which the guest sees a writable copy."""
        return self.run(self.hosted_line(command, env), timeout_s)

    @staticmethod
    def hosted_line(command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> str:
        """The shell line that hosted() runs, for use in a background command."""
        variables = {"PATH": PATH, "HOME": "/root", "LC_ALL": "C.UTF-8", **(env or {})}
        settings = [f"{name}={value}" for name, value in variables.items()]
        return shlex.join(["chroot", "/root", "/usr/bin/env", "-i", *settings, *map(str, command)])

    def wait_until(self, condition: str, timeout_s: float = PATIENCE_S) -> None:
        """Poll until the shell command `condition` succeeds in the guest."""
        deadline = time.monotonic() + timeout_s
        while self.run(condition).status != 0:
            assert time.monotonic() < deadline, f"in the guest, still false after {timeout_s} s: {condition}"
            time.sleep(0.05)

    def reset(self) -> None:
        """Push the reset button, whatever the guest is doing, and wait until it is up again."""
        with self._arrived:
            self._read = len(self._console)
        self.monitor("system_reset")
        self.wait_ready()

    def switch_root(self, init: str = "/sbin/init") -> None:
        """Switch the guest to the file system that hosted() sees, with its own init; debian.py's agent answers."""
        self._write(f"switch {init} -\n".encode())
        self.wait_ready(PATIENCE_S)

    def monitor(self, command: str, **arguments: object) -> object:
        """Run one QMP command; return its result."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(PATIENCE_S)
            sock.connect(str(self.directory / "qmp.sock"))
            with sock.makefile("rw") as file:
                json.loads(file.readline())  # the greeting
                for message in ({"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}):
                    file.write(json.dumps(message) + "\n")
                    file.flush()
                    answer = json.loads(file.readline())
                    while "event" in answer:
                        answer = json.loads(file.readline())
                    if "error" in answer:
                        raise GuestError(f"QMP {message['execute']}: {answer['error']}")
                return answer["return"]

    @property
    def console(self) -> str:
        """Everything the guest has printed."""
        with self._arrived:
            return self._console.decode(errors="replace")

    def wait_ready(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait until the guest's init accepts commands."""
        self._wait_for(rb"(?<![^\n])@ready ([\d.]+)\r?\n", timeout_s)

    def start_reading(self) -> None:
        """Collect what the guest prints from now on."""
        self._reader = threading.Thread(target=self._read_console, name="console", daemon=True)
        self._reader.start()

    def end(self) -> None:
        """Kill QEMU and wait for its end."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        assert self._reader is not None
        self._reader.join(PATIENCE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(BrokenPipeError):
                pipe.close()

    def _read_console(self) -> None:
        while data := os.read(self.process.stdout.fileno(), 65536):
            with self._arrived:
                self._console += data
                self._arrived.notify_all()
        with self._arrived:
            self._ended = True
            self._arrived.notify_all()

    def _write(self, data: bytes) -> None:
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
        except BrokenPipeError:
            raise GuestError(f"QEMU has ended\n{self.console[-4000:]}") from None

    def _wait_for(self, pattern: bytes, timeout_s: float) -> tuple[str, str]:
        """Wait for the pattern; return the console's output since the previous one, and the pattern's first group."""
        deadline = time.monotonic() + timeout_s
        with self._arrived:
            while True:
                found = re.compile(pattern).search(self._console, self._read)
                if found:
                    before = bytes(self._console[self._read : found.start()])
                    self._read = found.end()
                    return before.decode(errors="replace").replace("\r\n", "\n"), found[1].decode()
                left_s = deadline - time.monotonic()
                if self._ended or left_s <= 0:
                    why = "QEMU has ended" if self._ended else f"nothing like {pattern!r} within {timeout_s} s"
                    raise GuestError(f"{why}\n{self._console[-4000:].decode(errors='replace')}\n{self._complaints()}")
                self._arrived.wait(left_s)

    def _complaints(self) -> str:
        return (self.directory / "qemu.log").read_text(errors="replace")[-2000:]


def vhost_user_vsock(path: Path) -> list[str]:
    """QEMU's options for a vsock device that is provided by the process behind the socket `path`.

    No `reconnect=`: with it QEMU would not wait for the connection, which this device needs from the start.
    """
    return ["-chardev", f"socket,id=vsock,path={path}", "-device", "vhost-user-vsock-pci,chardev=vsock"]


@contextmanager
def boot(
    *,
    vsock: Path | None = None,
    devices: Sequence[str] = (),
    pass_fds: Sequence[int] = (),
    files: Mapping[str, Path] | None = None,
    modules: Sequence[str] = (),
    host_files: bool = True,
    root: Path = Path("/"),
    shared: Mapping[str, Path] | None = None,
    memory_mib: int = MEMORY_MIB,
    may_reset: bool = False,
) -> Iterator[Guest]:
    """Boot a guest; it is killed when the block is left.

    Args:
        vsock: socket of a vhost-user backend that is the guest's vsock device.
        devices: more of QEMU's options; `pass_fds` are the descriptors they name.
        files, modules: see initramfs.build.
        host_files: give the guest the folder `root` of this host as its file system (needed by Guest.hosted).
        shared: more folders of this host, by the tag under which the guest mounts them (mount -t virtiofs).
        may_reset: let the guest start again after a reset; else QEMU ends.
    Raises:
        GuestError: the guest did not boot in time.
    """
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vgpu-vm-")))
        command = [
            packages.qemu(),
            *("-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio"),
            *("-machine", "pc,memory-backend=ram", "-accel", "tcg", "-cpu", CPU, "-smp", "1", "-m", str(memory_mib)),
            *("-object", f"memory-backend-memfd,id=ram,size={memory_mib}M,share=on"),  # vhost-user maps this memory
            *("-qmp", f"unix:{directory}/qmp.sock,server=on,wait=off"),
            *("-kernel", str(packages.kernel().image), "-initrd", str(initramfs.build(files, modules))),
            *("-append", COMMAND_LINE),
            *(() if may_reset else ("-no-reboot",)),
        ]
        folders = {"host": root} if host_files else {}
        for tag, folder in (folders | dict(shared or {})).items():
            command += stack.enter_context(shared_folder(directory, tag, folder))
        if vsock is not None:
            command += vhost_user_vsock(vsock)
        with (directory / "qemu.log").open("wb") as log:
            process = subprocess.Popen(
                [*command, *devices],
                pass_fds=list(pass_fds),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        guest = Guest(process, directory)
        guest.start_reading()
        stack.callback(guest.end)
        guest.wait_ready()
        yield guest


@contextmanager
def shared_folder(directory: Path, tag: str, folder: Path) -> Iterator[list[str]]:
    """A folder of this host that the guest can mount, read-only, by its tag. Yields QEMU's options."""
    path = directory / f"{tag}.sock"
    daemon = packages.virtiofsd_path()
    assert daemon is not None, "packages.qemu() brings virtiofsd"
    with (directory / f"{tag}.log").open("wb") as log:
        process = subprocess.Popen(
            [
                daemon,
                f"--socket-path={path}",
                "-o",
                f"source={folder}",
                "-o",
                "sandbox=chroot,cache=auto",
                "--rlimit-nofile=0",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not path.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise GuestError(f"virtiofsd did not start:\n{(directory / f'{tag}.log').read_text()[-2000:]}")
            time.sleep(0.01)
        yield ["-chardev", f"socket,id={tag},path={path}", "-device", f"vhost-user-fs-pci,chardev={tag},tag={tag}"]
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
