"""Other people's test suites on a machine with many processors and no network: `python3 tests/ecosystem/elsewhere.py`.

It needs a C compiler and a Python with numba, torch and NVIDIA's NVRTC, nvJitLink and NVVM. Like tests/long.py, it
builds in a copy of this tree with --wheels. --inputs has what the suites need: wheels/*.whl and *.pth for the programs'
Python; tinygrad/, cupy/ and cuda-samples/ (checkouts, or what of them is run), tutorials/ (Triton's), ggml/ (its
test-backend-ops), hashcat/ (Debian's files, with lib/ for its libraries). A suite whose input is missing is left out.
--out gets results.tsv (a line for each test), results-failures.txt and, with --card, card.tsv and card-failures.txt:
what failed, run again on the machine's own device. With --card NVIDIA's samples run there in any case, natively and
remoted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import site
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.ecosystem import suites  # noqa: E402
from tests.ecosystem.samples import samples  # noqa: E402
from tests.ecosystem.suite_runner import WELL, Result, Runner, Unit  # noqa: E402
from tests.gpu.run import build, describe  # noqa: E402

BUILD = (
    ("-m", "protocol.gen"),
    ("shim/build.py",),
    ("shim/build_compiler.py",),
    ("shim/build_notice.py",),
    ("pytorch/build.py",),
    ("daemon/executor/build_ffi.py",),
)
CARD_S = 70  # of --total-s, for --card


def make_python(folder: Path, wheels: Path) -> Path:
    """A virtual environment with `wheels` that sees the packages of the running Python, too."""
    venv.create(folder, with_pip=False, symlinks=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    install = ["-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile", "--target", packages]
    subprocess.run([sys.executable, *install, *sorted(wheels.glob("*.whl"))], check=True)
    for file in wheels.glob("*.pth"):
        shutil.copy(file, packages)
    outer = [sysconfig.get_path("purelib"), *site.getsitepackages()]
    lines = [f"import site; site.addsitedir({path!r})" for path in dict.fromkeys(outer)]
    (packages / "zz-outer.pth").write_text("\n".join(lines) + "\n")
    for path in (*outer, *sys.path):
        if Path(path, "nvidia/cu13").is_dir():  # where `vgpu run` looks for the program's libraries
            (packages / "nvidia").symlink_to(Path(path, "nvidia"))
            break
    return folder / "bin/python3"


def processors(text: str) -> set[int]:
    """The numbers in a list as taskset has it."""
    ranges = [part.partition("-") for part in text.split(",")]
    return {number for first, _, last in ranges for number in range(int(first), int(last or first) + 1)}


def chosen(python: Path, inputs: Path) -> dict[str, suites.Suite]:
    packages = next(python.parents[1].glob("lib/python*/site-packages"))
    libraries = packages / "nvidia/cu13/lib"
    found = {}
    if (packages / "numba_cuda").is_dir():
        found["numba-cuda"] = suites.numba_cuda(python, packages)
    if (inputs / "tinygrad").is_dir():
        found["tinygrad"] = suites.tinygrad(python, inputs / "tinygrad", libraries)
    if (inputs / "hashcat").is_dir():
        found["hashcat"] = suites.hashcat(inputs / "hashcat/hashcat", python, inputs / "hashcat/lib")
    found["vgpu"], found["frameworks"] = suites.own(python, ROOT), suites.frameworks(python)
    if (inputs / "cupy").is_dir():
        found |= suites.cupy(python, inputs / "cupy")
    if (inputs / "ggml").is_dir():
        found["ggml"] = suites.ggml(inputs / "ggml/test-backend-ops")
    if (inputs / "tutorials").is_dir():
        found["tutorials"] = suites.tutorials(python, inputs / "tutorials")
    if (inputs / "cuda-samples").is_dir():
        names = samples(inputs / "cuda-samples")
        found["samples"] = suites.samples(python, inputs / "cuda-samples", names)
        found[suites.ON_CARD] = suites.samples_on_card(python, copy_of(inputs / "cuda-samples"), names)
    return found


def copy_of(folder: Path) -> Path:
    return Path(shutil.copytree(folder, folder.with_name(f"{folder.name}-copy"), dirs_exist_ok=True))


def write(results: Sequence[Result], out: Path, name: str) -> None:
    ordered = sorted(results, key=lambda result: (result.suite, result.test))
    (out / f"{name}.tsv").write_text("".join(f"{each.row}\n" for each in ordered))
    failed = [each for each in ordered if not each.is_well and each.outcome != "not run"]
    texts = [f"=== {each.suite} {each.test}: {each.outcome} {each.message}\n{each.text}\n" for each in failed]
    (out / f"{name}-failures.txt").write_text("\n".join(texts))
    counts = Counter((each.suite, each.outcome) for each in results)
    for (suite, outcome), count in sorted(counts.items()):
        print(f"{name}: {suite}: {count} {outcome}", flush=True)


def inside(options: argparse.Namespace, end: float) -> int:
    """The part that runs in the built copy of the tree."""
    out, begin = options.out, time.monotonic()
    os.environ.setdefault("CUDA_HOME", "/usr/local/cuda")
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="vgpu-suites-"))
        os.chmod(name, 0o755)
        python = make_python(Path(name, "python"), options.inputs / "wheels")
        known = chosen(python, options.inputs)
        picked = [known[suite] for suite in options.only or known if options.card or suite != suites.ON_CARD]
        table = stack.enter_context((out / "results.tsv").open("w", buffering=1))  # stays if this process is ended
        until = end - (CARD_S if options.card else 0)
        runner = Runner(options.jobs, until, report=lambda result: print(result.row, file=table))
        before = [row.split("\t") for row in options.done.read_text().splitlines()] if options.done else []
        done = {(row[0], row[3]) for row in before if row[1] in WELL}
        all_units = runner.collect(picked, options.few, done)
        print(
            f"{sum(len(unit.tests) for unit in all_units)} tests found in {time.monotonic() - begin:.0f} s", flush=True
        )
        runner.run(all_units, {row[3]: float(row[2]) for row in before})
        write(runner.results, out, "results")
        print(f"ran for {time.monotonic() - begin:.0f} s with {options.jobs} processes", flush=True)
        failed = [each for each in runner.results if not each.is_well and each.outcome != "not run"]
        failed = [each for each in failed if known[each.suite].gpu]  # the others start `vgpu run` themselves
        if options.card and failed:
            card = Runner(min(8, options.jobs), end, native=True)
            card.run([Unit(known[each.suite], (each.test,)) for each in failed])
            write(card.results, out, "card")
    return 0


def main() -> int:
    begin = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the results (results)")
    parser.add_argument("--wheels", type=Path, help="vgpu's own packages (tests/gpu/run.py --fetch); else: installed")
    parser.add_argument("--inputs", type=Path, required=True)
    parser.add_argument("--cpus", default="", help="processors to be used, as 0-7,16 (all)")
    parser.add_argument("--jobs", type=int, help="processes at once (processors)")
    parser.add_argument("--total-s", type=float, default=420, help="seconds, the build included (420)")
    parser.add_argument("--few", type=int, default=0, help="only so many processes' tests of each suite")
    parser.add_argument("--only", nargs="+", metavar="SUITE", help="some of the suites")
    parser.add_argument("--done", type=Path, help="results.tsv of an earlier run: what was well there is left out")
    parser.add_argument("--card", action="store_true", help="run what failed on the machine's own device as well")
    parser.add_argument("--commit", default="", help="of this tree, where it is a copy without .git")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out, options.inputs = options.out.resolve(), options.inputs.resolve()
    options.done = options.done and options.done.resolve()
    end = begin + options.total_s
    if options.cpus:
        os.sched_setaffinity(0, processors(options.cpus))
    options.jobs = options.jobs or len(os.sched_getaffinity(0))
    if options.inside:
        return inside(options, end)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "machine.txt").write_text(describe(sys.executable, options.commit))
    with tempfile.TemporaryDirectory(prefix="vgpu-elsewhere-") as name:
        os.chmod(name, 0o755)  # workers have user ids of their own
        try:
            env = build(Path(name), options.wheels, options.out, BUILD)
        except RuntimeError as error:
            print(error)
            return 1
        print(f"built in {time.monotonic() - begin:.0f} s", flush=True)
        own = [
            *(["--done", options.done] if options.done else []),
            "--inside",
            "--out",
            options.out,
            "--inputs",
            options.inputs,
            "--total-s",
            end - time.monotonic(),
        ]
        tree = Path(name, "tree")
        command = [sys.executable, "-m", "tests.ecosystem.elsewhere", *sys.argv[1:], *map(str, own)]
        return subprocess.run(command, cwd=tree, env=env).returncode


if __name__ == "__main__":
    sys.exit(main())
