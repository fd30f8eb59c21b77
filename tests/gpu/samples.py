"""NVIDIA's cuda-samples on a card, natively and through vgpud: `python tests/gpu/samples.py CHECKOUT [NAME...]`.

The machine's own nvcc compiles them; samples that draw, or need another system, are left out. Prints a row for each
sample that ends differently on the two sides, which runs once more then, without others beside it, and counts. The exit
code is 1 if other samples than those of KNOWN end with 0 natively but not remoted. Nothing of the checkout is kept in
this repository.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "daemon"), str(ROOT / "guest")]

from vgpud.bench.side import Host, Side, native  # noqa: E402

from tests.ecosystem.samples import LIBRARY, last_word, samples  # noqa: E402

BUILD_TIMEOUT_S = 240
Outcome = tuple[str, str]  # how a sample ended natively and remoted
OWN = {"cudart", "cudart_static"}  # nvcc links them itself
# Samples that end with 0 natively alone, and why.
KNOWN = {
    "systemWideAtomics": "atomics of host and device at once on managed memory (docs/real-gpu.md, Not offered yet)"
}


def libraries(lists: str) -> list[str]:
    """Linker options for the libraries that a CMakeLists.txt names."""
    text = re.sub(r"[\s\S]*?target_link_libraries", "", lists, count=1)
    names = {name for match in LIBRARY.findall(text) for name in match} - OWN - {""}
    return [f"-l{'cuda' if name == 'cuda_driver' else name}" for name in sorted(names)]


def build(nvcc: str, checkout: Path, folder: Path, out: Path) -> Path | None:
    """Compile a sample; returns the program, or None if the sample does not compile here."""
    lists = (folder / "CMakeLists.txt").read_text()
    named = re.search(r"add_executable\(\s*\S+\s+([^)]*)\)", lists)
    sources = [str(folder / name) for name in (named[1].split() if named else ()) if re.search(r"\.(cu|cpp|c)$", name)]
    options = ["-std=c++17", "-O2", "-arch=sm_90", "--extended-lambda", "-Wno-deprecated-gpu-targets", f"-I{folder}"]
    options += [f"-I{checkout / 'Common'}", *(["-rdc=true"] if "SEPARABLE_COMPILATION" in lists else [])]
    for name, kind in set(re.findall(r"(\w+)\.(fatbin|ptx)\b", lists)):  # images that a sample loads from its folder
        source = folder / f"{name.removesuffix('64')}.cu"
        if source.exists():
            made = [nvcc, f"-{kind}", *options, "-o", str(folder / f"{name}.{kind}"), str(source)]
            subprocess.run(made, capture_output=True, timeout=BUILD_TIMEOUT_S, check=False)
    program = out / folder.name
    command = [nvcc, *options, "-o", str(program), *sources, *libraries(lists)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=BUILD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return None
    return program if done.returncode == 0 else None


def run(program: Path, folder: Path, side: Side, limit_s: float) -> tuple[str, str]:
    """Run a sample; returns how it ended, and the line of its output that best says why."""
    try:
        done = subprocess.run(
            [program],
            cwd=folder,
            env=side.of_program(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "no end", f"in {limit_s:.0f} s"
    said = done.stdout + done.stderr
    if done.returncode == 0 and re.search(r"\bFAIL(ED)?\b|Test failed", said):
        return "0, FAILED", last_word(said)
    return str(done.returncode), last_word(said) if done.returncode else ""


@dataclass
class Comparison:
    """Samples that run natively and remoted, side by side in threads."""

    nvcc: str
    checkout: Path
    found: dict[str, Path]  # folders of the samples
    out: Path
    sides: list[Side]
    limit_s: float
    end: float  # a time of the monotonic clock, after which no sample begins
    prints_all: bool = False
    is_interrupted: bool = False
    outcomes: dict[str, Outcome | None] = field(default_factory=dict)  # None: does not build
    late: list[str] = field(default_factory=list)

    def judge(self, sample: str) -> None:
        program = build(self.nvcc, self.checkout, self.found[sample], self.out) if self.has_time() else None
        if not self.has_time():
            self.late.append(sample)
        elif program:
            self.compare(sample, program, " ")
        else:
            self.outcomes[sample] = None
            if self.prints_all:
                print(f"| {sample} | does not build | does not build |", flush=True)

    def has_time(self) -> bool:
        return not self.is_interrupted and time.monotonic() < self.end

    def compare(self, sample: str, program: Path, when: str) -> None:
        here, there = (run(program, self.found[sample], side, self.limit_s) for side in self.sides)
        if self.is_interrupted:  # so were the samples, in the same group of processes
            self.late.append(sample)
            return
        if self.prints_all or here[0] != there[0]:
            print(f"| {sample}{when}| {' '.join(here).strip()} | {' '.join(there).strip()} |", flush=True)
        self.outcomes[sample] = here[0], there[0]

    def run(self) -> None:
        """Judge all samples; those that are interrupted, and the rest, count as not reached."""
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            try:
                list(pool.map(self.judge, self.found))
            except KeyboardInterrupt:
                self.is_interrupted = True
        # Samples that ran at the same time share memory and processors: where the two sides differ, repeat it alone.
        for sample in [sample for sample, outcome in self.outcomes.items() if outcome and outcome[0] != outcome[1]]:
            if self.has_time():
                self.compare(sample, self.out / self.found[sample].name, " alone ")

    def worse(self) -> set[str]:
        """The samples that end with 0 natively alone."""
        return {sample for sample, outcome in self.outcomes.items() if outcome and outcome[0] == "0" != outcome[1]}

    def unexpected(self) -> set[str]:
        """Samples that end with 0 natively alone but are not in KNOWN, or are in it but end with 0 on both sides."""
        well = {sample for sample, outcome in self.outcomes.items() if outcome and outcome[0] == "0"}
        return self.worse() ^ (KNOWN.keys() & well)

    def summary(self) -> str:
        ended = [outcome for outcome in self.outcomes.values() if outcome]
        natively, remoted = (sum(outcome[side] == "0" for outcome in ended) for side in (0, 1))
        unbuilt = [sample for sample, outcome in self.outcomes.items() if not outcome]
        lines = [
            f"{len(self.found)} samples, {len(ended)} compile; end with 0 natively {natively}, remoted {remoted}; "
            f"{len(self.worse())} natively alone" + (f"; {len(self.late)} not reached" if self.late else ""),
            "do not compile: " + " ".join(unbuilt),
            *(f"expected: {sample}: {KNOWN[sample]}" for sample in sorted(KNOWN.keys() & self.worse())),
            *(f"unexpected: {sample}" for sample in sorted(self.unexpected())),
        ]
        return "\n".join([*lines, *([f"not reached: {' '.join(self.late)}"] if self.late else [])])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("names", nargs="*", help="some of them")
    parser.add_argument("--libcuda", default="libcuda.so.1")
    parser.add_argument("--limit-s", type=float, default=40, help="seconds that a program may take (40)")
    parser.add_argument("--total-s", type=float, default=1e9, help="begin no further sample after so many seconds")
    parser.add_argument("--all", action="store_true", help="print every sample's row, and no counts")
    end = time.monotonic()
    options = parser.parse_args()
    end += options.total_s
    checkout = options.checkout.resolve()
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    found = {name: folder for name, folder in samples(checkout).items() if name in (options.names or (name,))}
    with tempfile.TemporaryDirectory(prefix="vgpu-samples-") as name:
        out = Path(name)
        with Host("shm", out / "host", "cuda", "h100", options.libcuda) as host:
            sides = [native(options.libcuda), host.side]
            both = Comparison(nvcc, checkout, found, out, sides, options.limit_s, end, options.all)
            both.run()
            if not options.all:
                print(both.summary(), flush=True)
    return 0 if options.all else int(bool(both.unexpected() or both.late))


if __name__ == "__main__":
    sys.exit(main())
