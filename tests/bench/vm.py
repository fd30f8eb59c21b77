"""Round trip and bandwidth of each channel out of a VM, in one run: `python -m tests.bench.vm [VHOST_DEVICE_VSOCK]`.

The guest runs under TCG, an emulated processor: the figures compare channels with each other, and say little of a
machine with KVM. The optional argument is the program of Debian's package vhost-device-vsock, for the hybrid channel.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.daemon.running import wait_until
from tests.vm import packages
from tests.vm.daemon import guest_env, vm_daemon
from tests.vm.guest import CPU, Guest, boot

SOURCE = Path(__file__).with_name("vm_channel.c")
IVSHMEM_MIB = 256
TIMEOUT_S = 200


def compiled(directory: Path) -> Path:
    program = directory / "vm_channel"
    command = ["cc", "-O2", "-Wno-deprecated-non-prototype", "-o", str(program), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return program


def show(channel: str, line: str) -> None:
    figures = line.split()
    print(f"| {channel} | " + " | ".join([*figures, *["-"] * (6 - len(figures))]) + " |", flush=True)


def measure(channel: str, guest: Guest, program: Path, *arguments: str) -> None:
    outcome = guest.hosted([program, *arguments], env=guest_env(), timeout_s=TIMEOUT_S)
    if outcome.status:
        sys.exit(f"{channel}: {outcome.output}")
    show(channel, outcome.output)


def answer(listener: socket.socket) -> None:
    """The host's end of the character device (see vm_channel.c)."""
    sock, _ = listener.accept()
    zeros = bytes(1 << 20)

    def take(nbytes: int) -> bytes:
        data = b""
        while nbytes and (piece := sock.recv(min(nbytes, 1 << 20))):
            nbytes -= len(piece)
            data = data + piece if nbytes + len(data) < 4096 else piece
        return data

    with sock, contextlib.suppress(OSError, struct.error):
        while True:
            what, nbytes = struct.unpack("<QQ", take(16))
            if what == ord("e"):
                sock.sendall(take(nbytes))
            elif what == ord("s"):
                take(nbytes)
                sock.sendall(bytes(8))
            else:
                while nbytes:
                    nbytes -= sock.send(zeros[:nbytes])


@contextmanager
def serial_port(directory: Path) -> Iterator[list[str]]:
    """QEMU's options for a virtio-serial port with answer() at its other end."""
    path = directory / "serial.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
        yield [
            *("-device", "virtio-serial-pci", "-chardev", f"socket,id=bytes,path={path}"),
            *("-device", "virtserialport,chardev=bytes,name=bytes"),
        ]


def main() -> None:
    hybrid = sys.argv[1] if len(sys.argv) > 1 else None
    major, minor = packages.qemu_version()
    print(f"QEMU {major}.{minor}, TCG (-cpu {CPU}), 1 of {os.cpu_count()} cores; load {os.getloadavg()[0]:.1f}\n")
    print("| channel | call p50 us | p99 us | to host MiB/s | from host | pinned to host | pinned from host |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="vgpu-bench-") as name, contextlib.ExitStack() as stack:
        directory = Path(name)
        program = compiled(directory)
        memory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vgpu-bench-", dir="/dev/shm"))) / "m"
        extra = f"[[vm]]\nname = 'shared'\ncid = 8\nvsock = '{directory}/shared.sock'\nivshmem = '{memory}'\n"
        extra += f"ivshmem_mib = {IVSHMEM_MIB}\nivshmem_sessions = 1\n"
        extra += f"[[vm]]\nname = 'hybrid'\ncid = 9\nhybrid = '{directory}/h.sock'\n"
        daemon = stack.enter_context(vm_daemon(["plain"], extra=extra))
        with serial_port(directory) as devices, boot(vsock=daemon.socket("plain"), devices=devices) as guest:
            measure("vsock, vhost-user by vgpud", guest, program, "cuda")
            port = guest.check("ls /dev/vport*").strip()
            measure("virtio-serial (bytes alone, no GPU)", guest, program, "bytes", port)
        devices = ["-object", f"memory-backend-file,id=shared,mem-path={memory},size={IVSHMEM_MIB}M,share=on"]
        devices += ["-device", "ivshmem-plain,memdev=shared"]
        with boot(vsock=directory / "shared.sock", devices=devices) as guest:
            measure("the same with ivshmem", guest, program, "cuda")
        if hybrid is not None:
            command = [hybrid, "--guest-cid", "9", "--uds-path", f"{directory}/h.sock"]
            process = subprocess.Popen([*command, "--socket", f"{directory}/vh.sock"])
            try:
                wait_until((directory / "vh.sock").exists)
                with boot(vsock=directory / "vh.sock") as guest:
                    measure("hybrid vsock, vhost-device-vsock", guest, program, "cuda")
            finally:
                process.kill()
                process.wait()


if __name__ == "__main__":
    main()
