"""`vgpu run`: run a program with GPUs, from a running vgpud or from a private one."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
from vgpu_guest.cudart import FOLDER, FOLDERS, find_runtimes
from vgpu_guest.cupti import FOLDER as CUPTI_FOLDER
from vgpu_guest.cupti import FOLDERS as CUPTI_FOLDERS
from vgpu_guest.cupti import find_profilers
from vgpu_guest.doctor.endpoint import find
from vgpu_guest.libraries import LIBRARIES
from vgpu_guest.preload import resolve_program, winning_rpath

from ..endpoint import EndpointError, connect, parse_endpoint
from . import steering
from .descendants import Descendants
from .fail import fail, reported
from .option import EndpointType
from .private_daemon import PrivateDaemon, PrivateDaemonError
from .status import ExitStatus
from .torch_overlay import is_wanted, put_on_path
from .trace import traced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..endpoint import Endpoint

DEFAULT_GPU = "forward"  # the one on which the libraries of CuPy and JAX run as they come: docs/simulator.md
_KILL_AFTER_S = 5.0
_CONNECT_TIMEOUT_S = 2.0
_FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)


class _RunCommand(click.Command):
    """--trace is a flag and may have a value: `--trace ./program` must not take the program for one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """click's hook."""
        end = args.index("--") if "--" in args else len(args)
        given = [f"--trace-as={a.partition('=')[2]}" if a.startswith("--trace=") else a for a in args[:end]]
        return super().parse_args(ctx, given + args[end:])


@click.command(cls=_RunCommand, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--gpu", "gpus", metavar="PROFILES", help='Simulated devices for a private vgpud, as in "h100:2,t4".')
@click.option(
    "--endpoint", type=EndpointType(), envvar="VGPU_ENDPOINT", help="Use this vgpud instead of a private one."
)
@click.option("--config", type=click.Path(exists=True, path_type=Path), help="Configuration of the private vgpud.")
@click.option("--trace", is_flag=True, help="Log every driver call but look-ups of functions (--trace=all: these too).")
@click.option("--trace-as", type=click.Choice(["calls", "all", "summary", "json"]), hidden=True)
@click.option("--verbose", is_flag=True, help="Say which libraries and variables the program is given, and for whom.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    help="End the program, and all that it started, after this many seconds.",
)
@click.option("--preload/--no-preload", default=None, help="Preload libcuda.so.1 (default: when an RPATH would win).")
@click.option(
    "--cudart",
    type=click.Choice(["auto", "ours", "theirs"]),
    default="auto",
    help="Whose libcudart: NVIDIA's where the program finds it, else vgpu's (auto); vgpu's; NVIDIA's or none.",
)
@click.option(
    "--cupti/--no-cupti",
    "cupti",
    default=True,
    help="vgpu's libcupti in the place of the NVIDIA's that the program would find: profilers show the device's work.",
)
@click.option(
    "--torch/--no-torch",
    "torch",
    default=True,
    help="On a simulated device PyTorch's own kernels run on the CPU, where the program's Python has torch.",
)
@click.option(
    "--library-dir",
    type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
    default=LIBRARIES,
    help="The directory that holds libcuda.so.1 (default: the one installed with vgpu).",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    gpus: str | None,
    endpoint: Endpoint | None,
    config: Path | None,
    trace: bool,
    trace_as: str | None,
    verbose: bool,
    timeout_s: float | None,
    preload: bool | None,
    cudart: str,
    cupti: bool,
    torch: bool,
    library_dir: Path,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND with GPUs; exits with its exit code.

    Without --endpoint (or VGPU_ENDPOINT) a private vgpud simulates the devices, for this program only, by default one
    that runs the PTX of any library; a guest's package has none, and the program goes to the endpoint of guest.conf.
    --trace=summary prints a table at the end: calls, time and waits by function; --trace=json the same as JSON.
    """
    if gpus is not None and endpoint is not None:
        fail("--gpu is for a private vgpud: leave --endpoint and VGPU_ENDPOINT out", ExitStatus.USAGE)
    library = library_dir / "libcuda.so.1"
    if not library.exists():
        fail(f"{library} is missing: this build has no guest library (run `make shim`)", ExitStatus.SOFTWARE)
    with ExitStack() as stack:
        kind = trace_as or ("calls" if trace else "")
        if endpoint is not None:
            with reported(endpoint):
                connect(endpoint, timeout_s=_CONNECT_TIMEOUT_S).close()  # to say it here, not in the program's own way
        elif gpus is None and find_spec("vgpud.serving") is None:
            pass  # the libraries find the endpoint as in any program
        else:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                signal.signal(number, interrupted)  # so that the private vgpud is stopped on the way out
            try:
                default = None if config is not None else DEFAULT_GPU
                endpoint = stack.enter_context(PrivateDaemon(gpus or default, config=config)).endpoint
            except PrivateDaemonError as error:
                fail(str(error), ExitStatus.UNAVAILABLE)
        environment = environment_of(command[0], endpoint, library, preload)
        report = stack.enter_context(traced(kind, environment))
        choose_cudart(cudart, command[0], environment, library_dir / FOLDER, verbose)
        choose_cupti(cupti, command[0], environment, library_dir / CUPTI_FOLDER, verbose)
        choose_torch(torch, command[0], environment, library_dir)
        steer(endpoint, environment, command[0], verbose, library_dir)
        code = supervise(command, environment, timeout_s)
        report()
    raise SystemExit(code)


def interrupted(number: int, _frame: object) -> NoReturn:
    """A handler of signals that lets the private vgpud be stopped on the way out."""
    raise SystemExit(ExitStatus.SIGNAL_BASE + number)


def environment_of(program: str, endpoint: Endpoint | None, library: Path, preload: bool | None) -> dict[str, str]:
    """The program's environment: where vgpud is, and our libraries before others."""
    environment = dict(os.environ)

    def put_first(key: str, value: Path) -> None:
        rest = environment.get(key)
        environment[key] = f"{value}:{rest}" if rest else str(value)

    if endpoint is not None:
        environment["VGPU_ENDPOINT"] = str(endpoint)
    put_first("LD_LIBRARY_PATH", library.parent)
    if preload is None:
        binary = resolve_program(program, os.environ.get("PATH", os.defpath))
        other = winning_rpath(binary) if binary is not None else None
        if other is not None:
            click.echo(f"vgpu run: preloading libcuda.so.1, for an RPATH leads to {other}", err=True)
        preload = other is not None
    if preload:
        put_first("LD_PRELOAD", library)
    return environment


def choose_cudart(choice: str, program: str, environment: dict[str, str], folder: Path, verbose: bool) -> None:
    """Put vgpu's runtime libraries on the program's path where it finds none; say which are used if asked."""
    theirs = find_runtimes(program, os.environ) if choice == "auto" else dict.fromkeys(FOLDERS)
    wanted = [] if choice == "theirs" else [soname for soname, found in theirs.items() if found is None]
    ours = {soname: folder / FOLDERS[soname] for soname in wanted if (folder / FOLDERS[soname] / soname).exists()}
    if choice == "ours" and len(ours) < len(wanted):
        fail(f"{folder} lacks a libcudart: build it with `make shim`", ExitStatus.SOFTWARE)
    if ours:
        entries = [*map(str, ours.values()), environment["LD_LIBRARY_PATH"]]
        environment["LD_LIBRARY_PATH"] = ":".join(entries if choice == "ours" else [entries[-1], *entries[:-1]])
    if verbose or environment.get("VGPU_LOG") in ("info", "trace"):
        for soname, found in theirs.items():
            where = f"vgpu's, in {ours[soname]}" if soname in ours else found or "not given by vgpu"
            click.echo(f"vgpu run: {soname} is {where}", err=True)


def choose_cupti(wanted: bool, program: str, environment: dict[str, str], folder: Path, verbose: bool) -> None:
    """Preload vgpu's libcupti where the program would find NVIDIA's, and have it found by name where it finds none."""
    ours = {soname: folder / major / soname for soname, major in CUPTI_FOLDERS.items()}
    ours = {soname: file for soname, file in ours.items() if wanted and file.exists()}
    if not ours:
        return
    theirs = find_profilers(program, os.environ)
    preloaded = [str(file) for soname, file in ours.items() if theirs[soname] is not None]
    environment["LD_PRELOAD"] = ":".join(filter(None, [environment.get("LD_PRELOAD", ""), *preloaded]))
    if not environment["LD_PRELOAD"]:
        del environment["LD_PRELOAD"]
    missing = [str(file.parent) for soname, file in ours.items() if theirs[soname] is None]
    first, *rest = environment["LD_LIBRARY_PATH"].split(":")
    environment["LD_LIBRARY_PATH"] = ":".join([first, *missing, *rest])
    if verbose or environment.get("VGPU_LOG") in ("info", "trace"):
        for soname, file in ours.items():
            found = theirs[soname]
            click.echo(f"vgpu run: {soname} is vgpu's, in {file.parent}{f', not {found}' if found else ''}", err=True)


def choose_torch(wanted: bool, program: str, environment: dict[str, str], library_directory: Path) -> None:
    """Give the program vgpu-torch, unless it is switched off or the program's Python has no torch."""
    if not wanted:
        environment["VGPU_TORCH"] = "0"  # also for one that is installed in the program's Python
    if environment.get("VGPU_TORCH") != "0" and is_wanted(program, os.environ):
        put_on_path(environment, library_directory)


def steer(
    endpoint: Endpoint | None,
    environment: dict[str, str],
    program: str,
    verbose: bool,
    library_directory: Path = LIBRARIES,
) -> None:
    """Have programs that assemble kernels on their own hand PTX to simulated devices."""
    found = find(environment)
    try:
        endpoint = endpoint or parse_endpoint(str(found["url"]))
    except EndpointError:
        return  # the program's own cuInit says it
    capabilities = steering.simulated_capabilities(endpoint, found["token"] or None)
    made = steering.apply(environment, capabilities, program, library_directory)
    if verbose:
        for setting in made:
            click.echo(f"vgpu run: {setting.name}={setting.value} ({setting.reason})", err=True)


def supervise(command: Sequence[str], environment: dict[str, str], timeout_s: float | None) -> int:
    """Start the program, pass signals on to it, and return its exit code (128 + signal if it died of one)."""
    awaited = {*_FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    descendants = None if timeout_s is None else Descendants()
    try:
        try:
            # preexec_fn is unsafe with threads; there is one thread here.
            process = subprocess.Popen(
                command, env=environment, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before)
            )
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            fail(f"{command[0]}: {error.strerror}", ExitStatus.NOT_FOUND if missing else ExitStatus.NOT_EXECUTABLE)
        if descendants is not None and timeout_s is not None:
            return _wait_until(time.monotonic() + timeout_s, process, descendants, awaited)
        while process.poll() is None:
            _pass_on(signal.sigwaitinfo(awaited), process)
        return _exit_code(process)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _pass_on(caught: signal.struct_siginfo, process: subprocess.Popen[bytes]) -> None:
    """A signal from a process (SI_USER is 0) was sent only to this process; the terminal's (SI_KERNEL) has reached the
    program, too."""
    if caught.si_signo != signal.SIGCHLD and caught.si_code <= 0:
        process.send_signal(caught.si_signo)


def _wait_until(
    deadline: float, process: subprocess.Popen[bytes], descendants: Descendants, awaited: set[signal.Signals]
) -> int:
    """The program's exit code; at the deadline SIGTERM, then SIGKILL, to its process tree."""
    while process.poll() is None:
        caught = signal.sigtimedwait(awaited, max(0.0, deadline - time.monotonic()))
        if caught is not None:
            _pass_on(caught, process)
        elif time.monotonic() >= deadline:
            click.echo("vgpu run: time is up (--timeout): the program is ended", err=True)
            break
    else:
        return _exit_code(process)
    number = signal.SIGTERM
    while descendants.pids(process.pid):
        descendants.signal(process.pid, number)
        number, deadline = signal.SIGKILL, time.monotonic() + _KILL_AFTER_S
        while descendants.pids(process.pid) and time.monotonic() < deadline:
            signal.sigtimedwait(awaited, min(0.1, max(0.0, deadline - time.monotonic())))  # some ends raise no signal
    return int(ExitStatus.TIMEOUT)


def _exit_code(process: subprocess.Popen[bytes]) -> int:
    code = int(process.returncode)
    return code if code >= 0 else int(ExitStatus.SIGNAL_BASE) - code
