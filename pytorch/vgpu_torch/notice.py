"""Messages to the user, on stderr, each once."""

from __future__ import annotations

import sys


def explain(text: str) -> None:
    print(f"vgpu: {text}", file=sys.stderr, flush=True)
