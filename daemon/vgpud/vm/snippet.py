"""What to write where so that a VM reaches vgpud: vgpud's part, the VM monitor's, the guest's."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from string import Template

# How each monitor's guests reach vgpud, the way to prefer first: `vhost-user`, vgpud is the vsock device; `kernel`, the
# host's vhost_vsock; `hybrid`, the monitor maps vsock to unix sockets.
MONITORS: dict[str, tuple[str, ...]] = {
    "qemu": ("vhost-user", "kernel"),
    "libvirt": ("vhost-user", "kernel"),
    "proxmox": ("kernel",),
    "incus": ("kernel",),
    "firecracker": ("hybrid",),
    "cloud-hypervisor": ("hybrid",),
}
VSOCKS = ("vhost-user", "kernel", "hybrid")
PARTS = ("vgpud", "vm", "guest")
_GUEST = """# /etc/vgpu/guest.conf in the guest; `vgpu install --endpoint vsock://2:7070` writes it.
endpoint = vsock://2:7070
"""


@dataclass(frozen=True)
class Vm:
    """A virtual machine as the one who runs it thinks of it."""

    monitor: str  # of MONITORS
    name: str
    cid: int
    vsock: str  # of MONITORS[monitor]
    memory: str  # of the guest, as QEMU writes it: 4G
    socket: str  # where vgpud and the monitor meet

    def part(self, which: str) -> str:
        """One of PARTS, ready to be pasted."""
        if which == "vgpud":
            return self._vgpud()
        if which == "guest":
            return _GUEST
        text = resources.files(__package__).joinpath("snippets", f"{self.monitor}.{self.vsock}.txt").read_text()
        return Template(text).substitute(name=self.name, cid=self.cid, memory=self.memory, socket=self.socket)

    def _vgpud(self) -> str:
        lines = [f'name = "{self.name}"', f"cid = {self.cid}"]
        if self.vsock == "kernel":
            return "\n".join(
                ["# /etc/vgpu/vgpud.toml; `listen` must hold vsock://any:7070, too.", "[[vm]]", *lines, ""]
            )
        key = {"vhost-user": "vsock", "hybrid": "hybrid"}[self.vsock]
        lines.append(f'{key} = "{self.socket}"')
        return "\n".join(["# /etc/vgpu/vgpud.toml", "[[vm]]", *lines, ""])
