"""A whole Debian with systemd as the guest: mmdebstrap makes its files once, the guest sees a writable copy.

with debian.boot(vsock=...) as guest:   # booted, /sbin/init is systemd
    guest.check("systemctl is-system-running --wait")
"""

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.pypi import CACHE
from tests.vm import guest as vm
from tests.vm import packages

SUITE = "bookworm"
# The packages that a guest's package may depend on; the rest is Debian's smallest variant with an init.
INSTALLED = ("systemd-sysv", "dbus", "udev", "python3", "python3-click", "python3-msgpack", "python3-pyroute2")
BUILD_TIMEOUT_S = 420

# A service of the system that speaks init.sh's protocol over the serial line.
AGENT = """#!/bin/sh
exec > /dev/ttyS0 2>&1
stty raw -echo < /dev/ttyS0
echo "@ready $(cut -d ' ' -f 1 /proc/uptime)"
while read -r number seconds text; do
  echo "$text" | base64 -d > /run/command
  timeout -s KILL "$seconds" sh /run/command < /dev/null 2>&1
  status=$?
  printf '\\n@end %s %s\\n' "$number" "$status"
done < /dev/ttyS0
"""
UNIT = """[Unit]
Description=Commands of the tests
After=basic.target

[Service]
ExecStart=/usr/local/sbin/test-agent
Environment=HOME=/root
# What a test starts in the background must not keep the system from stopping.
KillMode=process
TimeoutStopSec=2

[Install]
WantedBy=multi-user.target
"""


def rootfs() -> Path:
    """The folder with the system's files, made if it does not exist yet (half a minute)."""
    target = CACHE / "vm" / f"debian-{SUITE}"
    with packages.locked():
        if target.exists():
            return target
        if shutil.which("mmdebstrap") is None:
            packages.refresh_lists()
            packages.apt("apt-get", *packages.INSTALL, "mmdebstrap")
        partial = target.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.parent.mkdir(parents=True, exist_ok=True)
        command = [
            "mmdebstrap",
            "--quiet",
            "--variant=minbase",
            f"--include={','.join(INSTALLED)}",
            SUITE,
            str(partial),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
        prepare(partial)
        partial.rename(target)
    return target


def prepare(root: Path) -> None:
    """Install the agent; mask units that only slow down a machine without network and keyboard."""
    agent = root / "usr/local/sbin/test-agent"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    units = root / "etc/systemd/system"
    (units / "test-agent.service").write_text(UNIT)
    (units / "multi-user.target.wants").mkdir(exist_ok=True)
    (units / "multi-user.target.wants/test-agent.service").symlink_to("/etc/systemd/system/test-agent.service")
    for name in (
        "serial-getty@ttyS0.service",
        "getty.target",
        "systemd-timesyncd.service",
        "apt-daily.timer",
        "apt-daily-upgrade.timer",
    ):
        (units / name).symlink_to("/dev/null")
    (root / "etc/hostname").write_text("guest\n")
    (root / "etc/fstab").write_text("")


@contextmanager
def boot(
    *,
    vsock: Path | None = None,
    devices: Sequence[str] = (),
    files: Mapping[str, Path] | None = None,
    folders: Mapping[str, Path] | None = None,
    memory_mib: int = 1024,
) -> Iterator[vm.Guest]:
    """Boot the system, up to systemd's basic target.

    Args:
        vsock, devices: as for guest.boot.
        files: files of this host to copy into the guest, by their path there.
        folders: folders of this host to mount in the guest, read-only, by their path there.
    """
    tags = {f"shared{i}": path for i, path in enumerate(folders or {})}
    shared = {tag: (folders or {})[path] for tag, path in tags.items()}
    copied = {f"/copied{path}": source for path, source in (files or {}).items()}
    parts = {"vsock": vsock, "devices": devices, "files": copied, "shared": shared}
    with vm.boot(**parts, memory_mib=memory_mib, root=rootfs()) as guest:
        if files:
            guest.check("cp -a /copied/. /root/")
        guest.switch_root()
        for tag, path in tags.items():
            guest.check(f"mkdir -p {path} && mount -t virtiofs -o ro {tag} {path}")
        yield guest
