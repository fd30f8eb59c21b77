"""`python -m protocol.gen [--write-lock | --halves]`: write all that derives from the specification."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from protocol.gen import (
    emit_backend,
    emit_coverage,
    emit_cupti,
    emit_enums,
    emit_guest,
    emit_host,
    emit_nvml,
    emit_operations,
    emit_python,
    emit_records,
    emit_reference,
    emit_runtime,
    halves,
    nvml,
)
from protocol.gen.load import ROOT, load
from protocol.gen.model import SpecError
from protocol.gen.runtime import load_runtime


def write(path: Path, text: str) -> None:
    """Write only what changed, so that make rebuilds only what must be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m protocol.gen", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT.parent / "build/gen")
    parser.add_argument("--python", type=Path, default=ROOT.parent / "daemon/vgpud/_gen")
    parser.add_argument("--guest", type=Path, default=ROOT.parent / "guest/vgpu_guest/_gen")
    parser.add_argument("--simulator", type=Path, default=ROOT.parent / "daemon/vgpusim/_gen")
    parser.add_argument("--reference", type=Path, help="write the reference page there, too")
    parser.add_argument("--write-lock", action="store_true", help="give new functions an opcode in ids.lock")
    parser.add_argument("--halves", action="store_true", help="only tell which halves are written by hand")
    options = parser.parse_args()
    try:
        api = load(options.write_lock)
        if options.halves:
            print(halves.report(api), end="")
            return 0
        enums = emit_enums.load()
        files = {
            "vgw_records.h": emit_records.emit(api),
            "vgw_enums.h": emit_enums.emit_header(enums),
            "vgs_api.h": emit_guest.emit_api(api),
            "vgs_marshal.c": emit_guest.emit_marshal(api),
            "vgs_forward.c": emit_guest.emit_forward(api),
            "vgs_exports.c": emit_guest.emit_exports(api),
            "vgs_proc_table.h": emit_guest.PROC_HEADER,
            "vgs_proc_table.c": emit_guest.emit_procs(api),
            "libcuda.map": emit_guest.emit_map(api),
            "vgx_backend.h": emit_backend.emit_backend(api),
            "vgx_sim_table.h": emit_backend.emit_simulator(api),
            "vgx_custom.h": emit_host.emit_custom(api),
            "vgx_dispatch.c": emit_operations.emit_dispatch(api),
        }
        nvml_api = nvml.load()
        files |= {f"nvml/{name}": text for name, text in emit_nvml.emit_all(nvml_api).items()}
        runtime_api = load_runtime(api)
        files |= {f"cudart/{name}": text for name, text in emit_runtime.emit(runtime_api).items()}
        files |= {f"cupti/{name}": text for name, text in emit_cupti.emit().items()}
    except SpecError as error:
        print(f"protocol: {error}", file=sys.stderr)
        return 1
    for name, text in files.items():
        write(options.out / name, text)
    for folder in (options.python, options.guest, options.simulator):
        write(folder / "__init__.py", '"""Generated Python: built, not committed."""\n')
    write(options.simulator / "enums.py", emit_enums.emit_python(enums))
    write(options.python / "api.py", emit_python.emit(api))
    write(options.python / "nvml.py", emit_nvml.emit_python(nvml_api))
    write(options.guest / "coverage.py", emit_coverage.emit(api, nvml_api, runtime_api))
    if options.reference:
        write(options.reference, emit_reference.emit(api, nvml_api))
    return 0


if __name__ == "__main__":
    sys.exit(main())
