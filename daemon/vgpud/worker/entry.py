"""`python -m vgpud.worker`: wait for a client, set its backend up, serve it in the C executor until one side ends."""

from __future__ import annotations

import argparse
import importlib
import os
from dataclasses import dataclass
from typing import Any

from ..sim import profile
from ..sim.cache import DiskCache
from .confine import Files, confine, load_driver
from .control import Assignment, Control, WarmOrder, send_attached, send_refused

_LINE_NBYTES = 1024
_UNUSABLE = (RuntimeError, OSError, ValueError)  # what setting a backend up raises, with a line of why


@dataclass(frozen=True, slots=True)
class Backend:
    """A backend that is set up: what vgx_serve takes, and, of the simulator, what stands behind it."""

    pointer: Any
    glue: Any = None
    is_confined: bool = False  # it has threads already, which are to open no files either


def main() -> None:
    """The worker's life."""
    parser = argparse.ArgumentParser(prog="vgpud.worker")
    parser.add_argument("--backend", choices=("simulator", "cuda"), required=True)
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument("--libcuda", default="", help="the driver that the session will name; empty: not known yet")
    parser.add_argument("--warm", action="store_true", help="make a context first, as the control socket says")
    arguments = parser.parse_args()
    control = Control(arguments.control_fd)
    confine()
    executor = _load(arguments.backend)
    warm: Backend | None = None
    if arguments.warm:
        order = control.receive_warm_order()
        if order is None:
            return
        try:
            warm = _warm_up(executor, order)
        except _UNUSABLE as error:
            control.send("ready", why=str(error))
            os._exit(1)  # half made: the next worker starts from nothing
    elif arguments.backend == "cuda" and arguments.libcuda:
        load_driver(arguments.libcuda)
    files = Files(arguments.libcuda) if arguments.libcuda else None
    control.send("ready")
    assignment = control.receive_assignment()
    if assignment is None:
        return
    if warm is None or not warm.is_confined:
        files = files or Files(assignment.libcuda)
        files.confine(assignment.cache_dir, assignment.limits["kernel_cache_nbytes"])
    control.exit_with_vgpud(lambda: _memory_used(executor.lib, assignment))
    code, reason = _serve(executor, assignment, control, warm)
    control.send("ended", reason=reason)
    # Not sys.exit: threads of the backend may be inside Python or a kernel. Ending the process frees what they hold.
    os._exit(code)


def _load(backend: str) -> Any:
    """Import what a session needs while nobody waits for it: the executor, and LLVM for the simulator."""
    if backend == "simulator":
        importlib.import_module("vgpud.sim.glue")
    return importlib.import_module("vgpud._executor")


def _serve(executor: Any, assignment: Assignment, control: Control, warm: Backend | None) -> tuple[int, str]:
    """Everything this process knows of the C executor. Returns the exit code and one line that says why it ended."""
    ffi, lib = executor.ffi, executor.lib

    @ffi.callback("void(int, const char *)")  # type: ignore[untyped-decorator]
    def log(level: int, line: Any) -> None:
        """The executor's log lines, from any of its threads; vgpud bounds and escapes them."""
        os.write(2, b"<%d>%s\n" % (level, ffi.string(line, _LINE_NBYTES).replace(b"\n", b" ")))

    options = ffi.new("struct vgx_serve_options *")
    known = {"pinned-fd": lib.VGX_FEATURE_PINNED_FD, "ring": lib.VGX_FEATURE_RING}
    options.features = sum(bit for name, bit in known.items() if name in assignment.features)
    if assignment.region is not None:
        options.features |= lib.VGX_FEATURE_REGION
        options.region_fd = assignment.region_fd
        options.region_offset, options.region_nbytes = assignment.region
    options.spin_us = assignment.limits["spin_us"]
    options.log = log
    try:
        try:
            if warm is None:
                order, cache = assignment, _kernel_cache(assignment)
                backend = _set_up_backend(ffi, lib, order.backend, order.gpus, order.inventory, order.libcuda, cache)
                options.backend = backend.pointer
            else:
                options.backend = warm.pointer
                if warm.glue is not None:
                    warm.glue.set_cache(_kernel_cache(assignment))
        except _UNUSABLE as error:
            reason = f"the {assignment.backend} backend cannot be set up: {error}"
            send_refused(assignment.client_fd, reason)
            return 1, reason
        send_attached(assignment.client_fd, assignment.session, assignment.region)
    except OSError as error:
        return 0, f"the client left before it was served ({error.strerror or error})"
    control.send("attached")
    if assignment.images_fd >= 0:
        lib.vgx_image_cache_set(assignment.images_fd)
    if assignment.ipc_fd >= 0:
        lib.vgx_ipc_set(assignment.ipc_fd)
    ended = int(lib.vgx_serve(assignment.client_fd, options))
    reason = ffi.string(lib.vgx_reason_text()).decode(errors="replace")
    return (0 if ended == lib.VGX_ENDED_BY_CLIENT else 1), reason


def _kernel_cache(assignment: Assignment) -> DiskCache:
    """Where the simulator keeps what it compiles for this tenant."""
    return DiskCache(assignment.cache_dir, cap_nbytes=assignment.limits["kernel_cache_nbytes"])


def _memory_used(lib: Any, assignment: Assignment) -> list[int] | None:
    """Bytes in use on each device. The real driver's own NVML tells them to vgpud: there nothing is said here."""
    if assignment.backend != "simulator":
        return None
    return [lib.vgx_sim_memory_used(index) for index in range(len(assignment.devices))]


def _warm_up(executor: Any, order: WarmOrder) -> Backend:
    """A backend with a context on one device. Raises RuntimeError, OSError or ValueError, with a line of why.

    The real driver starts threads, so its files are confined first, and to less than a tenant's: without a cache.
    The simulator starts none, and is confined when its tenant, and so its cache, is known.
    """
    is_confined = order.backend != "simulator"
    if is_confined:
        Files(order.libcuda).confine(None, 0)
    ffi, lib = executor.ffi, executor.lib
    backend = _set_up_backend(ffi, lib, order.backend, order.gpus, order.inventory, order.libcuda, None)
    pointer = lib.vgx_warm_backend(backend.pointer, order.device)
    if pointer == ffi.NULL:
        raise RuntimeError(f"no context could be made on device {order.device}")
    return Backend(pointer, backend.glue, is_confined)


def _set_up_backend(
    ffi: Any, lib: Any, name: str, gpus: str, inventory: dict[str, Any], libcuda: str, cache: DiskCache | None
) -> Backend:
    """Raises RuntimeError, OSError or ValueError, with a line of why."""
    if name == "simulator":
        glue = importlib.import_module("vgpud.sim.glue")
        return Backend(*glue.install(ffi, lib, profile.parse_gpus(gpus), inventory, cache))
    why = ffi.new("const char **")
    backend = lib.vgx_cuda_backend(libcuda.encode(), why)
    if backend == ffi.NULL:
        raise RuntimeError(ffi.string(why[0]).decode(errors="replace") if why[0] != ffi.NULL else "no reason given")
    return Backend(backend)
