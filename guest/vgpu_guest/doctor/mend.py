"""Commands that each repair one cause: for a shell if the shell's environment is at fault, for a unit by a drop-in of
its own. Each can be pasted unchanged, repairs that cause, and changes nothing else. What no command can repair is
printed as advice.
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
    """The name by which a shell, and sudo in it, finds this program: its path unless it is in a folder of the
    system.
    """
    if shutil.which("vgpu", path=_SUDO_PATH):
        return "vgpu"
    own = os.path.abspath(sys.argv[0])
    return shlex.quote(own) if os.path.basename(own) == "vgpu" and os.access(own, os.X_OK) else "vgpu"


def set_in_unit(unit: Unit, setting: str, value: str, name: str = "") -> str:
    """A drop-in with one line, and the restart that makes it count.

    Args:
        name: of the drop-in's file; the setting's by default. It sorts after the drop-in of `vgpu install`.
    """
    folder = f"/etc/systemd/system/{unit.name}.d"
    lines = shlex.quote("[Service]\\n" + f"{setting}={value}".replace("\\", "\\\\").replace("%", "%%") + "\\n")
    file = f"{folder}/zzz-{name or setting}.conf"
    return f"sudo mkdir -p {folder} && printf {lines} | sudo tee {file} >/dev/null && {restart(unit.name)}"


def restart(unit: str) -> str:
    """Restart a service so that it uses its current files."""
    return f"sudo systemctl daemon-reload && sudo systemctl restart {unit}"


def set_variable(subject: Subject, name: str, value: str) -> str:
    """Give the subject's environment another value of a variable, or take it away."""
    unit = subject.unit
    if unit is not None:
        if not value:
            return set_in_unit(unit, "UnsetEnvironment", name, name)
        quoted = '"' + f"{name}={value}".replace("\\", "\\\\").replace('"', '\\"') + '"'
        return set_in_unit(unit, "Environment", quoted, name)
    return f"export {name}={shlex.quote(value)}" if value else f"unset {name}"


def advice_for_process(subject: Subject, name: str, value: str) -> str:
    """A running process keeps its environment: how to start it again."""
    words = f"{name}={shlex.quote(value)}" if value else f"-u {name}"
    command = " ".join(map(shlex.quote, subject.process.arguments)) if subject.process is not None else "COMMAND"
    return f"start it again by: env {words} {command}"


def without_entry(path: str, entry: str) -> str:
    """A list of LD_PRELOAD's less one entry; the loader takes colons and blanks for separators."""
    return ":".join(part for part in path.replace(" ", ":").split(":") if part and part != entry)
