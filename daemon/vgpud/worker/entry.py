"""`python -m vgpud.worker`: wait for a client, set its backend up, serve it in the C executor until one side ends."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

from ..sim import profile
from .control import Assignment, Control, prefer_to_die, send_attached


def main() -> None:
    """The worker's life."""
    parser = argparse.ArgumentParser(prog="vgpud.worker")
    parser.add_argument("--backend", choices=("simulator", "cuda"), required=True)
    parser.add_argument("--control-fd", type=int, required=True)
    arguments = parser.parse_args()
    control = Control(arguments.control_fd)
    prefer_to_die()
    executor = _load(arguments.backend)
    control.send("ready")
    assignment = control.receive_assignment()
    if assignment is None:
        return
    control.exit_with_vgpud()
    code, reason = _serve(executor, assignment, control)
    control.send("ended", reason=reason)
    sys.exit(code)


def _load(backend: str) -> Any:
    """Import what a session needs while nobody waits for it: the executor, and LLVM for the simulator."""
    if backend == "simulator":
        importlib.import_module("vgpud.sim.glue")
    return importlib.import_module("vgpud._executor")


def _serve(executor: Any, assignment: Assignment, control: Control) -> tuple[int, str]:
    """Everything this process knows of the C executor. Returns the exit code and one line that says why it ended."""
    ffi, lib = executor.ffi, executor.lib
    if assignment.backend == "simulator":
        glue = importlib.import_module("vgpud.sim.glue")
        profiles = profile.parse_gpus(assignment.gpus)
        backend = glue.install(ffi, lib, profiles, assignment.inventory, Path(assignment.cache_dir))
    else:
        backend = lib.vgx_cuda_backend(assignment.libcuda.encode())
    if backend == ffi.NULL:
        return 1, f"the {assignment.backend} backend cannot be set up"
    options = ffi.new("struct vgx_serve_options *")
    options.backend = backend
    options.epoch = assignment.epoch
    options.record_nbytes = assignment.limits["record_nbytes"]
    options.device_count = len(assignment.devices)
    send_attached(assignment.client_fd, assignment.session)
    control.send("attached")
    code = int(lib.vgx_serve(assignment.client_fd, options))
    return (1 if code else 0), ffi.string(lib.vgx_reason_text(code)).decode(errors="replace")
