"""`vgpu run`: run a program with GPUs, from a running vgpud or from a private one."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NoReturn

import click
from vgpu_guest.libraries import LIBRARIES

from ..endpoint import connect
from .descendants import Descendants
from .fail import fail, reported, say
from .guest_libraries import Libraries, give_libraries, program_of
from .option import EndpointType
from .private_daemon import PrivateDaemon, PrivateDaemonError
from .status import ExitStatus
from .trace import traced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..endpoint import Endpoint

    _Choice = click.Choice[str]
else:  # Debian's click has no type parameters yet
    _Choice = click.Choice

DEFAULT_GPU = "forward"  # the profile on which CuPy's and JAX's libraries run unchanged: docs/simulator.md
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


class _Cudart(_Choice):
    """A choice that also accepts the values' former names."""

    _FORMER: ClassVar = {"ours": "vgpu", "theirs": "program"}

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """click's hook."""
        return super().convert(self._FORMER.get(value, value), param, ctx)


class _RunCommand(click.Command):
    """--trace is a flag, and --trace=VALUE has a value: in `--trace ./program` the program is not a value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """click's hook."""
        end = args.index("--") if "--" in args else len(args)
        given = [f"--trace-as={a.partition('=')[2]}" if a.startswith("--trace=") else a for a in args[:end]]
        return super().parse_args(ctx, given + args[end:])


@click.command(cls=_RunCommand, context_settings={"allow_interspersed_args": False})
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
    type=_Cudart(["auto", "vgpu", "program"]),
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
    libraries = Libraries(library_dir, preload, cudart, cupti, torch, verbose)
    libraries.check()
    with ExitStack() as stack:
        kind = trace_as or ("calls" if trace else "")
        if endpoint is not None:
            with reported(endpoint):
                connect(
                    endpoint, timeout_s=_CONNECT_TIMEOUT_S
                ).close()  # reported here, before the program reports it less clearly
        elif gpus is None and find_spec("vgpud.serving") is None:
            pass  # the libraries find the endpoint as in any program
        else:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                signal.signal(number, interrupted)  # raises SystemExit, so that `stack` stops the private vgpud
            try:
                default = None if config is not None else DEFAULT_GPU
                endpoint = stack.enter_context(PrivateDaemon(gpus or default, config=config)).endpoint
            except PrivateDaemonError as error:
                fail(str(error), ExitStatus.UNAVAILABLE)
        environment = dict(os.environ)
        report = stack.enter_context(traced(kind, environment))
        give_libraries(environment, program_of(command), endpoint, libraries)
        code = supervise(command, environment, timeout_s)
        report()
    raise SystemExit(code)


def interrupted(number: int, _frame: object) -> NoReturn:
    """A signal handler that raises SystemExit, so that context managers stop the private vgpud."""
    raise SystemExit(ExitStatus.SIGNAL_BASE + number)


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
    """Forward a signal that a process sent to this process alone (SI_USER is 0). A signal of the terminal (SI_KERNEL)
    has reached the program, too."""
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
            say("time is up (--timeout): the program is ended")
            break
    else:
        return _exit_code(process)
    number = signal.SIGTERM
    while descendants.pids(process.pid):
        descendants.signal(process.pid, number)
        number, deadline = signal.SIGKILL, time.monotonic() + _KILL_AFTER_S
        while descendants.pids(process.pid) and time.monotonic() < deadline:
            # A descendant whose parent still lives sends no SIGCHLD to this process when it ends.
            signal.sigtimedwait(awaited, min(0.1, max(0.0, deadline - time.monotonic())))
    return int(ExitStatus.TIMEOUT)


def _exit_code(process: subprocess.Popen[bytes]) -> int:
    code = int(process.returncode)
    return code if code >= 0 else int(ExitStatus.SIGNAL_BASE) - code
