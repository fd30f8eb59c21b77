"""What tenants get of one card: inference alone, inference beside training, two trainings, eight trainings.

`python tests/gpu/shares.py --out FILE` on a machine with a card and PyTorch. Inference is eight linear layers of 1024
in half precision, begun every 2 ms; training is products of 4096 by 4096 in half precision without a pause, and its
longest kernel is one product. Three sides do that: processes under the card's own driver, tenants of a vgpud without
weights (the driver's time slices divide the card in both), and tenants of a vgpud with weights of 3 to 1. All processes
stay alive, and windows of their work alternate. `--rounds` and `--seconds` set how many and how long.
`python tests/gpu/shares.py --work` is such a process: it prints a line of JSON for each line that it reads.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "daemon"), str(ROOT / "guest")]

WEIGHTS = [300] * 4 + [100] * 4  # of the tenants; the first is inference, the last is training
PERIOD_S, LAYERS, WIDTH, SIZE, AT_ONCE = 0.002, 8, 1024, 4096, 8
Row = dict[str, float]


def work() -> None:
    """Run a window of inference or training for each line "infer SECONDS" or "train SECONDS" of standard input."""
    import torch
    from torch import nn

    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))).cuda().half().eval()
    x = torch.randn(1, WIDTH, device="cuda", dtype=torch.float16)
    a, b, product = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.float16) for _ in range(3))

    @torch.inference_mode()
    def infer(seconds: float) -> Row:
        times, begun = [], time.perf_counter()
        due = begun
        while due < begun + seconds:
            time.sleep(max(0.0, due - time.perf_counter()))
            before = time.perf_counter()
            model(x).sum().item()
            after = time.perf_counter()
            times.append((after - before) * 1e3)
            due = max(due + PERIOD_S, after)
        times.sort()  # not empty: the first inference is due at once
        return {
            "p50_ms": times[len(times) // 2],
            "p99_ms": times[len(times) * 99 // 100],
            "longest_ms": times[-1],
            "turns": len(times),
        }

    @torch.inference_mode()
    def train(seconds: float) -> Row:
        count, begun = 0, time.perf_counter()
        while time.perf_counter() < begun + seconds:
            for _ in range(AT_ONCE):
                torch.mm(a, b, out=product)
            torch.cuda.synchronize()
            count += AT_ONCE
        return {"products_s": count / (time.perf_counter() - begun)}

    phases = {"infer": infer, "train": train}
    for _ in range(20):  # loading libraries and kernels takes seconds, so it is done before the windows
        infer(0.01), train(0.01)
    print(json.dumps({"ready": torch.__version__}), flush=True)
    for line in sys.stdin:
        phase, seconds = line.split()
        print(json.dumps(phases[phase](float(seconds))), flush=True)


class Worker:
    """A process that runs windows of inference and training."""

    def __init__(self, python: str, env: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [python, __file__, "--work"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def begin(self, order: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()

    def read(self) -> Row:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the work ended with {self._process.wait()}")
        row: Row = json.loads(line)
        return row

    def end(self) -> None:
        self._process.communicate(timeout=60)


def together(orders: list[tuple[Worker, str]]) -> list[Row]:
    for worker, order in orders:
        worker.begin(order)
    return [worker.read() for worker, _ in orders]


def measure(first: Worker, second: Worker, seconds: float) -> Row:
    """Measure a window of each phase. `first` is the tenant with the greater weight."""
    infer, train = f"infer {seconds}", f"train {seconds}"
    [alone] = together([(first, infer)])
    [free] = together([(second, train)])
    beside, trained = together([(first, infer), (second, train)])
    one, two = together([(first, train), (second, train)])
    return {
        **{f"alone {key}": value for key, value in alone.items()},
        **{f"beside {key}": value for key, value in beside.items()},
        "products alone": free["products_s"],
        "products beside inference": trained["products_s"],
        "two trainings: first": one["products_s"],
        "two trainings: second": two["products_s"],
        "two trainings: part of the first": one["products_s"] / (one["products_s"] + two["products_s"]),
    }


def table(rows: dict[str, list[Row]]) -> str:
    """A table as Markdown: median, minimum and maximum of the windows."""
    sides = list(rows)
    lines = ["| | " + " | ".join(sides) + " |", "|---" * (len(sides) + 1) + "|"]
    median = {side: {key: statistics.median(row[key] for row in rows[side]) for key in rows[side][0]} for side in sides}
    for key in rows[sides[0]][0]:
        cells = []
        for side in sides:
            values = [row[key] for row in rows[side]]
            cells.append(f"{median[side][key]:.3f} ({min(values):.3f} to {max(values):.3f})")
        lines.append(f"| {key} | " + " | ".join(cells) + " |")
    for side, values_of in median.items():
        longest_ms = 1e3 / values_of["products alone"]
        bound_ms = 1.2 * values_of["alone p99_ms"] + longest_ms
        held = "holds" if values_of["beside p99_ms"] <= bound_ms else "does not hold"
        lines.append(
            f"\n{side}: p99 beside {values_of['beside p99_ms']:.2f} ms; 1.2 of alone and the longest kernel "
            f"({longest_ms:.2f} ms) are {bound_ms:.2f} ms: {held}. Part of the first of two trainings "
            f"{100 * values_of['two trainings: part of the first']:.1f} %; by weights 75 %."
        )
    return "\n".join(lines) + "\n"


def crowd(workers: list[Worker], seconds: float) -> list[float]:
    """The part of all products that each gets when all train."""
    got = [row["products_s"] for row in together([(worker, f"train {seconds}") for worker in workers])]
    return [each / sum(got) for each in got]


def crowds(parts: dict[str, list[list[float]]]) -> str:
    """Lines of text: the median part of each tenant, and how far the worst is off its weight."""
    lines = []
    for side, rounds in parts.items():
        got = [statistics.median(each) for each in zip(*rounds, strict=True)]
        off = max(abs(each / (weight / sum(WEIGHTS)) - 1) for each, weight in zip(got, WEIGHTS, strict=True))
        shown = ", ".join(f"{100 * each:.1f}" for each in got)
        lines.append(f"\n{side}, {len(got)} trainings: {shown} % (weights {WEIGHTS}; at most {100 * off:.0f} % off)")
    return "\n".join(lines) + "\n"


def config(folder: Path, backend: str, libcuda: str, has_weights: bool) -> str:
    lines = [f"listen = ['unix:{folder}/s']", f"admin = '{folder}/admin.sock'", f"cache_dir = '{folder}/cache'"]
    lines += [f"backend = '{backend}'", f"libcuda = '{libcuda}'"]
    for number, weight in enumerate(WEIGHTS):
        lines += ["[[shares]]", f"name = 's{number}'", f"weight = {weight}" if has_weights else ""]
        lines += ["[[tokens]]", f"name = 't{number}'", f"value = '{token(number)}'", f"share = 's{number}'"]
    return "\n".join(lines) + "\n"


def token(number: int) -> str:
    return f"token-of-tenant-{number}"


def start(folder: Path, options: argparse.Namespace, has_weights: bool) -> Any:
    from tests.daemon.running import Running

    folder.mkdir()
    path = folder / "vgpud.toml"
    path.touch(mode=0o600)
    path.write_text(config(folder, options.backend, options.libcuda, has_weights))
    return Running.start(path, folder, "log")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", action="store_true", help="be one of the processes")
    parser.add_argument("--libcuda", default="libcuda.so.1")
    parser.add_argument("--backend", default="cuda", help="with `simulator` only vgpud's side is measured")
    parser.add_argument("--python", default=sys.executable, help="with PyTorch")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each window (4)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.work:
        work()
        return 0
    return compare(options)


def compare(options: argparse.Namespace) -> int:
    """Measure and print."""
    from vgpud.bench.side import native, remote

    with tempfile.TemporaryDirectory(prefix="vgpu-shares-") as name:
        kinds = {"tenants": False, "tenants with weights": True}
        daemons = {side: start(Path(name) / str(i), options, kinds[side]) for i, side in enumerate(kinds)}
        try:
            for running in daemons.values():
                running.wait_ready()
            environments: dict[str, list[dict[str, str]]] = {}
            if options.backend == "cuda":
                environments["processes"] = [native(options.libcuda).of_program()] * len(WEIGHTS)
            for side, running in daemons.items():
                # All tenants are needed only in rounds in which all train.
                numbers = range(len(WEIGHTS)) if kinds[side] else (0, len(WEIGHTS) - 1)
                endpoint = str(running.endpoint)
                environments[side] = [remote("", endpoint, token(number)).of_program() for number in numbers]
            sides = {side: [Worker(options.python, env) for env in envs] for side, envs in environments.items()}
            for workers in sides.values():
                for worker in workers:
                    worker.read()
            rows: dict[str, list[Row]] = {side: [] for side in sides}
            parts: dict[str, list[list[float]]] = {side: [] for side in sides if len(sides[side]) == len(WEIGHTS)}
            for _ in range(options.rounds):
                for side, workers in sides.items():
                    rows[side].append(measure(workers[0], workers[-1], options.seconds))
                for side, of_side in parts.items():
                    of_side.append(crowd(sides[side], options.seconds))
                text = table(rows) + crowds(parts)
                if options.out:
                    options.out.write_text(text)
            for workers in sides.values():
                for worker in workers:
                    worker.end()
        finally:
            for running in daemons.values():
                running.end()
                said = [line for line in running.log.splitlines() if " warning " in line or " error " in line]
                print(*said[:20], sep="\n")
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
