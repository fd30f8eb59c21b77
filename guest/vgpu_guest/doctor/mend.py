"""Commands that each repair one cause: in a shell if the shell's environment is at fault, in a unit by a drop-in with
one setting. Each command can be pasted unchanged and changes nothing else. For causes that no command can repair, the
doctor prints advice.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .subject import Subject
    from .unit import Unit

_SUDO_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # sudoers' usual secure_path


def vgpu() -> str:
    """The name by which a shell and sudo find this program: `vgpu` if it is in a folder of sudo's path, otherwise the
    program's path.
    """
    if shutil.which("vgpu", path=_SUDO_PATH):
        return "vgpu"
    own = os.path.abspath(sys.argv[0])
    return shlex.quote(own) if os.path.basename(own) == "vgpu" and os.access(own, os.X_OK) else "vgpu"


def set_in_unit(unit: Unit, setting: str, value: str, name: str = "") -> str:
    """A command that writes a drop-in with one setting, and restarts the unit.

    Args:
        name: part of the drop-in's file name; `setting` by default. The file sorts after the drop-in of `vgpu install`.
    """
    folder = f"/etc/systemd/system/{unit.name}.d"
    lines = shlex.quote("[Service]\\n" + f"{setting}={value}".replace("\\", "\\\\").replace("%", "%%") + "\\n")
    file = f"{folder}/zzz-{name or setting}.conf"
    return f"sudo mkdir -p {folder} && printf {lines} | sudo tee {file} >/dev/null && {restart(unit.name)}"


def restart(unit: str) -> str:
    """A command that restarts a service with its current files."""
    return f"sudo systemctl daemon-reload && sudo systemctl restart {unit}"


def set_variable(subject: Subject, name: str, value: str) -> str:
    """A command that sets a variable in the subject's environment, or unsets it if `value` is empty."""
    unit = subject.unit
    if unit is not None:
        if not value:
            return set_in_unit(unit, "UnsetEnvironment", name, name)
        quoted = '"' + f"{name}={value}".replace("\\", "\\\\").replace('"', '\\"') + '"'
        return set_in_unit(unit, "Environment", quoted, name)
    return f"export {name}={shlex.quote(value)}" if value else f"unset {name}"


def advice_for_process(subject: Subject, name: str, value: str) -> str:
    """How to start a process again with a changed variable: a running process keeps its environment."""
    words = f"{name}={shlex.quote(value)}" if value else f"-u {name}"
    command = " ".join(map(shlex.quote, subject.process.arguments)) if subject.process is not None else "COMMAND"
    return f"start it again by: env {words} {command}"


def without_entry(path: str, entry: str) -> str:
    """The value of LD_PRELOAD without one entry; the loader treats colons and blanks as separators."""
    return ":".join(part for part in path.replace(" ", ":").split(":") if part and part != entry)
