"""A small Debian in a folder of its own, for packages to be installed in."""

import os
import shutil
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

from tests.guest.install.snapshot import LOADER_CACHES
from tests.packaging.isolated import unshare_command
from tests.vm import debian

TIMEOUT_S = 300
# What dpkg keeps for itself, and the log that it writes.
_OF_DPKG = ("var/lib/dpkg", "var/log")


def why_not() -> str | None:
    """Why this machine cannot make such a system; None if it can."""
    if os.geteuid() != 0:
        return "a system in a folder needs root (chroot, mount)"
    if shutil.which("apt-get") is None:
        return "the system comes from Debian with apt, which is not here"
    return None


@dataclass(frozen=True)
class System:
    """A system whose files lie below `root`; it sees the folder `exchange` as /mnt."""

    root: Path
    exchange: Path

    @classmethod
    def make(cls, folder: Path) -> "System":
        """Copy the system that the VM tests boot. Raises RuntimeError if that system cannot be built."""
        system = cls(folder / "root", folder / "exchange")
        system.exchange.mkdir(parents=True)
        command = ["cp", "-a", "--reflink=auto", debian.rootfs(), system.root]
        subprocess.run(command, check=True, timeout=TIMEOUT_S)
        return system

    def run(self, *command: str | Path, env: Sequence[str] = ()) -> CompletedProcess[str]:
        """Run a command in the system as root, with a plain environment, /proc and /dev."""
        script = (
            'mount -t proc proc "$1/proc"; mount --rbind /dev "$1/dev"; mount --bind "$2" "$1/mnt"; '
            'root=$1; shift 2; exec chroot "$root" "$@"'
        )
        plain = ["env", "-i", "HOME=/root", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", *env]
        full = [*unshare_command(), "sh", "-ec", script, "sh", str(self.root), str(self.exchange), *plain]
        return subprocess.run(
            [*full, *map(str, command)], capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL
        )

    def check(self, *command: str | Path, env: Sequence[str] = ()) -> str:
        """Call run(), assert that the command succeeds, and return its standard output."""
        result = self.run(*command, env=env)
        assert result.returncode == 0, f"{command} exit {result.returncode}\n{result.stdout}{result.stderr}"
        return result.stdout

    def assume_yes(self) -> None:
        """Configure apt not to ask for confirmation."""
        (self.root / "etc/apt/apt.conf.d/90assume-yes").write_text('APT::Get::Assume-Yes "true";\n')

    def give(self, file: Path) -> str:
        """Copy a file into the exchange folder; return its path in the system."""
        shutil.copy(file, self.exchange / file.name)
        return f"/mnt/{file.name}"

    def files(self) -> dict[str, tuple[object, ...]]:
        """All files except dpkg's own, to compare before and after; a rewritten file counts as changed."""
        found: dict[str, tuple[object, ...]] = {}
        for folder, folders, files in os.walk(self.root):
            for path in (Path(folder, name) for name in (*folders, *files)):
                name, status = str(path.relative_to(self.root)), path.lstat()
                content: object = (status.st_ino, status.st_ctime_ns)
                if stat.S_ISDIR(status.st_mode):  # a folder's times change when files are added
                    content = None
                elif name == "etc/ld.so.cache":  # rewritten with the same content
                    content = path.read_bytes()
                elif name in LOADER_CACHES:  # ldconfig's auxiliary cache, which holds inodes
                    content = None
                found[name] = (status.st_mode, status.st_uid, status.st_gid, content)
        return {name: state for name, state in found.items() if not name.startswith(_OF_DPKG)}
