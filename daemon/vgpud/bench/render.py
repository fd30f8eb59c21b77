"""A run as JSON, as a table in Markdown, and as a plot in SVG."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING, Any

from .measure import Report, Row, quartiles

if TYPE_CHECKING:
    from collections.abc import Mapping

_WIDTH, _LABELS, _ROW, _TOP, _BOTTOM, _RIGHT = 960, 330, 22, 56, 40, 40
_COLOURS = {"shm": "#1b7837", "unix": "#2166ac", "tcp": "#b2182b", "native": "#444444"}
_OTHER_COLOURS = ("#762a83", "#e08214", "#35978f", "#8c510a")


def as_document(report: Report, machine: Mapping[str, str]) -> dict[str, Any]:
    """Everything measured, as plain data."""
    return {
        "machine": dict(machine),
        "sides": report.sides,
        "rows": [{"name": row.name, "times_ms": row.times_ms} for row in report.rows],
        "skipped": report.skipped,
    }


def as_markdown(report: Report, machine: Mapping[str, str]) -> str:
    """Medians in milliseconds, and ratios to native with their quartiles."""
    has_base = "native" in report.sides
    remoted = [side for side in report.sides if side != "native"]
    head = ["work", *(["native ms"] if has_base else [])]
    for side in remoted:
        head += [f"{side} ms", *([f"{side} / native", "quartiles"] if has_base else [])]
    lines = [", ".join(f"{key}: {value}" for key, value in machine.items()), ""]
    lines += [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in report.rows:
        cells = [row.name, *([_number(row.median_ms("native"))] if has_base else [])]
        for side in remoted:
            cells.append(_number(row.median_ms(side)))
            ratios = row.ratios(side) if has_base else []
            if ratios:
                low, middle, high = quartiles(ratios)
                cells += [f"{middle:.2f}", f"{low:.2f}-{high:.2f}"]
            elif has_base:
                cells += ["", ""]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *(f"- left out: {line}" for line in report.skipped)] if report.skipped else []
    return "\n".join(lines) + "\n"


def _number(value_ms: float | None) -> str:
    return "" if value_ms is None else f"{value_ms:.4f}"


def as_svg(report: Report, title: str) -> str:
    """A logarithmic plot: a line for each piece of work, a mark for each side, whiskers from first to third quartile.

    Ratios to native if it was measured, else milliseconds.
    """
    is_ratio = "native" in report.sides
    sides = [side for side in report.sides if side != "native"] if is_ratio else report.sides
    rows = [(row, marks) for row in report.rows if (marks := _marks(row, sides, is_ratio))]
    values = [value for _, marks in rows for mark in marks.values() for value in mark] or [1.0]
    low = 10 ** (math.floor(math.log10(min(values)) * 2) / 2)
    high = 10 ** (math.ceil(math.log10(max(values)) * 2) / 2)
    high = max(high, low * 10)
    height = _TOP + _ROW * len(rows) + _BOTTOM

    def x(value: float) -> float:
        place = (math.log10(value) - math.log10(low)) / (math.log10(high) - math.log10(low))
        return _LABELS + place * (_WIDTH - _LABELS - _RIGHT)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="8" y="20" font-size="14">{html.escape(title)}</text>',
    ]
    for tick in _ticks(low, high):
        bold = is_ratio and tick == 1
        parts.append(
            f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{_TOP - 8}" y2="{height - _BOTTOM}" '
            f'stroke="{"#000" if bold else "#ddd"}"/>'
            f'<text x="{x(tick):.1f}" y="{height - _BOTTOM + 16}" text-anchor="middle">{tick:g}</text>'
        )
    unit = "remoted / native time (1: as fast; lower is faster)" if is_ratio else "milliseconds"
    parts.append(f'<text x="{_LABELS}" y="{height - 6}">{unit}, median and quartiles</text>')
    colours = _colours(sides)
    for index, side in enumerate(sides):
        at = _LABELS + 150 * index
        parts.append(
            f'<circle cx="{at}" cy="36" r="4" fill="{colours[side]}"/>'
            f'<text x="{at + 8}" y="40">{html.escape(side)}</text>'
        )
    for index, (row, marks) in enumerate(rows):
        middle_y = _TOP + _ROW * index + _ROW / 2
        parts.append(f'<text x="{_LABELS - 8}" y="{middle_y + 4}" text-anchor="end">{html.escape(row.name)}</text>')
        for number, (side, (first, middle, third)) in enumerate(marks.items()):
            y = middle_y + (number - (len(marks) - 1) / 2) * 5
            parts.append(
                f'<line x1="{x(first):.1f}" x2="{x(third):.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colours[side]}"/>'
                f'<circle cx="{x(middle):.1f}" cy="{y:.1f}" r="3" fill="{colours[side]}"/>'
            )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _marks(row: Row, sides: list[str], is_ratio: bool) -> dict[str, tuple[float, float, float]]:
    found = {side: row.ratios(side) if is_ratio else sorted(row.times_ms.get(side, [])) for side in sides}
    return {side: quartiles(values) for side, values in found.items() if values and values[0] > 0}


def _ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high / low <= 1000 else (1,)
    return [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]


def _colours(sides: list[str]) -> dict[str, str]:
    others = [side for side in sides if side not in _COLOURS]
    return _COLOURS | {side: _OTHER_COLOURS[i % len(_OTHER_COLOURS)] for i, side in enumerate(others)}
