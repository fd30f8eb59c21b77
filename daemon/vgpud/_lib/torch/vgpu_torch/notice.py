"""What the person is told, on stderr, once."""

from __future__ import annotations

import sys


def explain(text: str) -> None:
    print(f"vgpu: {text}", file=sys.stderr, flush=True)
