"""docs/api.md: every function of the driver that has a body, from the description."""

from __future__ import annotations

from itertools import groupby

from protocol.gen.load import Api
from protocol.gen.model import Function, Need, Role
from protocol.spec import MODULES

HEAD = """# The driver's functions

Generated from `protocol/spec` by `make api`; do not edit. What is not listed answers `CUDA_ERROR_NOT_SUPPORTED`.

- **travels**: `local`: answered in the guest from what it holds; `queued`: sent without waiting, an error
  is told by the next call that waits; `waiting`: sent, and answered by the host.
- **needs**: `init`: cuInit; `context`: a current context.
- **by hand**: which halves are hand-written C, where a call travels; the others are generated.
- **simulator**: `no`: only a card answers it.
- **since**: the CUDA version from which drivers export the name, where cuGetProcAddress says so.

"""


def _effects(f: Function) -> str:
    """What it does to objects."""
    said = []
    for p in f.sent:
        if p.role is Role.OUT_HANDLE and p.kind:
            owner = next((q.kind.name for q in f.sent if q.name == p.parent and q.kind), p.kind.within)
            said.append(f"creates {p.kind.name}" + (f" of {owner}" if owner else ""))
        elif p.ends and p.kind:
            said.append(f"destroys {p.kind.name}")
    if f.blocks:
        said.append("may block")
    return ", ".join(said)


def _row(f: Function) -> str:
    need = {Need.NOTHING: "", Need.INIT: "init", Need.CONTEXT: "context"}[f.need]
    by_hand = ", ".join(f.hand_written) if f.travels else ""
    since = f"{f.since // 1000}.{f.since % 1000 // 10}" if f.since else ""
    simulator = "no" if f.travels and not f.simulator else ""
    cells = (f"`{f.name}`", f.travel.value, need, _effects(f), by_hand, simulator, since, f.doc)
    return "| " + " | ".join(cells) + " |"


def emit(api: Api) -> str:
    exported = [f for f in api.functions if f.exported]
    travelling = [f for f in api.functions if f.travels]
    by_hand = [f for f in travelling if f.hand_written]
    out = [HEAD]
    own = sum(not f.exported for f in travelling)
    out.append(
        f"{len(exported)} functions have a body. {len(travelling)} functions travel, {own} of them the channel's own; "
        f"{len(by_hand)} have a half that is written by hand.\n"
    )
    order = {module: i for i, module in enumerate(MODULES)}
    for module, functions in groupby(sorted(exported, key=lambda f: (order[f.module], f.name)), lambda f: f.module):
        out.append(f"\n## {module}\n\n| function | travels | needs | objects | by hand | simulator | since | |\n")
        out.append("|---|---|---|---|---|---|---|---|\n")
        out += [_row(f) + "\n" for f in functions]
    return "".join(out)
