"""What latency costs: times of a training step, `item()` and a process's start over delayed TCP, and the native times.

`python tests/gpu/network.py --out FILE` on a machine with a card and PyTorch. A process for each latency and a native
one stay alive, and windows of their work alternate. `turns` are the round trips in sequence (tests/bench/delay.c).
`python tests/gpu/network.py --work` is such a process: it prints a line of JSON for each line that it reads.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "daemon"), str(ROOT / "guest")]

RTTS_US = (0, 50, 500, 5000)
STEPS, ITEMS, MB = 20, 50, 1 << 20
Row = dict[str, Any]


def work() -> None:
    """Run the phase that each line of standard input names: start, build, steps, item, to the device, back."""
    import torch
    from torch import nn

    # cuDNN's attention passes host memory to kernels; on a socket each wait then needs a second round trip to fetch it.
    torch.backends.cuda.enable_cudnn_sdp(False)

    def timed(function: Callable[[], Any], amount: int = 1) -> float:
        begin = time.perf_counter()
        for _ in range(amount):
            function()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) * 1e3 / amount

    phases: dict[str, Callable[[], float]] = {"start": lambda: timed(lambda: torch.zeros(1, device="cuda") + 1)}

    def build() -> float:
        torch.manual_seed(1)
        layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.0)
        model = nn.TransformerEncoder(layer, 6).cuda().bfloat16()
        data = torch.randn(8, 128, 512, device="cuda", dtype=torch.bfloat16)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        x, big = torch.randn(1024, device="cuda"), torch.randn(16 * MB)
        there = big.cuda()

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            model(data).float().square().mean().backward()
            optimizer.step()

        phases["steps"] = lambda: timed(step, STEPS)
        phases["item"] = lambda: timed(lambda: x[0].item(), ITEMS)
        phases["to the device"] = lambda: timed(big.cuda)
        phases["back"] = lambda: timed(there.cpu)
        return timed(step, 5)

    phases["build"] = build
    print(json.dumps({"ready": torch.__version__}), flush=True)
    for line in sys.stdin:
        print(json.dumps({"ms": phases[line.strip()]()}), flush=True)


class Worker:
    """A process that runs phases, and the relay between the process and vgpud, if any."""

    def __init__(self, name: str, env: dict[str, str], delay: Any = None) -> None:
        self.name, self.delay = name, delay
        self.rows: dict[str, list[Row]] = {}
        command = [sys.executable, __file__, "--work"]
        self._process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._read()

    def _read(self) -> Row:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name}: the work ended with {self._process.wait()}")
        row: Row = json.loads(line)
        return row

    def do(self, phase: str) -> None:
        assert self._process.stdin is not None
        before = self.delay.passed() if self.delay else None
        self._process.stdin.write(f"{phase}\n")
        self._process.stdin.flush()
        row = self._read()
        if before:
            row |= self.delay.passed().since(before)._asdict()
        self.rows.setdefault(phase, []).append(row)

    def median(self, phase: str, what: str = "ms") -> float:
        return statistics.median(row[what] for row in self.rows[phase])

    def end(self) -> None:
        self._process.communicate(timeout=60)


def table(workers: list[Worker]) -> str:
    """A table as Markdown; each ratio is the median of the ratios of consecutive windows."""
    native = workers[0]
    lines = ["| | native | " + " | ".join(f"RTT {worker.name}" for worker in workers[1:]) + " |"]
    lines.append("|---" * (len(workers) + 1) + "|")
    for phase in native.rows:
        cells = [f"{native.median(phase):.3f} ms"]
        for worker in workers[1:]:
            pairs = zip(worker.rows[phase], native.rows[phase], strict=True)
            ratio = statistics.median(there["ms"] / here["ms"] for there, here in pairs)
            cells.append(f"{worker.median(phase):.3f} ms ({ratio:.2f}), turns {worker.median(phase, 'turns'):.0f}")
        lines.append(f"| {phase} | {' | '.join(cells)} |")
    sent = workers[-1].median("steps", "sent_nbytes") / STEPS
    turns = workers[-1].median("steps", "turns")
    lines.append(f"\nA step sends {sent:.0f} bytes; {STEPS} steps and their synchronisation are {turns:.0f} turns;")
    lines.append(f"{ITEMS} item() are {workers[-1].median('item', 'turns'):.0f} turns.")
    return "\n".join(lines) + "\n"


def main() -> int:
    from vgpud.bench.side import Host, native

    from tests.bench.delay import Delay

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", action="store_true", help="be one of the processes")
    parser.add_argument("--libcuda", default="libcuda.so.1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.work:
        work()
        return 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vgpu-network-")))
        host = stack.enter_context(Host("tcp", folder, "cuda", "h100", options.libcuda))
        workers = [Worker("native", native(options.libcuda).of_program())]
        for rtt_us in RTTS_US:
            delay = stack.enter_context(Delay(host.side.environment["VGPU_ENDPOINT"], rtt_us))
            env = host.side.of_program() | {"VGPU_ENDPOINT": delay.endpoint, "VGPU_LOG": "info"}  # of addresses
            workers.append(Worker(f"{rtt_us} us", env, delay))
        for phase in ("start", "build"):
            for worker in workers:
                worker.do(phase)
        for _ in range(options.rounds):
            for phase in ("steps", "item", "to the device", "back"):
                for worker in workers:
                    worker.do(phase)
        text = table(workers)
        for worker in workers:
            worker.end()
    print(text, end="")
    if options.out:
        options.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
