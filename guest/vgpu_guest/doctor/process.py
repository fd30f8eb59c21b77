"""The facts about a process in /proc. Other users control parts of it (their environment, their names): reads are
bounded, and as little as possible is trusted."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .place import PlaceError, User

if TYPE_CHECKING:
    from collections.abc import Iterator

ENVIRONMENT_NBYTES = 4 << 20  # the kernel's cap for arguments and environment together is 6 MiB, 2 MiB in practice
_MAPS_NBYTES = 16 << 20
_PIDS_CAP = 65536
_DESCRIPTORS_CAP = 65536
_AT_SECURE = 23


@dataclass(frozen=True)
class Process:
    """A snapshot of a process. `program` and `libraries` are paths as the process itself sees them."""

    pid: int
    program: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    libraries: tuple[str, ...]  # mapped files with .so in their names; " (deleted)" is kept
    user: User
    cwd: str
    is_secure: bool  # AT_SECURE: the loader ignores LD_LIBRARY_PATH and paths in LD_PRELOAD
    confinement: str  # AppArmor profile, "" if none
    cgroup: str

    @property
    def is_snap(self) -> bool:
        """Whether the process runs under a snap's confinement."""
        return self.confinement.startswith("snap.") or self.program.startswith("/snap/")

    @property
    def container(self) -> str:
        """The kind of container that the process's cgroup names, "" if none."""
        kinds = (("libpod", "podman"), ("docker", "docker"), ("kubepods", "kubernetes"), ("/lxc", "lxc"))
        return next((kind for mark, kind in kinds if mark in self.cgroup), "")


def read(path: str, cap_nbytes: int = 65536) -> bytes:
    """At most `cap_nbytes` of a file; raises OSError. Files of /proc need several reads."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        data = b""
        while len(data) < cap_nbytes:
            piece = os.read(descriptor, min(1 << 20, cap_nbytes - len(data)))
            if not piece:
                break
            data += piece
        return data
    finally:
        os.close(descriptor)


def read_text(path: str, cap_nbytes: int = 65536) -> str:
    """`read`, decoded; "" if the file does not exist or may not be read."""
    try:
        return read(path, cap_nbytes).decode(errors="surrogateescape")
    except OSError:
        return ""


def parse_environment(data: bytes) -> dict[str, str]:
    """Parse an environment block. If a name occurs twice, the first value applies, as in getenv."""
    found: dict[str, str] = {}
    for entry in data.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and name:
            found.setdefault(os.fsdecode(name), os.fsdecode(value))
    return found


def inspect(pid: int) -> Process:
    """Read a process. Raises PlaceError, its text for the user, if the process does not exist or is not accessible."""
    base = f"/proc/{pid}"
    try:
        born = _start_time(pid)
        environment = parse_environment(read(f"{base}/environ", ENVIRONMENT_NBYTES))
        root = os.readlink(f"{base}/root")
        program = os.readlink(f"{base}/exe").removesuffix(" (deleted)")
        maps = read(f"{base}/maps", _MAPS_NBYTES).decode(errors="surrogateescape")
        arguments = read(f"{base}/cmdline", ENVIRONMENT_NBYTES).decode(errors="surrogateescape").split("\0")[:-1]
        process = Process(
            pid=pid,
            program=_within(program, root),
            arguments=tuple(arguments),
            environment=environment,
            libraries=tuple(dict.fromkeys(_within(file, root) for file in _mapped(maps) if ".so" in file)),
            user=_user(read_text(f"{base}/status")),
            cwd=_within(os.readlink(f"{base}/cwd").removesuffix(" (deleted)"), root) or "/",
            is_secure=_is_secure(pid),
            confinement=confinement(pid),
            cgroup=read_text(f"{base}/cgroup", 4096),
        )
        if _start_time(pid) != born:
            raise ProcessLookupError
    except (FileNotFoundError, ProcessLookupError) as error:
        raise PlaceError(f"there is no process {pid} (any more)") from error
    except PermissionError as error:
        who = "is another user's: run the doctor as root" if os.geteuid() else "is protected, from root, too"
        raise PlaceError(f"process {pid} {who}") from error
    return process


def _within(file: str, root: str) -> str:
    return file[len(root) :] if root != "/" and file.startswith(root + "/") else file


def _start_time(pid: int) -> bytes:
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[19]


def _mapped(maps: str) -> Iterator[str]:
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith("/"):
            yield fields[5].replace("\\012", "\n")


def _user(status: str) -> User:
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    try:  # fields: real, effective, saved, file system; the effective ids apply to opening files
        uid, gid = int(fields["Uid"].split()[1]), int(fields["Gid"].split()[1])
        return User(uid, gid, tuple(int(group) for group in fields.get("Groups", "").split()[:4096]))
    except (KeyError, ValueError, IndexError):
        raise PermissionError from None


def _is_secure(pid: int) -> bool:
    try:
        data = read(f"/proc/{pid}/auxv", 4096)
    except OSError:
        return False
    return any(kind == _AT_SECURE and value for kind, value in struct.iter_unpack("<QQ", data[: len(data) // 16 * 16]))


def confinement(pid: int) -> str:
    """The AppArmor profile of a process, with its mode; "" if unconfined or without AppArmor."""
    for name in ("apparmor/current", "current"):
        text = read_text(f"/proc/{pid}/attr/{name}", 4096).strip("\0\n ")
        if text:
            return "" if text.startswith("unconfined") or ":" in text else text
    return ""


def processes() -> Iterator[int]:
    """All pids."""
    found = 0
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit() and found < _PIDS_CAP:
                found += 1
                yield int(entry.name)


def in_cgroup(unit: str) -> list[int]:
    """Processes of a systemd unit, the oldest first."""
    ends = (f"/{unit}", f"/{unit}/")
    found = [
        pid
        for pid in processes()
        if any(ends[1] in line + "/" for line in read_text(f"/proc/{pid}/cgroup", 4096).splitlines())
    ]
    return sorted(found)


def listeners(port: int) -> list[int]:
    """Pids that listen on a TCP port of this network namespace."""
    inodes: set[str] = set()
    for name in ("tcp", "tcp6"):
        for line in read_text(f"/proc/net/{name}", 8 << 20).splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == "0A" and fields[1].rpartition(":")[2] == f"{port:04X}":
                inodes.add(f"socket:[{fields[9]}]")
    return [pid for pid in processes() if inodes and _holds(pid, inodes)]


def _holds(pid: int, sockets: set[str]) -> bool:
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            for number, entry in enumerate(entries):
                if number > _DESCRIPTORS_CAP:
                    return False
                try:
                    if os.readlink(entry.path) in sockets:
                        return True
                except OSError:
                    continue
    except OSError:
        pass
    return False
