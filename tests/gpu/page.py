"""Put the results of `tests/gpu/run.py --renew` into docs/real-gpu.md: `python tests/gpu/page.py FOLDER...`.

The folders are the --out of its parts; of two files of one name the last that is whole counts. The tables of the page
are replaced, and the paragraph that says which run they are of; a step that failed or did not end keeps its table, and
is named.
What the text says besides is checked by who runs this: the facts that it is made of are printed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/real-gpu.md"
OUT_OF_TIME = r"^ended after \d+ s$"  # as run.py writes it
FAILED = r"^ended with status (-?\d+)$"  # as run.py writes it
STEPS = {
    "tests": "`pytest -m gpu tests/gpu`",
    "claim": "the same, addresses that the program uses itself",
    "memory": "the same, tests that fill the card's memory",
    "conformance": "conformance, natively, over shared memory and over a unix socket",
    "samples": "NVIDIA's samples",
    "op_db": "PyTorch's database of operators",
    "several": "two devices",
}
PHASES = {
    "steps": "training step, 6 layers bf16",
    "item": "`item()`",
    "start": "first kernel after `import torch`",
    "build": "building the model, first steps",
    "to the device": "64 MB to the device, pageable",
    "back": "64 MB back, pageable",
}
RATES = {
    "nccl_ranks: all-reduce of 256 MB, GB/s": "NCCL, a process for each device: all-reduce of 256 MB, GB/s",
    "nccl_ranks: of 4 KB, calls a second": "the same of 4 KB, calls a second",
    "nccl_one_process: all-reduce, GB/s": "NCCL, both devices in one process: all-reduce, GB/s",
    "ddp: steps a second": "DistributedDataParallel, steps a second",
    "fsdp: steps a second": "fully_shard (FSDP), steps a second",
    "jax_pmap: psum, GB/s": "JAX pmap: psum, GB/s",
}
DEVICE_ROWS = 2 + len(RATES)
PROFILED = {
    "call_memory_info": "a call with an answer (`cuMemGetInfo`): the rest is the round trip",
    "alloc_free_1m": "1 MB allocated and freed: two round trips",
    "event_record_sync": "event record and its wait, the stream idle",
    "record_and_wait_event": "event record and a stream's wait, both streams idle",
    "launch_and_wait_event": "the same behind a launch",
    "launch_threads_8": "launch from 8 threads",
    "launch_stream_sync": "launch and wait",
    "htod_4": "4 bytes to the device and a wait",
    "htod_4k": "4 KB",
    "htod_64k": "64 KB, in one piece",
    "htod_256k": "256 KB, in 4 pieces",
    "htod_1m": "1 MB",
}

BENCHED = {
    "torch train step, 6 layers bf16": "a training step, 6 layers bf16",
    "torch decode, batch 1": "decoding, batch 1",
    "torch decode as CUDA graph": "decoding as a CUDA graph",
    "torch resnet18, batch 8": "resnet18, batch 8",
    "torch item": "torch's `item()`",
    "cupy add": "CuPy's sum of two arrays",
    "cupy sum": "CuPy's sum of an array",
    "cupy matmul": "CuPy's product",
    "jax add": "JAX's sum of two arrays",
    "jax matmul": "JAX's product",
    "triton add": "Triton's sum of two arrays",
    "dlopen until the first kernel's result": "from `dlopen` to the first kernel's result",
}


class Results:
    """The files of a run."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self.folders = list(folders)

    def __getitem__(self, name: str) -> str:
        """The text of a file, if possible of a step that ended; "" if no folder has it."""
        found = [(folder / name).read_text(errors="replace") for folder in self.folders if (folder / name).exists()]
        ended = [text for text in found if not re.search(OUT_OF_TIME, text, re.MULTILINE)]
        return (ended or found or [""])[-1]

    def is_whole(self, step: str) -> bool:
        """Whether the step was not ended for lack of time; what it had written by then is not a run."""
        return not re.search(OUT_OF_TIME, self[f"{step}.txt"], re.MULTILINE)

    def succeeded(self, step: str) -> bool:
        return self.is_whole(step) and not self.status(step)

    def status(self, step: str) -> int:
        """The exit status of a step that ended; negative: of a signal."""
        found = re.search(FAILED, self[f"{step}.txt"], re.MULTILINE)
        return int(found[1]) if found else 0

    def machine(self) -> dict[str, str]:
        return dict(re.findall(r"^(\w+): (.*)$", self["machine.txt"], re.MULTILINE))

    def ended(self, step: str) -> str:
        """The line that sums up a step, with its exit status if it failed; "" if it did not end."""
        text, status = self[f"{step}.txt"], self.status(step)
        if not self.is_whole(step) or not text.strip():
            return ""
        summary = self._summary(step, text)
        return "; ".join(filter(None, [summary, status and f"exit status {status}"]))

    def _summary(self, step: str, text: str) -> str:
        if step == "conformance":
            counts = "; ".join(re.findall(r"^((?:native|remoted)[^:]*: \d+ .*)$", text, re.MULTILINE))
            late = dict.fromkeys(re.findall(r"^[^:\n]+: (\w+): not begun after", text, re.MULTILINE))
            return counts + (f"; **not begun: {', '.join(late)}**" if counts and late else "")
        if step == "samples":
            return "".join(re.findall(r"^\d+ samples, .*$", text, re.MULTILINE)[-1:])
        if step == "op_db":
            return "".join(re.findall(r"^\d+ results natively.*$", text, re.MULTILINE)[-1:])
        return "".join(re.findall(r"(\d+ (?:passed|failed|skipped).*?)(?: in [\d.]+s.*)?$", text, re.MULTILINE)[-1:])


def rows(text: str, head: str) -> list[str]:
    """The rows of the table whose head begins so, with the head; lines of a log among them are left out."""
    found = [line for line in text.splitlines() if line.startswith("|")]
    first = next((i for i, line in enumerate(found) if line.startswith(head)), None)
    return [] if first is None else found[first:]


def replace_table(page: str, heading: str, table: list[str], at_run: str = "") -> str:
    """Replace the rows of the first table after a heading, or after the line that begins so, and the line before the
    table that says which run it is of."""
    at = re.search(rf"^{re.escape(heading)}", page, re.MULTILINE)
    if at is None:
        raise ValueError(f"the page has no {heading!r}")
    begin = page.index("\n|", at.end()) + 1
    end = next(m.start() for m in re.finditer(r"^(?!\|)", page[begin:], re.MULTILINE)) + begin
    before = page[:begin]
    if at_run:
        before = re.sub(r"^At \w+ \([^()]*\):\n\n\Z", lambda _: f"{at_run}:\n\n", before, flags=re.MULTILINE)
    return before + "\n".join(table) + "\n" + page[end:]


def network(text: str) -> list[str]:
    """The page's table of network.md's."""
    table = ["| | native ms | RTT 0 | 50 us | 500 us | 5 ms |", "|---|---|---|---|---|---|"]
    for phase, title in PHASES.items():
        cells = next((line for line in rows(text, "| | native") if line.startswith(f"| {phase} |")), None)
        if cells:
            values = re.findall(r"([\d.]+) ms(?: \(([\d.]+)\))?", cells)
            shown = [f"{float(ms):.3g}" + (f" ({ratio})" if ratio else "") for ms, ratio in values]
            table.append(f"| {title} | {' | '.join(shown)} |")
    return table if len(table) > 2 else []


def rates(text: str) -> dict[str, tuple[float, float, float]]:
    """What several.txt measured: natively, remoted, the ratio."""
    found = re.findall(r"^(\w+: .*): native ([\d.]+), remoted ([\d.]+), ratio ([\d.]+)", text, re.MULTILINE)
    return {name: (float(native), float(remoted), float(ratio)) for name, native, remoted, ratio in found}


def devices(text: str) -> list[str]:
    """The page's table of what two devices reach."""
    found = rates(text)
    table = ["| | natively | remoted | ratio |", "|---|---|---|---|"]
    torch = [found[f"torch_peers: {way}, GB/s"] for way in ("0 to 1", "1 to 0") if f"torch_peers: {way}, GB/s" in found]
    if torch:
        cells = [
            ", ".join(f"{each:.{2 if i == 2 else 0}f}" for each in column)
            for i, column in enumerate(zip(*torch, strict=True))
        ]
        table.append(f"| copies between the devices, torch, GB/s | {' | '.join(cells)} |")
    named = {"cupy_peers: 1 to 0, GB/s": "the same, CuPy, GB/s", **RATES}
    for key, title in named.items():
        if key in found:
            native, remoted, ratio = found[key]
            table.append(f"| {title} | {number(native)} | {number(remoted)} | {ratio:.2f} |")
    return table if len(table) == 2 + DEVICE_ROWS else []


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 200 else f"{value:.1f}"


def profile(text: str) -> list[str]:
    """The page's table of driver.py --profile."""
    table = ["| what | native | remoted | in the worker | rest |", "|---|---|---|---|---|"]
    for line in rows(text, "| measurement |")[2:]:
        name, native, remoted, worker, rest, *_ = (cell.strip() for cell in line.strip("|").split("|"))
        at_once = float(rest) < -0.5
        table.append(
            f"| {PROFILED.get(name, name)} | {native} | {remoted} | {worker} | {'(at once)' if at_once else rest} |"
        )
    return table if len(table) > 2 else []


def result_rows(results: Results) -> list[str]:
    table = ["| what | result |", "|---|---|"]
    for step, title in STEPS.items():
        table.append(f"| {title} | {results.ended(step) or '**not ended**'} |")
    return table


def which_run(results: Results) -> str:
    """The paragraph that says which run the tables are of."""
    machine = results.machine()
    cards = re.findall(r"NVIDIA [\w ]+", results["machine.txt"])
    driver = re.search(r"\d{3}\.\d+(?:\.\d+)?", machine.get("card", ""))
    versions = machine.get("python", "").partition(": ")[2].replace("; ", ", ").replace("+cu130", "")
    for name in ("CuPy", "JAX", "Triton"):
        versions = versions.replace(f"{name.lower()} ", f"{name} ")
    return (
        f"`tests/gpu/run.py --renew`, `--part checks` and then `--part measurements`, at commit "
        f"{machine.get('commit', '?')[:8]} ({machine.get('date', '?')[:10]}): "
        f"{len(cards)} {cards[0] if cards else '?'} (10de:2335), driver {driver[0] if driver else '?'}, "
        f"{versions}, {machine.get('processors', '?')} processors."
    )


def now(results: Results) -> dict[str, str]:
    """What was asked in vain once, by the beginning of its row: what this run says of it."""
    found, ways = rates(results["several.txt"]), ("0 to 1", "1 to 0")
    cells = {}
    if results.ended("several") and results.succeeded("several") and devices(results["several.txt"]):
        copies = [found[f"torch_peers: {way}, GB/s"] for way in ways]
        least, ratios = min(each[1] for each in copies), " and ".join(f"{each[2]:.2f}" for each in copies)
        ranks, ddp = found["nccl_ranks: all-reduce of 256 MB, GB/s"], found["ddp: steps a second"]
        cells["| two devices: peer access"] = f"{least:.0f} GB/s, {ratios} of native; DataParallel right"
        cells["| NCCL, two ranks, DDP"] = (
            f"{ranks[1]:.0f} GB/s, {ranks[2]:.2f} of native; DDP right, {ddp[2]:.2f} of the native rate"
        )
        cells["| JAX `pmap`"] = f"right, {found['jax_pmap: psum, GB/s'][2]:.2f} of the native rate"
    table = network(results["network.md"])
    step = next((line for line in table if line.startswith(f"| {PHASES['steps']} |")), "")
    if values := re.findall(r"\| ([\d.]+)", step):
        cells["| training step over TCP"] = f"{', '.join(values[2:])} ms; natively {values[0]}"
    if turns := re.search(r"^(\d+) item\(\) are (\d+) turns", results["network.md"], re.MULTILINE):
        cells["| `tensor.item()` at"] = f"{int(turns[2]) / int(turns[1]):.3g} round trip{'s' * (turns[1] != turns[2])}"
    text = results["conformance.txt"]
    ran = all(re.search(rf"^{side}: jax: \d+ s$", text, re.MULTILINE) for side in ("remoted, shm", "remoted, unix"))
    if ran and results.ended("conformance") and not any("jax" in line for line in rows(text, "| check |")):
        cells["| JAX gradient step"] = "right, over shared memory and a unix socket"
    return cells


def replace_cell(page: str, begin: str, text: str) -> str:
    """Replace the third cell of the row that begins so."""
    row = re.search(rf"^{re.escape(begin)}.*$", page, re.MULTILINE)
    if row is None:
        raise ValueError(f"the page has no row {begin!r}")
    cells = row[0].split(" | ")
    return page.replace(row[0], " | ".join([*cells[:2], text, *cells[3:]]))


def bench(text: str) -> list[str]:
    """The page's table of bench.md: the ratios over shared memory, with their quartiles. Empty: it has none."""
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in rows(text, "| work |")]
    of_work = {
        cells[0]: dict(zip(found[0], zip(cells, [*cells[1:], ""], strict=True), strict=False)) for cells in found
    }
    table = ["| work | shm / native | quartiles |", "|---|---|---|"]
    for work, title in BENCHED.items():
        for column, name in (("shm / native", title), ("shm, warm / native", "the same with a warm worker")):
            ratio, quartiles = of_work.get(work, {}).get(column, ("", ""))
            if ratio:
                table.append(f"| {name} | {ratio} | {quartiles} |")
    return table if len(table) > 2 else []


def at_run(results: Results, step: str = "") -> str:
    machine = results.machine()
    day, processors = machine.get("date", "?")[:10], machine.get("processors", "?")
    where = machine.get(step, beside(machine))
    return f"At {machine.get('commit', '?')[:8]} ({day}; {processors} processors, {where})"


def beside(machine: dict[str, str]) -> str:
    """What the machine did besides, as run.py measures it before the steps and after them."""
    seen = [
        re.match(r"([\d.]+) processors busy, (\d+) programs", machine.get(when, "")) for when in ("before", "after")
    ]
    if None in seen:
        return "what ran beside it was not recorded"
    busy = max(float(each[1]) for each in seen if each)
    programs = max(int(each[2]) for each in seen if each)
    if busy < 1 and not programs:
        return "nothing beside it"
    return f"beside it {busy:.1f} processors busy and {programs} programs on the cards"


def fill(page: str, results: Results) -> tuple[str, list[str]]:
    """The page with the results in it, and the tables that stay as they were."""
    which = re.compile(r"(?<=^## The last run\n\n).*?(?=\n\n)", re.MULTILINE | re.DOTALL)
    page = which.sub(lambda _: which_run(results), page, count=1)
    page = replace_table(page, "## The last run", result_rows(results))
    found = {
        "`vgpu bench` (": ("bench", bench(results["bench.md"])),
        "### Driver calls": ("driver", rows(results["driver.txt"], "| call |")),
        "`tests/bench/driver.py --profile`": ("profile", profile(results["profile.txt"])),
        "## Over a network": ("network", network(results["network.md"])),
        "## Two devices": ("several", devices(results["several.txt"])),
    }
    tables = {heading: table if results.succeeded(step) else [] for heading, (step, table) in found.items()}
    for heading, table in tables.items():
        if table:
            page = replace_table(page, heading, table, at_run(results, found[heading][0]))
    for begin, text in now(results).items():
        page = replace_cell(page, begin, text)
    return page, [heading for heading, table in tables.items() if not table]


def facts(results: Results) -> list[str]:
    """What the page's text speaks of: rows that differ, stages of calls, sentences of tables, the shares."""
    of_rows = ("conformance", "samples", "stages")
    said = [f"{step}: {line}" for step in of_rows for line in rows(results[f"{step}.txt"], "|")]
    placed = r"^(?:reservation|mapped:|(?:\w+ )?[\d.]+ MiB:|WRONG:|vgpu\[\d+\]: device memory at) .*$"
    said += [f"claim: {line}" for line in re.findall(placed, results["claim.txt"], re.MULTILINE)]
    said += re.findall(r"^(?:different|not reached remoted|unstable natively): .*$", results["op_db.txt"], re.MULTILINE)
    for step in ("tests", "claim", "memory", "several"):
        said += [
            f"{step}: {line}"
            for line in re.findall(r"^(?:FAILED|ERROR|XFAIL) .*$", results[f"{step}.txt"], re.MULTILINE)
        ]
    said += [f"network: {line}" for line in re.findall(r"^(?:A step|\d+ item).*$", results["network.md"], re.MULTILINE)]
    said += [f"shares: {line}" for line in re.findall(r"^[a-z].*$", results["shares.md"], re.MULTILINE)]
    return said + [f"{name}: {values}" for name, values in rates(results["several.txt"]).items()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    results = Results(options.folders)
    page, kept = fill(options.page.read_text(), results)
    options.page.write_text(page)
    for suffix in ("md", "json", "svg"):
        if results.succeeded("bench") and bench(results["bench.md"]) and results[f"bench.{suffix}"]:
            (options.page.parent / f"bench/h200.{suffix}").write_text(results[f"bench.{suffix}"])
    print(*facts(results), sep="\n")
    print(*(f"kept: {heading}: this run has no such table" for heading in kept), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
