"""What is kept of a batch of sessions that ended by a signal (c/vgt_fuzz_evidence.h), beside its inputs: the report of
the process with functions and lines for its addresses, and the sanitizer's report."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path


def report_path(crash: Path) -> Path:
    """The report of the process whose inputs are in `crash`."""
    return crash.with_name(crash.name + ".txt")


def sanitizer_options(options: dict[str, str], crash: Path) -> dict[str, str]:
    """`options`, with which the sanitizer's report is a file beside `crash`; its name ends with the process's id."""
    path = crash.with_suffix(".sanitizer")
    return {name: f"{value}:log_path={path}" for name, value in options.items()}


def output(*command: str, given: str | None = None) -> list[str]:
    """Lines that a command prints; none if it fails, or is not there."""
    try:
        return subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return []


def complete(crash: Path, program: Path) -> None:
    """Append to each frame of the program's in the report its function and line. Without a report, the process could
    not run the handler of its signal: then the kernel's log may say why ("overflowed sigaltstack")."""
    report = report_path(crash)
    if not report.exists():
        said = [line for line in output("dmesg") if f"{program.name}[" in line]
        lines = ["no report by the process, perhaps one by its sanitizer; of the kernel's log:", *said[-20:], ""]
        report.write_text("\n".join(lines))
        return
    frame = re.compile(re.escape(program.name) + r"\(\+(0x[0-9a-f]+)\)\[0x[0-9a-f]+\]$", re.MULTILINE)
    text = report.read_text(errors="replace")
    offsets = sorted(set(frame.findall(text)))
    # the instruction after a call may belong to another line
    calls = "\n".join(hex(int(offset, 16) - 1) for offset in offsets)
    told = output("addr2line", "-e", str(program), "-f", "-s", given=calls)
    names = {offset: f"{name} at {line}" for offset, name, line in zip(offsets, told[::2], told[1::2], strict=False)}
    report.write_text(frame.sub(lambda found: f"{found[0]} {names.get(found[1], '')}".rstrip(), text))
