"""`python -m vgpud.worker`: wait for a client, set its backend up, serve it in the C executor until one side ends.

The real driver is started (cuInit) before a client waits: that takes a tenth of a second when no other process on the
host has the GPU's memory mapped (UVM), and a worker that waits is such a process for the others.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import platform
import threading
from dataclasses import dataclass
from typing import Any

from vgpusim import demangle, progress
from vgpusim.codegen.cache import DiskCache
from vgpusim.profiles import profile

from .._gen.api import GROUPS, QUOTAS
from ..devices.mps import PIPE_DIRECTORY
from ..devices.selection import name_of
from . import image_params, landlock, seccomp
from .confine import Files, confine, readable
from .control import NO_LIMIT, Assignment, Control, WarmOrder, send_attached, send_refused

_LINE_NBYTES = 1024
_DEVICES_MAX = 64  # entries of vgx_serve_options.host_devices
_NVML = "libnvidia-ml.so.1"
_NAME_CHARS = 200  # of a kernel's name in a line that must still say what to do
_TELL_S = 1.0
_UNUSABLE = (RuntimeError, OSError, ValueError)  # errors of setting up a backend, with one line that says why


@dataclass(frozen=True, slots=True)
class Backend:
    """A backend that is set up: the table for vgx_serve, and the simulator's Python objects behind it."""

    pointer: Any
    glue: Any = None


def make_parser(prog: str) -> argparse.ArgumentParser:
    """The arguments of a worker, which its loader gets, too."""
    parser = argparse.ArgumentParser(prog=prog)
    parser.add_argument("--backend", choices=("simulator", "cuda"), required=True)
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument("--libcuda", default="libcuda.so.1", help="the driver that sessions will name")
    return parser


def main() -> None:
    """The worker's life."""
    parser = make_parser("vgpud.worker")
    parser.add_argument("--warm", action="store_true", help="create a context before a client comes")
    arguments = parser.parse_args()
    run(arguments.control_fd, backend_name=arguments.backend, libcuda=arguments.libcuda, warm=arguments.warm)


def run(control_fd: int, *, backend_name: str, libcuda: str, warm: bool) -> None:
    """Serve one client, in a process of its own.

    Args:
        control_fd: the socket to vgpud (control.py); takes ownership of it.
        backend_name: "simulator" or "cuda".
        libcuda: the driver that the session will name.
        warm: create a context first, as the control socket requests.
    """
    control = Control(control_fd)
    executor = load(backend_name)
    if backend_name == "simulator":
        executor.lib.vgx_template_open()
    listener = confine(_allowed(backend_name), report=True)
    if listener >= 0:
        control.send_listener(listener)
    files = Files(libcuda)
    backend: Backend | None = None
    if warm:
        order = control.receive_warm_order()
        if order is None:
            return
        try:
            backend = _warm_up(executor, order)
        except _UNUSABLE as error:
            control.send("ready", why=str(error))
            os._exit(1)  # the context exists in part: another worker starts from the beginning
    elif backend_name == "cuda":
        with contextlib.suppress(*_UNUSABLE):  # set up again for its client, which then receives the error
            backend = _start_driver(executor, libcuda)
    control.send("ready")
    assignment = control.receive_assignment()
    if assignment is None:
        return
    files.confine(assignment.cache_dir, executor.lib.vgx_restrict_threads)
    _answer_vgpud(executor, control, assignment)
    code, reason = _serve(executor, assignment, control, backend)
    control.send("ended", reason=reason)
    # Not sys.exit: threads of the backend may be inside Python or a kernel. Ending the process frees what they hold.
    os._exit(code)


def load(backend: str) -> Any:
    """Import what a session needs before a client waits: the executor, and LLVM for the simulator."""
    if backend == "simulator":
        importlib.import_module("vgpusim.glue")
    return importlib.import_module("vgpud._executor")


def prepare(backend: str, gpus: str, libcuda: str) -> None:
    """Build in the launcher what each worker would otherwise build again, in memory that is not shared."""
    seccomp.filter_program(
        platform.machine(), 1, _allowed(backend), report=True
    )  # 1: the worker's pid in its own namespace
    with contextlib.suppress(OSError):  # each worker logs that it has no Landlock
        landlock.rules(readable(libcuda))
    lib = load(backend).lib
    for name in dir(lib):  # cffi makes each function when it is first used
        getattr(lib, name)
    if backend == "simulator" and gpus:
        with contextlib.suppress(ValueError):  # the worker reports the error
            profile.parse_gpus(gpus)


def _allowed(backend: str) -> frozenset[str]:
    if backend != "cuda":
        return frozenset()
    return seccomp.DRIVER | (seccomp.MPS if PIPE_DIRECTORY in os.environ else frozenset())


def _serve(executor: Any, assignment: Assignment, control: Control, backend: Backend | None) -> tuple[int, str]:
    """Serve one client, setting up the backend if needed. Returns the exit code and a line about why it ended."""
    ffi, lib = executor.ffi, executor.lib

    @ffi.callback("void(int, const char *)")  # type: ignore[untyped-decorator]
    def log(level: int, line: Any) -> None:
        """The executor's log lines, from any of its threads; vgpud bounds and escapes them."""
        os.write(2, b"<%d>%s\n" % (level, ffi.string(line, _LINE_NBYTES).replace(b"\n", b" ")))

    @ffi.callback("void(unsigned int, const char *)")  # type: ignore[untyped-decorator]
    def on_denied(count: int, function: Any) -> None:
        """Called by any of the executor's threads."""
        control.send("denied", function=ffi.string(function).decode(), count=count)

    options = ffi.new("struct vgx_serve_options *")
    known = {
        "pinned-fd": lib.VGX_FEATURE_PINNED_FD,
        "ring": lib.VGX_FEATURE_RING,
        "progress": lib.VGX_FEATURE_PROGRESS,
    }
    options.features = sum(bit for name, bit in known.items() if name in assignment.features)
    if assignment.region is not None:
        options.features |= lib.VGX_FEATURE_REGION
        options.region_fd = assignment.region_fd
        options.region_offset, options.region_nbytes = assignment.region
    options.spin_us = assignment.limits["spin_us"]
    options.host_limit_nbytes = assignment.limits["host_nbytes"]
    share = ffi.NULL if assignment.share is None else ffi.new("char[]", assignment.share.encode())
    options.share, options.host_limit_of_share = share, "host_nbytes" in assignment.quotas
    for number, name in enumerate(QUOTAS, 1):
        options.quotas[number] = assignment.quotas.get(name, 0)
    options.calls_per_s = assignment.quotas.get("calls_per_s", 0)
    options.denied = sum(1 << number for number, name in enumerate(GROUPS) if name in assignment.denied)
    options.on_denied, options.log = on_denied, log
    host_devices = ffi.new("uint8_t[]", _DEVICES_MAX)
    for index, device in enumerate(assignment.devices):
        host_devices[index] = device["index"]
    options.host_devices = host_devices
    try:
        try:
            backend = backend or _set_up(executor, assignment)
            if assignment.ledger_fd >= 0:
                options.ledger = lib.vgx_ledger_map(assignment.ledger_fd, assignment.ledger_row)
                options.ledger_row = assignment.ledger_row
                if options.ledger == ffi.NULL:
                    raise RuntimeError("the ledger of all sessions' memory cannot be mapped")
                if backend.glue is not None:
                    for index in range(len(assignment.devices)):
                        lib.vgx_sim_set_host_number(index, host_devices[index])
                    lib.vgx_sim_set_ledger(options.ledger, assignment.ledger_row, assignment.memory_limit_nbytes)
                elif assignment.memory_limit_nbytes != NO_LIMIT:
                    backend = _limit_memory(executor, assignment, backend, options)
            if backend.glue is not None:
                lib.vgx_sim_set_epoch(assignment.epoch)
                backend.glue.set_cache(_kernel_cache(assignment))
                compile_s = assignment.limits["kernel_compile_ms"] / 1000
                backend.glue.set_compile_limit(compile_s, lambda what: _end_compiling(lib, control, what, compile_s))
                lib.vgx_sim_set_watchdog(assignment.limits["kernel_run_ms"])
                lib.vgx_sim_tools = assignment.limits["tools"]
                lib.vgx_sim_counts = bool(assignment.limits["counts"])
            options.backend = backend.pointer
        except _UNUSABLE as error:
            reason = f"the {assignment.backend} backend cannot be set up: {error}"
            control.send("attached")
            send_refused(assignment.client_fd, reason)
            return 1, reason
        control.send("attached")  # first: from here on vgpud gives the client to no other worker
        send_attached(assignment.client_fd, assignment.session, assignment.region)
    except OSError as error:
        return 0, f"the client left before it was served ({error.strerror or error})"
    if assignment.images_fd >= 0:
        lib.vgx_image_cache_set(assignment.images_fd)
    if assignment.meter_fd >= 0:
        lib.vgx_meter_set(assignment.meter_fd)
    if assignment.recording_fd >= 0:
        lib.vgx_recording_set(assignment.recording_fd, assignment.limits["recording_nbytes"])
    if assignment.turns_fd >= 0 and (turns := lib.vgx_turns_map(assignment.turns_fd)) != ffi.NULL:
        count = len(assignment.devices)
        lib.vgx_gate_set(turns, assignment.turns_tenant, assignment.ledger_row, host_devices, count)
    if assignment.ipc_fd >= 0:
        lib.vgx_ipc_set(assignment.ipc_fd)
    progress.tell = lambda line: lib.vgx_progress(line, False)
    ended = int(lib.vgx_serve(assignment.client_fd, options))
    lib.vgx_meter_finish()
    if assignment.limits["tools"]:
        lib.vgx_sim_report_totals()
    if assignment.limits["counts"]:
        lib.vgx_sim_count_unfinished()
    reason = ffi.string(lib.vgx_reason_text()).decode(errors="replace")
    return (0 if ended == lib.VGX_ENDED_BY_CLIENT else 1), reason


def _limit_memory(executor: Any, assignment: Assignment, backend: Backend, options: Any) -> Backend:
    """The real driver's functions, with the tenant's limit of memory."""
    devices = ",".join(name_of(device) for device in assignment.inventory["devices"])
    beside = os.path.join(os.path.dirname(assignment.libcuda), _NVML)
    nvml = beside if os.path.isabs(assignment.libcuda) and os.path.exists(beside) else _NVML
    executor.lib.vgx_usage_init(nvml.encode(), devices.encode())
    pointer = executor.lib.vgx_limit_backend(
        backend.pointer,
        options.ledger,
        assignment.ledger_row,
        assignment.memory_limit_nbytes,
        options.host_devices,
        len(assignment.devices),
    )
    return Backend(pointer, backend.glue)


def _end_compiling(lib: Any, control: Control, what: str, limit_s: float) -> None:
    """End this process, and with it the compilation that is over its limit; tell the client and vgpud why."""
    reason = (
        f"{demangle.text(what)[:_NAME_CHARS]} has used {limit_s:g} s of processor time, so the session ends: give the "
        "kernel fewer branches or less code, or have the host's administrator raise limits.kernel_compile_s in "
        "vgpud.toml"
    )
    os.write(2, b"<4>%s\n" % reason.encode(errors="replace"))
    control.send("ended", reason=reason)
    # In another thread, as a client that does not read must not keep this process.
    telling = threading.Thread(target=lib.vgx_progress, args=(reason.encode(errors="replace"), True), daemon=True)
    telling.start()
    telling.join(_TELL_S)
    os._exit(1)


def _kernel_cache(assignment: Assignment) -> DiskCache:
    """Where the simulator keeps what it compiles for this tenant."""
    return DiskCache(assignment.cache_dir, cap_nbytes=assignment.limits["kernel_cache_nbytes"])


def _answer_vgpud(executor: Any, control: Control, assignment: Assignment) -> None:
    """From now on end with vgpud, and tell it the bytes in use on each device; with the real driver what counts
    towards the share's limit, or nothing, as vgpud asks its NVML instead. Raises OSError.
    """
    ffi, lib = executor.ffi, executor.lib
    used = ffi.NULL
    if assignment.backend == "simulator":
        used = ffi.addressof(lib, "vgx_sim_memory_used")
    elif assignment.memory_limit_nbytes != NO_LIMIT:
        used = ffi.addressof(lib, "vgx_charge_used")
    if error := lib.vgx_control_start(control.fileno(), used, len(assignment.devices)):
        raise OSError(error, os.strerror(error))


def _warm_up(executor: Any, order: WarmOrder) -> Backend:
    """A backend with a context on one device. Raises RuntimeError, OSError or ValueError, with a one-line reason."""
    backend = _set_up(executor, order)
    pointer = executor.lib.vgx_warm_backend(backend.pointer, order.device)
    if pointer == executor.ffi.NULL:
        raise RuntimeError(f"no context could be made on device {order.device}")
    return Backend(pointer, backend.glue)


def _set_up(executor: Any, order: Assignment | WarmOrder) -> Backend:
    """The backend that an order names. Raises RuntimeError, OSError or ValueError, with a one-line reason."""
    if order.backend == "cuda":
        return _start_driver(executor, order.libcuda)
    glue = importlib.import_module("vgpusim.glue")
    return Backend(*glue.install(executor.ffi, executor.lib, profile.parse_gpus(order.gpus), order.inventory, None))


def _start_driver(executor: Any, libcuda: str) -> Backend:
    """The real driver after cuInit. Raises RuntimeError, with a one-line reason."""
    ffi = executor.ffi
    why = ffi.new("const char **")
    image_params.install(ffi, executor.lib)
    pointer = executor.lib.vgx_cuda_backend(libcuda.encode(), why)
    if pointer == ffi.NULL:
        raise RuntimeError(ffi.string(why[0]).decode(errors="replace") if why[0] != ffi.NULL else "no reason given")
    return Backend(pointer)
