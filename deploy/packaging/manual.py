"""The manual page vgpu(1), generated from the commands' own help texts."""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .source import Source

_FILES = (
    ("/etc/vgpu/guest.conf", "The endpoint of vgpud, and a token if it needs one."),
    ("/usr/lib/vgpu", "The libraries that programs get."),
    ("/var/lib/vgpu/manifest.json", "What vgpu install made, with hashes; vgpu uninstall goes by it."),
)
_ENVIRONMENT = (
    ("VGPU_ENDPOINT", "Where vgpud listens: unix:/path, tcp://host:port or vsock://cid:port. Wins over guest.conf."),
    ("VGPU_TOKEN", "The secret for an endpoint on another machine."),
    ("VGPU_LOG", "off, error, info or trace: what the libraries write to stderr, or to the file VGPU_LOG_FILE."),
)


def manual_page(group: click.Group, source: Source) -> str:
    """The page vgpu(1) as roff.

    Args:
        group: the commands of `vgpu`.
    """
    from vgpu_guest.exit_status import MEANINGS  # not at the top: a wheel is built where vgpu is not installed

    day = time.strftime("%Y-%m-%d", time.gmtime(source.epoch_s))
    lines = [f'.TH VGPU 1 "{day}" "vgpu {_escaped(source.version)}" "User Commands"', ".SH NAME"]
    lines += [r"vgpu \- GPUs for a machine that has none: install, check, remove", ".SH SYNOPSIS", ".B vgpu"]
    lines += [r"\fICOMMAND\fR [\fIOPTIONS\fR]", ".SH COMMANDS"]
    for name, command in _commands(group):
        context = click.Context(command, info_name=name)
        usage = " ".join(command.collect_usage_pieces(context))
        lines += [f'.SS "{_escaped(f"vgpu {name} {usage}")}"', *_paragraphs(inspect.cleandoc(command.help or ""))]
        for parameter in command.get_params(context):
            record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
            if record is not None:
                lines += [".TP", rf"\fB{_escaped(record[0])}\fR", _escaped(record[1])]
    lines.append(".SH EXIT STATUS")
    for code, text in MEANINGS.items():
        lines += [".TP", rf"\fB{int(code)}\fR", _escaped(text)]
    lines += [".PP", "Those of vgpu doctor are in doctor.md."]
    for title, entries in (("FILES", _FILES), ("ENVIRONMENT", _ENVIRONMENT)):
        lines.append(f".SH {title}")
        for name, text in entries:
            lines += [".TP", rf"\fB{_escaped(name)}\fR", _escaped(text)]
    return "\n".join(lines) + "\n"


def daemon_manual_page(command: click.Command, source: Source) -> str:
    """The page vgpud(8) as roff."""
    day = time.strftime("%Y-%m-%d", time.gmtime(source.epoch_s))
    context = click.Context(command, info_name="vgpud")
    lines = [f'.TH VGPUD 8 "{day}" "vgpu {_escaped(source.version)}" "System Administration"', ".SH NAME"]
    lines += [r"vgpud \- serve GPUs to programs of other machines", ".SH SYNOPSIS", ".B vgpud"]
    lines += [_escaped(" ".join(command.collect_usage_pieces(context))), ".SH DESCRIPTION"]
    lines += [*_paragraphs(inspect.cleandoc(command.help or "")), ".SH OPTIONS"]
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            lines += [".TP", rf"\fB{_escaped(record[0])}\fR", _escaped(record[1])]
    lines += [".SH FILES", ".TP", r"\fB/etc/vgpu/vgpud.toml\fR", "The configuration; every key is commented there."]
    lines += [".SH SEE ALSO", ".BR vgpu (1)"]
    return "\n".join(lines) + "\n"


def _commands(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield all commands except groups, each with its full name, such as "GROUP COMMAND"."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _commands(command, f"{prefix}{name} ")
        elif command is not None:
            yield f"{prefix}{name}", command


def _paragraphs(text: str) -> list[str]:
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        verbatim = paragraph.startswith("\b")
        lines += [".nf" if verbatim else ".P"]
        lines += [_escaped(line) for line in paragraph.removeprefix("\b").strip("\n").splitlines()]
        lines += [".fi"] if verbatim else []
    return lines


def _escaped(text: str) -> str:
    text = text.replace("\\", r"\e").replace("-", r"\-").replace("\n", " ")
    return rf"\&{text}" if text.startswith((".", "'")) else text
