"""AppArmor's report of a denial: the last log line about a profile. Read in the program's place."""

from __future__ import annotations

import os

_FILES = ("/var/log/audit/audit.log", "/var/log/kern.log", "/var/log/syslog")
_TAIL_NBYTES = 4 << 20
_KMSG = "/dev/kmsg"
_RECORDS_CAP = 20_000


def last_denial(profile: str, file: str) -> str:
    """The newest DENIED line for a profile, preferably about `file`; "" if none can be read."""
    mark = f'profile="{profile}"'
    found = [line for line in _lines() if "DENIED" in line and mark in line]
    about = [line for line in found if f'name="{file}"' in line]
    chosen = about or found
    return chosen[-1].strip()[-400:] if chosen else ""


def _lines() -> list[str]:
    lines: list[str] = []
    for path in _FILES:
        try:
            with open(path, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_NBYTES))
                lines += file.read(_TAIL_NBYTES).decode(errors="replace").splitlines()
        except OSError:
            continue
    return lines or _kernel_messages()


def _kernel_messages() -> list[str]:
    """The kernel's ring buffer: one record per read, EAGAIN at its end. Only root can read it on most systems."""
    lines: list[str] = []
    try:
        descriptor = os.open(_KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return lines
    try:
        for _ in range(_RECORDS_CAP):
            try:
                lines.append(os.read(descriptor, 8192).decode(errors="replace"))
            except BlockingIOError:
                break
            except OSError:  # EPIPE: records were overwritten meanwhile
                continue
    finally:
        os.close(descriptor)
    return lines
