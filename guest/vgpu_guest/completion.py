"""`vgpu completion`: the script by which a shell completes our commands; packages install the same."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "fish", "zsh")


def completion_script(shell: str, command: str) -> str:
    """The script of one shell for `vgpu` or `vgpud`: click's, which asks the command itself."""
    found = get_completion_class(shell)
    if found is None:
        raise ValueError(f"click knows no {shell}")
    # source() of click's class asks the machine's own bash for its version; the template alone needs nothing.
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
