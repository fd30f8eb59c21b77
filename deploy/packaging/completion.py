"""Shell completion of our commands: click's scripts, which ask the command itself, as packages install them."""

from __future__ import annotations

from click.shell_completion import get_completion_class

# Where each shell looks, by the command's name.
COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/@",
    "zsh": "usr/share/zsh/vendor-completions/_@",
    "fish": "usr/share/fish/vendor_completions.d/@.fish",
}


def completion_script(shell: str, command: str) -> str:
    """The script of one shell for `vgpu` or `vgpud`."""
    found = get_completion_class(shell)
    if found is None:
        raise ValueError(f"click knows no {shell}")
    variable = f"_{command.upper()}_COMPLETE"
    # source() of click's class asks the machine's own bash for its version; the template alone needs nothing.
    values = {"complete_func": f"_{command}_completion", "complete_var": variable, "prog_name": command}
    return found.source_template % values
