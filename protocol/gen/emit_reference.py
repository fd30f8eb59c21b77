"""docs/api.md: every function of the driver that has a body, from the description."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import groupby

from protocol.gen.emit_guest import SUFFIXES
from protocol.gen.emit_nvml import absent_nvml
from protocol.gen.load import Api
from protocol.gen.model import Function, Need, Role, SpecError
from protocol.gen.nvml import NvmlApi
from protocol.spec import MODULES
from protocol.spec.absent import REASONS

HEAD = """# The driver's functions

Generated from `protocol/spec` by `make api`; do not edit. Functions without a body answer
`CUDA_ERROR_NOT_SUPPORTED`; the last section says why.

- **travels**: `local`: answered in the guest from what it holds; `queued`: sent without waiting, an error
  is told by the next call that waits; `waiting`: sent, and answered by the host.
- **needs**: `init`: cuInit; `context`: a current context.
- **by hand**: which halves are hand-written C, where a call travels; the others are generated.
- **simulator**: `no`: only a card answers it.
- **since**: the CUDA version from which drivers export the name, where cuGetProcAddress says so.

"""


def absent(api: Api) -> dict[str, list[str]]:
    """Exported functions without a body, by the reason. Raises SpecError for one that has none."""
    bodies = api.implementation()
    found: dict[str, list[str]] = {reason: [] for reason, _ in REASONS}
    for name in api.exports:
        base = next((name[: -len(s)] for s in SUFFIXES if name.endswith(s)), name)
        if name in bodies or base in bodies:
            continue
        reason = next((why for why, names in REASONS if any(fnmatchcase(base, n) for n in names.split())), None)
        if reason is None:
            raise SpecError(f"{name}: neither a body nor a reason (protocol/spec/absent.py)")
        found[reason].append(name)
    return {reason: names for reason, names in found.items() if names}


def _reasons(without: dict[str, list[str]]) -> list[str]:
    rows = [f"| {why} | {' '.join(f'`{name}`' for name in sorted(names))} |\n" for why, names in without.items()]
    return ["| why | functions |\n|---|---|\n", *rows]


def _effects(f: Function) -> str:
    """The function's effects on objects."""
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


def emit(api: Api, nvml: NvmlApi) -> str:
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
    without = absent(api)
    out.append(f"\n## Without a body: {sum(map(len, without.values()))} of {len(api.exports)}\n\n")
    out += _reasons(without)
    without = absent_nvml(nvml)
    out.append(f"\n## NVML without an answer: {sum(map(len, without.values()))} of {len(nvml.functions)}\n\n")
    out += _reasons(without)
    return "".join(out)
