"""A diagnosis as text: one verdict line, the evidence, and one command that repairs the fault, or advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .diagnosis import Diagnosis


def lines(diagnosis: Diagnosis) -> Iterator[str]:
    """The report, ready to print."""
    finding = diagnosis.finding
    label = diagnosis.subject.label if diagnosis.subject is not None else "vgpu doctor"
    if finding.kind == "ok":
        yield f"OK: {label} reaches the vGPU: {finding.text}"
    else:
        yield f"{finding.kind}: {finding.text}"
    for text in diagnosis.evidence[1 if finding.kind == "ok" else 0 :]:
        yield f"  {text}"
    for other in diagnosis.others:
        yield f"  also {other.kind}: {other.text}"
    for text in diagnosis.warnings:
        yield f"  note: {text}"
    if finding.mend:
        yield f"mend: {finding.mend}"
    if finding.advice:
        yield f"next: {finding.advice}"


def printable(text: str) -> str:
    """`text` without control characters: text from another program or machine must not control the terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def shortened(names: list[str], most: int) -> str:
    """The first `most` names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
