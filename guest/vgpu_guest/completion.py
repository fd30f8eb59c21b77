"""`vgpu completion`: the shell's completion script for vgpu's commands; packages install the same script."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "fish", "zsh")


def completion_script(shell: str, command: str) -> str:
    """One shell's completion script for `vgpu` or `vgpud`: click's script, which runs the command for the words."""
    found = get_completion_class(shell)
    if found is None:
        raise ValueError(f"click knows no {shell}")
    # Not click's source(): that runs this machine's bash to get its version. The template alone needs no bash.
    values = {
        "complete_func": f"_{command}_completion",
        "complete_var": f"_{command.upper()}_COMPLETE",
        "prog_name": command,
    }
    return found.source_template % values


@click.command()
@click.option("--of", "command", type=click.Choice(["vgpu", "vgpud"]), default="vgpu", help="Which command's.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(command: str, shell: str) -> None:
    """Print what makes SHELL complete vgpu's words: eval "$(vgpu completion bash)"."""
    click.echo(completion_script(shell, command))
