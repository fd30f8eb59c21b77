"""Manual pages and shell completions, for the packages and the wheel.

All are generated from the commands themselves. `python -m deploy.packaging.share FOLDER` writes the files for a wheel.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .manual import daemon_manual_page, manual_page
from .source import ROOT, Source, describe_source

if TYPE_CHECKING:
    import click

_SHELLS = {
    "bash": "share/bash-completion/completions/@",
    "zsh": "share/zsh/site-functions/_@",
    "fish": "share/fish/vendor_completions.d/@.fish",
}


def share(source: Source, vgpu: click.Group, vgpud: click.Command | None = None) -> dict[str, str]:
    """Path below the prefix (/usr, a virtual environment) to the file's text.

    Args:
        source: its time is the date of the pages.
        vgpu: the command `vgpu` of the package.
        vgpud: the command `vgpud`; None if the package does not have it.
    """
    from vgpu_guest.completion import completion_script

    files = {"share/man/man1/vgpu.1": manual_page(vgpu, source)}
    if vgpud is not None:
        files["share/man/man8/vgpud.8"] = daemon_manual_page(vgpud, source)
    for command in ("vgpu",) if vgpud is None else ("vgpu", "vgpud"):
        files |= {path.replace("@", command): completion_script(shell, command) for shell, path in _SHELLS.items()}
    return files


def whole_share(source: Source) -> dict[str, str]:
    """The files for packages with all commands: the host's package and the wheel."""
    from vgpud.cli.daemon import daemon
    from vgpud.cli.main import vgpu

    return share(source, vgpu, daemon)


def main() -> None:
    """Write the files below the folder that the command line names."""
    sys.path[:0] = [str(ROOT / "daemon"), str(ROOT / "guest")]
    for name, text in whole_share(describe_source()).items():
        path = Path(sys.argv[1]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
