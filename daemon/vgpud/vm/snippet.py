"""The configuration with which a VM reaches vgpud: vgpud's part, the VM monitor's, the guest's."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from string import Template

# How each monitor's guests reach vgpud, in order of preference: `vhost-user`, vgpud is the vsock device; `kernel`, the
# host's vhost_vsock; `hybrid`, the monitor maps vsock to unix sockets.
MONITORS: dict[str, tuple[str, ...]] = {
    "qemu": ("vhost-user", "kernel"),
    "libvirt": ("vhost-user", "kernel"),
    "proxmox": ("kernel",),
    "incus": ("kernel",),
    "firecracker": ("hybrid",),
    "cloud-hypervisor": ("hybrid",),
}
SHARE_MEMORY = ("qemu", "libvirt")  # the monitors that have an ivshmem device
VSOCKS = ("vhost-user", "kernel", "hybrid")
PARTS = ("vgpud", "vm", "guest")
_GUEST = """# /etc/vgpu/guest.conf in the guest; `vgpu install --endpoint vsock://2:7070` writes it.
endpoint = vsock://2:7070
"""


@dataclass(frozen=True)
class Vm:
    """A virtual machine as its operator describes it."""

    monitor: str  # of MONITORS
    name: str
    cid: int
    vsock: str  # of MONITORS[monitor]
    memory: str  # of the guest, as QEMU writes it: 4G
    socket: str  # where vgpud and the monitor meet
    shared_mib: int | None = None  # memory of guest and host, for command rings and pinned memory: an ivshmem device

    @property
    def shared_path(self) -> str:
        """The file behind the shared memory."""
        return f"/dev/shm/vgpu-{self.name}"  # noqa: S108 - libvirt looks for it there; vgpud makes it, and its group's

    def part(self, which: str) -> str:
        """One of PARTS, ready to be pasted."""
        if which == "vgpud":
            return self._vgpud()
        if which == "guest":
            return _GUEST
        folder = resources.files(__package__).joinpath("snippets")
        shared = ""
        if self.shared_mib is not None:
            text = folder.joinpath(f"{self.monitor}.ivshmem.txt").read_text()
            shared = Template(text).substitute(name=self.name, path=self.shared_path, mib=self.shared_mib)
        text = folder.joinpath(f"{self.monitor}.{self.vsock}.txt").read_text()
        known = {"name": self.name, "cid": self.cid, "memory": self.memory, "socket": self.socket, "shared": shared}
        return Template(text).substitute(known)

    def _vgpud(self) -> str:
        lines = [f'name = "{self.name}"', f"cid = {self.cid}"]
        if self.shared_mib is not None:
            lines += [f'ivshmem = "{self.shared_path}"', f"ivshmem_mib = {self.shared_mib}"]
        if self.vsock == "kernel":
            return "\n".join(
                ["# /etc/vgpu/vgpud.toml; `listen` must hold vsock://any:7070, too.", "[[vm]]", *lines, ""]
            )
        key = {"vhost-user": "vsock", "hybrid": "hybrid"}[self.vsock]
        lines.append(f'{key} = "{self.socket}"')
        return "\n".join(["# /etc/vgpu/vgpud.toml", "[[vm]]", *lines, ""])
