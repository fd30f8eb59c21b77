"""Plain tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vgpu_guest.doctor.report import printable

if TYPE_CHECKING:
    from collections.abc import Sequence


def format_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns as wide as their widest cell, two spaces apart, no trailing blanks."""
    cells = [list(header), *([printable(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def format_nbytes(nbytes: int) -> str:
    """A size in MiB, as nvidia-smi shows it."""
    return f"{nbytes // (1024 * 1024)} MiB"
