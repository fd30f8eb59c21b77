"""Times of driver calls on a real card, native and remoted: `python tests/bench/driver.py [--rounds N] [--socket]`.

Each round runs driver.c natively and then through vgpud. A time is the median over the rounds; the ratio is the median
of the rounds' ratios. With `--card` the driver is card.c, which imitates the times of an H100 without a card.

`--profile` says where the time of the calls goes that take longest beside native ones: what each takes natively, what
remoted, how long the worker executes its functions (vgpu_call_seconds), and the rest, beside what a call whose answer
costs nothing takes (its rest is the round trip). A rest of one round trip for each call that waits cannot be less.

With `--weights alone` the column "native" is vgpud without weights, and "remoted" vgpud with weights where no other
tenant is; with `--weights neighbour` another tenant has a session that does nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "daemon"), str(ROOT / "guest")]

from vgpud.cli.admin_client import AdminClient  # noqa: E402
from vgpud.cli.client import Client  # noqa: E402
from vgpud.endpoint import parse_endpoint  # noqa: E402

NEIGHBOUR = "token-of-the-neighbour"
WEIGHTS = f"""
default_share = "s"
[[shares]]
name = "s"
weight = 300
[[tokens]]
name = "neighbour"
value = "{NEIGHBOUR}"
"""


# Calls of a measurement that wait for an answer. Queued ones and waits for a flag that the device writes: 0.
PROFILED = {
    "call_memory_info": 1,
    "alloc_free_1m": 2,
    "event_record_sync": 0,
    "record_and_wait_event": 0,
    "launch_and_wait_event": 0,
    "launch_threads_8": 0,
    "launch_stream_sync": 0,
    "htod_4": 0,
    "htod_4k": 0,
    "htod_64k": 0,
    "htod_256k": 0,
    "htod_1m": 0,
}
Counts = dict[str, tuple[float, float]]


class Timing(NamedTuple):
    """Microseconds of a measurement: median and mean of its windows."""

    us: float
    repetitions: int
    mean_us: float


def run(program: Path, env: dict[str, str], *names: str) -> dict[str, Timing]:
    """Run the program built from driver.c; returns the times by name of the measurement."""
    command = [program, *names]
    out = subprocess.run(command, env={**os.environ, **env}, stdout=-1, text=True, check=True, timeout=120).stdout
    rows = (line.split() for line in out.splitlines())
    return {name: Timing(float(us), int(repetitions), float(mean)) for name, us, repetitions, mean in rows}


def measure(program: Path, env: dict[str, str]) -> dict[str, float]:
    return {name: timing.us for name, timing in run(program, env).items()}


def prepare(directory: Path, options: argparse.Namespace) -> tuple[Path, dict[str, str]]:
    """Build the program, and card.c if it is to be the driver; returns the program and a native one's environment."""
    program = directory / "driver"
    source = Path(__file__).with_name("driver.c")
    subprocess.run(["cc", "-O2", "-pthread", source, "-ldl", "-o", program], check=True)
    if not options.card:
        folder = os.path.dirname(options.libcuda)
        return program, {"LD_LIBRARY_PATH": folder} if folder else {}
    options.libcuda = str(directory / "libcuda.so.1")
    directory.chmod(0o755)  # workers have users of their own
    card = Path(__file__).with_name("card.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", card, "-o", options.libcuda], check=True)
    return program, {"LD_LIBRARY_PATH": str(directory)}


def executed(admin: AdminClient) -> Counts:
    """How often functions were executed, and for how many seconds, by function."""
    text, found = admin.metrics(), {}
    for name, calls in re.findall(r'^vgpu_calls_total\{function="(\w+)"\} (\S+)', text, re.M):
        values = {
            what: float(value)
            for what, value in re.findall(rf'^vgpu_call_seconds_(sum|count)\{{function="{name}"\}} (\S+)', text, re.M)
        }
        mean_s = values.get("sum", 0.0) / (values.get("count", 0.0) or 1.0)
        found[name] = (float(calls), mean_s * float(calls))
    return found


def in_worker_us(admin: AdminClient, before: Counts, repetitions: int, patience_s: float = 1) -> tuple[float, str]:
    """Microseconds of a repetition in the worker, and the functions that each repetition calls."""
    deadline = time.monotonic() + patience_s
    while True:  # vgpud adds a session's calls to the metrics a moment after the session has ended
        now = executed(admin)
        each = {name: (calls - before.get(name, (0, 0))[0]) / repetitions for name, (calls, _) in now.items()}
        often = sorted(name for name, calls in each.items() if calls > 0.4)
        if often or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    seconds = sum(now[name][1] - before.get(name, (0, 0.0))[1] for name in often)
    return seconds / repetitions * 1e6, ", ".join(f"{each[name]:.1f} {name}" for name in often)


def profile(program: Path, native: dict[str, str] | None, remote: dict[str, str], admin: Path) -> None:
    client, trip = AdminClient(admin), 0.0
    print("| measurement | native us | remoted us | in the worker | rest | round trips waited for | functions |")
    print("|---|---|---|---|---|---|---|")
    for name, waits in PROFILED.items():
        before = executed(client)
        (remoted_us, repetitions, _), native_us = run(program, remote, name)[name], float("nan")
        worker_us, functions = in_worker_us(client, before, repetitions)
        if native is not None:
            native_us = statistics.median(run(program, native, name)[name].us for _ in range(3))
        rest = remoted_us - worker_us
        trip = trip or rest
        trips = f"{waits} of {trip:.2f}" if waits else "0"
        print(f"| {name} | {native_us:.2f} | {remoted_us:.2f} | {worker_us:.2f} | {rest:.2f} | {trips} | {functions} |")


@contextmanager
def serving(folder: Path, options: argparse.Namespace, more: str = "") -> Iterator[dict[str, str]]:
    """A vgpud; gives a program's environment."""
    folder.mkdir()
    path = folder / "vgpud.toml"
    path.touch(mode=0o600)
    path.write_text(
        f"listen = ['unix:{folder}/s']\nadmin = '{folder}/a'\nbackend = '{options.backend}'\ncache_dir = '{folder}'\n"
        f"libcuda = '{options.libcuda}'\nshared_memory = {str(not options.socket).lower()}\n{more}"
    )
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT / 'guest'}:{os.environ.get('PYTHONPATH', '')}"}
    daemon = subprocess.Popen([sys.executable, "-m", "vgpud", "--config", path], env=env)
    try:
        deadline = time.monotonic() + 60
        while not (folder / "s").exists():
            if daemon.poll() is not None or time.monotonic() > deadline:
                sys.exit("vgpud did not start: what it said is above")
            time.sleep(0.1)
        yield {"VGPU_ENDPOINT": f"unix:{folder}/s", "LD_LIBRARY_PATH": str(options.libraries)}
    finally:
        daemon.terminate()
        daemon.wait(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--socket", action="store_true", help="without shared memory")
    parser.add_argument("--libcuda", default="libcuda.so.1")
    parser.add_argument("--card", action="store_true", help="card.c in the driver's place")
    parser.add_argument("--libraries", type=Path, default=ROOT / "build/guest", help="of another build")
    parser.add_argument("--backend", default="cuda", choices=("cuda", "simulator"), help="simulator: remoted only")
    parser.add_argument("--weights", choices=("alone", "neighbour"), help="what weights cost")
    parser.add_argument("--profile", action="store_true", help="where the time of some calls goes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        program, native = prepare(directory, options)
        with ExitStack() as started:
            remote = started.enter_context(serving(directory / "0", options))
            if options.weights:
                native = remote
                remote = started.enter_context(serving(directory / "1", options, WEIGHTS))
            if options.weights == "neighbour":
                client = Client(parse_endpoint(remote["VGPU_ENDPOINT"]), token=NEIGHBOUR)
                started.callback(client.close)
                client.hello()
                client.attach()
            if options.profile:
                known = native or options.backend == "cuda"
                profile(program, native if known else None, remote, directory / "0" / "a")
                return
            pairs = []
            for _ in range(options.rounds):
                remoted = measure(program, remote)
                pairs.append((measure(program, native) if native or options.backend == "cuda" else remoted, remoted))
    print("| call | native us | remoted us | ratio | least-greatest |\n|---|---|---|---|---|")
    for call in pairs[0][1]:
        ratios = sorted(remoted[call] / native[call] for native, remoted in pairs)
        native_us, remoted_us = (statistics.median(pair[side][call] for pair in pairs) for side in (0, 1))
        ratio = statistics.median(ratios)
        print(f"| {call} | {native_us:.3f} | {remoted_us:.3f} | {ratio:.2f} | {ratios[0]:.2f}-{ratios[-1]:.2f} |")


if __name__ == "__main__":
    main()
