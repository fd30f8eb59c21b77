"""vgpu_guest/_gen/coverage.py: functions that vgpu's libraries export but do not implement, for `vgpu doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.gen.emit_guest import SUFFIXES
from protocol.gen.nvml import NvmlApi, Source
from protocol.gen.runtime import SUFFIXES as RUNTIME_SUFFIXES
from protocol.gen.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Iterable

    from protocol.gen.load import Api

HEADER = '''"""Generated from protocol/spec by protocol/gen; do not edit. What answers NOT_SUPPORTED."""

'''


def _base(name: str, suffixes: Iterable[str]) -> str:
    return next((name[: -len(s)] for s in suffixes if name.endswith(s)), name)


def emit(api: Api, nvml: NvmlApi, runtime: Runtime) -> str:
    bodies = api.implementation()
    lacking = {
        "libcuda.so.1": [n for n in api.exports if n not in bodies and _base(n, SUFFIXES) not in bodies],
        "libnvidia-ml.so.1": [f.name for f in nvml.functions if f.source is Source.NONE],
    }
    for major, names in runtime.exports.items():
        known = runtime.bodies(major)
        soname = "libcudart.so.11.0" if major == 11 else f"libcudart.so.{major}"
        lacking[soname] = [n for n in names if _base(n, RUNTIME_SUFFIXES) not in known]
    out = [HEADER, "NOT_SUPPORTED: dict[str, frozenset[str]] = {\n"]
    for library, lacks in lacking.items():
        out.append(f"    {library!r}: frozenset(\n        (\n")
        out += [f"            {name!r},\n" for name in sorted(lacks)]
        out.append("        )\n    ),\n")
    return "".join(out) + "}\n"
