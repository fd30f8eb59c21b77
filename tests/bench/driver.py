"""Times of driver calls on a real card, native and remoted: `python tests/bench/driver.py [--rounds N] [--socket]`.

Each round runs driver.c natively and then through vgpud. A time is the median over the rounds; the ratio is the median
of the rounds' ratios. With `--card` the driver is card.c, which imitates the times of an H100 without a card.

With `--weights alone` the column "native" is vgpud without weights, and "remoted" vgpud with weights where no other
tenant is; with `--weights neighbour` another tenant has a session that does nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "daemon"), str(ROOT / "guest")]

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


def measure(program: Path, env: dict[str, str]) -> dict[str, float]:
    """Run the program built from driver.c; returns microseconds by name of the measurement."""
    out = subprocess.run([program], env={**os.environ, **env}, stdout=-1, text=True, check=True, timeout=120).stdout
    return {name: float(us) for name, us in map(str.split, out.splitlines())}


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
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        program = directory / "driver"
        source = Path(__file__).with_name("driver.c")
        subprocess.run(["cc", "-O2", "-pthread", source, "-ldl", "-o", program], check=True)
        native: dict[str, str] = {}
        if options.card:
            options.libcuda = str(directory / "libcuda.so.1")
            native = {"LD_LIBRARY_PATH": name}
            card = Path(__file__).with_name("card.c")
            subprocess.run(["cc", "-O2", "-shared", "-fPIC", card, "-o", options.libcuda], check=True)
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
