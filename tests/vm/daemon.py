"""A vgpud configured for VMs, for one module's tests."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import ROOT
from tests.daemon.running import Running

LIBRARY = ROOT / "build/guest"
VGPU = [sys.executable, "-c", "import sys; from vgpud.cli.main import vgpu; sys.exit(vgpu())"]


def guest_env(endpoint: str = "vsock://2:7070", **more: str) -> dict[str, str]:
    """The environment of a program in the guest that uses vgpu's library and connects to `endpoint`."""
    path = f"{ROOT / 'daemon'}:{ROOT / 'guest'}"
    return {"LD_LIBRARY_PATH": str(LIBRARY), "VGPU_ENDPOINT": endpoint, "PYTHONPATH": path, **more}


class VmDaemon:
    """`running` is the vgpud process; after it has ended, `start` starts another with the same configuration."""

    def __init__(self, directory: Path, extra: str) -> None:
        self.directory = directory
        self.config = directory / "vgpud.toml"
        self.config.write_text(
            f"listen = ['unix:{directory}/vgpud.sock']\nadmin = '{directory}/admin.sock'\ngpus = 'h100'\n{extra}"
        )
        self._count = 0
        self.running = self.start()

    def start(self) -> Running:
        self._count += 1
        self.running = Running.start(self.config, self.directory, f"log-{self._count}")
        self.running.wait_ready()
        return self.running

    def socket(self, name: str) -> Path:
        """The vhost-user socket of a VM."""
        return self.directory / f"{name}.sock"


@contextmanager
def vm_daemon(names: Sequence[str] = ("one",), extra: str = "", of_each: str = "") -> Iterator[VmDaemon]:
    """A vgpud that provides the vsock devices of the VMs `names`, CIDs from 3 on; `of_each`: more keys of each VM."""
    with tempfile.TemporaryDirectory(prefix="vgpu-vm-") as name:
        directory = Path(name)
        for cid, vm in enumerate(names, 3):
            extra += f"[[vm]]\nname = '{vm}'\ncid = {cid}\nvsock = '{directory}/{vm}.sock'\n{of_each}"
        daemon = VmDaemon(directory, extra)
        try:
            yield daemon
        finally:
            daemon.running.end()
