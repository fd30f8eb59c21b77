"""The manual page vgpu(1), from the commands themselves: what they do not say, it does not say."""

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
    ("VGPU_LOG", "error, info or trace: what the libraries write to stderr, or to the file VGPU_LOG_FILE."),
)


def manual_page(group: click.Group, source: Source) -> str:
    """roff for man(1).

    Args:
        group: the guest's `vgpu`.
    """
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
    for title, entries in (("FILES", _FILES), ("ENVIRONMENT", _ENVIRONMENT)):
        lines.append(f".SH {title}")
        for name, text in entries:
            lines += [".TP", rf"\fB{_escaped(name)}\fR", _escaped(text)]
    return "\n".join(lines) + "\n"


def _commands(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command that does something; those of a group under the group's name."""
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
