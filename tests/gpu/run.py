"""Everything that needs a card, in one command: `python3 tests/gpu/run.py --wheels DIR --out DIR`.

For a machine with a card and little else: the script needs a C compiler, nvcc and a Python with the frameworks to
compare, but neither a network nor a virtual environment. Other packages come as wheels, which
`python3 tests/gpu/run.py --fetch DIR` downloads on another machine. The script builds in a copy of this tree, then runs
checks (tests/gpu, then frameworks on two devices, which one-device machines skip, then tests/conformance natively and
remoted, over shared memory and over a plain socket, PyTorch's database of operators) and measurements (a training while
vgpud is upgraded, a training step over TCP with a latency, what two tenants get of one card, `vgpu bench`,
tests/bench/driver.py). Each step writes a file into --out; machine.txt has the card, the driver, the date, the
commit, and what the machine did besides. The exit code is 1 if a step failed; the other steps run all the same.

`--renew` runs what docs/real-gpu.md is renewed by, in two calls of --total-s seconds (570) each, as all of it takes
longer than many a machine is lent for a command. With `--built DIR` the second call uses what the first has built.
tests/gpu/page.py puts the results into the page. The plan (two cards, 32 processors, nothing else on the machine):

- `--part checks`: builds (45 s); then side by side (225 s) the test of addresses (claim), tests/gpu, conformance on
  both channels, NVIDIA's samples (`--samples`) and, on the second card, PyTorch's operators; then, alone, the tests
  that fill a card's memory (105 s).
- `--part measurements`, each alone: driver calls (20 s), their stages (40), the profile (30); training over TCP on the
  second card and half of the processors, beside what tenants get of the first (130); two devices, with NCCL over a
  socket at the end (160); `vgpu bench` (105). With one card or fewer processors none runs beside another.

Seconds are shares of what is left when a group begins, so what ends early leaves its time to the next. A step that is
out of time is ended; what it has printed stays.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = (
    ("-m", "protocol.gen"),
    ("shim/build.py",),
    ("shim/build_cudart.py",),
    ("shim/build_cupti.py",),
    ("shim/build_notice.py",),
    ("daemon/bench/build.py",),
    ("daemon/executor/build_ffi.py",),
)
LEFT_OUT = {"llvmlite", "pyroute2"}  # for the simulator, which is not tested here, and for the doctor's routes
NOT_COPIED = (".git", ".venv", "build", "_gen", "_lib", "*.so", "*.whl", "__pycache__", ".*_cache")
VGPU = "import sys; from vgpud.cli.main import vgpu; sys.exit(vgpu())"
# By --renew, for each part: steps that run at once, and how many seconds they needed on two H200s at b09ff7f6, checks
# on 20 processors, measurements on 32.
Groups = tuple[tuple[tuple[str, ...], int], ...]
CHECKS: Groups = ((("claim", "tests", "conformance", "samples", "op_db"), 225), (("memory",), 105))
MEASUREMENTS: Groups = (
    (("driver",), 20),
    (("stages",), 40),
    (("profile",), 30),
    (("network", "shares"), 130),
    (("several",), 160),
    (("bench",), 105),
)
ALONE_S = {"network": 70, "shares": 130}  # if a measurement has to run by itself
HALVES = 32  # processors that are enough for two measurements at once
PARTS = {"checks": CHECKS, "measurements": MEASUREMENTS, "both": CHECKS + MEASUREMENTS}
SECOND = {"op_db", "network"}  # steps that run on the second card, beside steps that need the first
CLAIM = "tests/gpu/test_claim.py"  # of addresses, and what it prints
# Tests that fill a card's memory, beside which nothing else can allocate any.
FILLING = (
    "tests/gpu/test_shares_memory.py",
    "tests/gpu/test_shares_gpus.py",
    "tests/gpu/test_residue.py",
    "tests/gpu/test_faults.py",
)
LIMIT = "LIMIT-"  # an argument: with the seconds before the step's end after which it begins nothing more
STATUS = "ended with status"
END_S = 10  # for a program to end by itself when it is interrupted
Placed = dict[str, Sequence[int]]  # steps that run at once, and the processors of each
TESTS = ("pytest", "pytest-asyncio", "pytest-timeout", "setuptools")  # cffi compiles with setuptools


def steps(libcuda: str, out: Path, rounds: int, samples: str, renewed: bool) -> dict[str, tuple[str, ...]]:
    """Each step's name and Python arguments. Checks come first: times count only if the results are right."""
    bench = ("-c", VGPU, "bench", "--rounds", str(rounds), "--libcuda", libcuda)
    conformance = ("-m", "tests.conformance", "--libcuda", libcuda, "--native", "--remoted")
    jobs = max(6, len(os.sched_getaffinity(0)) // 3)
    both = (*conformance, "--no-recorded", "--channel", "shm", "unix", "--jobs", str(jobs), "--limit-s", f"{LIMIT}75")
    pytest = ("-m", "pytest", "-p", "no:cacheprovider", "-W", "ignore", "-m", "gpu", "--timeout", "300", "-rfEx")
    ignored = [f"--ignore={name}" for name in ("tests/gpu/test_several.py", CLAIM, *FILLING)]
    windows = ("--seconds", "2.5") if renewed else ()
    in_parts = ("--parts", "3", "--limit-s", f"{LIMIT}20") if renewed else ()
    return {
        "tests": (*pytest, "tests/gpu", *ignored),
        "claim": (*pytest, "-s", CLAIM),
        "memory": (*pytest, *FILLING),
        "several": (*pytest, "-s", "tests/gpu/test_several.py"),
        "conformance": both if renewed else conformance,
        "socket": (*conformance, "--no-recorded", "--channel", "unix"),
        **(
            {"samples": ("tests/gpu/samples.py", samples, "--libcuda", libcuda, "--total-s", f"{LIMIT}110")}
            if samples
            else {}
        ),
        "op_db": ("-m", "tests.conformance.op_db", "--libcuda", libcuda, *in_parts),
        "smi": ("tests/gpu/smi.py", "--libcuda", libcuda, "--out", str(out / "smi")),
        "network": (
            "tests/gpu/network.py",
            "--libcuda",
            libcuda,
            "--rounds",
            str(min(5, rounds)),
            "--out",
            str(out / "network.md"),
        ),
        "upgrade": ("tests/gpu/upgrade.py", "--libcuda", libcuda, "--out", str(out / "upgrade.md")),
        "shares": ("tests/gpu/shares.py", *windows, "--libcuda", libcuda, "--out", str(out / "shares.md")),
        "profiles": ("tests/gpu/profiles.py", "--libcuda", libcuda, "--out", str(out / "profiles")),
        "bench": (*bench, "--out", str(out), "--name", "bench"),
        "weights": ("tests/bench/driver.py", "--rounds", "3", "--weights", "alone", "--libcuda", libcuda),
        "driver": ("tests/bench/driver.py", "--rounds", str(max(3, rounds - 2)), "--libcuda", libcuda),
        "stages": ("tests/gpu/stages.py", "--rounds", str(min(4, rounds)), "--libcuda", libcuda),
        "profile": ("tests/bench/driver.py", "--profile", "--libcuda", libcuda),
    }


def fetch(folder: Path, python_version: str, left_out: Collection[str] = LEFT_OUT) -> int:
    """Download what the steps need for CPython `python_version` on Linux and this machine's kind of processor."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    wanted = [name for name in wanted if name.split(">=")[0] not in left_out]
    target = ["--python-version", python_version, "--only-binary", ":all:"]
    target += [
        "--platform",
        f"manylinux2014_{platform.machine()}",
        "--platform",
        f"manylinux_2_28_{platform.machine()}",
    ]
    return subprocess.run(
        [sys.executable, "-m", "pip", "download", "--dest", folder, *target, *wanted, *TESTS]
    ).returncode


def said(*command: str) -> str:
    """What a command prints, or the error if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stdout if done.returncode == 0 else done.stderr).strip()


def describe(python: str, commit: str) -> str:
    frameworks = "; ".join(
        (said(python, "-c", f"import {name}; print({name!r}, {name}.__version__)").splitlines() or ["?"])[-1]
        for name in ("torch", "cupy", "jax", "triton")
    )
    card = said("nvidia-smi", "--query-gpu=name,driver_version,pci.device_id,memory.total", "--format=csv,noheader")
    lines = {
        "date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "commit": commit or said("git", "describe", "--always", "--dirty"),
        "card": card,
        "processors": str(len(os.sched_getaffinity(0))),
        "system": platform.platform(),
        "python": f"{platform.python_version()}: {frameworks}",
    }
    return "".join(f"{key}: {value}\n" for key, value in lines.items())


def busy_jiffies() -> int:
    """The time that the machine's processors have worked."""
    user, nice, system, _idle, _waiting, *others = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return user + nice + system + sum(others[:2])


def beside() -> str:
    """What works on this machine while no step runs."""
    begin, jiffies = time.monotonic(), busy_jiffies()
    time.sleep(1)
    busy = (busy_jiffies() - jiffies) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - begin)
    programs = re.findall(
        r"^\d+$", said("nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"), re.MULTILINE
    )
    return f"{busy:.1f} processors busy, {len(programs)} programs on the cards"


def run(
    tree: Path, env: dict[str, str], arguments: Sequence[str], log: Path, limit_s: int, processors: Collection[int] = ()
) -> bool:
    """Run Python with `arguments`, on some processors or all; returns whether it succeeded. The output goes to `log`,
    and how it failed."""
    bound = ["taskset", "-c", ",".join(map(str, processors))] if processors else []
    with log.open("w") as output:
        program = subprocess.Popen(
            [*bound, sys.executable, *arguments],
            cwd=tree,
            env=env,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = program.wait(limit_s)
        except subprocess.TimeoutExpired:
            end(program)
            output.write(f"\nended after {limit_s} s\n")
            return False
        if status:
            output.write(f"\n{STATUS} {status}\n")
    return status == 0


def end(program: subprocess.Popen[bytes]) -> None:
    """End a program and all that it has started, so that nothing of it runs beside the next step."""
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(program.pid, signal.SIGINT)
        program.wait(END_S)
    with suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)
    program.wait()


def environment(folder: Path) -> dict[str, str]:
    """Of programs that run what is built in `folder`."""
    return {**os.environ, "PYTHONPATH": f"{folder / 'site'}:daemon:guest:."}


def build(folder: Path, wheels: Path | None, out: Path, commands: Sequence[Sequence[str]] = BUILD) -> dict[str, str]:
    """Copy this tree to `folder`/tree and build it; returns the environment for programs. Raises RuntimeError."""
    site, tree = folder / "site", folder / "tree"
    patterns = shutil.ignore_patterns(*NOT_COPIED)

    def left_out(parent: str, names: list[str]) -> set[str]:
        return patterns(parent, names) | {name for name in names if Path(parent, name) == out}

    shutil.copytree(ROOT, tree, ignore=left_out, symlinks=True)
    if wheels:
        files = sorted(wheels.resolve().glob("*.whl"))
        install = ["-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", str(site)]
        subprocess.run([sys.executable, *install, *map(str, files)], check=True)
    env = environment(folder)
    for arguments in commands:
        if not run(tree, env, arguments, out / "build.txt", 300):
            raise RuntimeError(f"build: failed\n{(out / 'build.txt').read_text()}")
    return env


def built(folder: Path, wheels: Path | None, out: Path) -> dict[str, str]:
    """As build, unless this tree has been built there. Raises RuntimeError."""
    done, files = folder / "built", hashlib.sha256()
    for parent, folders, names in os.walk(ROOT):
        folders[:] = sorted(name for name in folders if not any(fnmatch(name, each) for each in NOT_COPIED))
        wanted = (name for name in names if not any(fnmatch(name, each) for each in NOT_COPIED))
        for path in sorted(Path(parent, name) for name in wanted):
            if path.is_file():
                files.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    if done.exists() and done.read_text() == files.hexdigest():
        return environment(folder)
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(mode=0o755)
    env = build(folder, wheels, out)
    done.write_text(files.hexdigest())
    return env


def run_step(
    folder: Path,
    env: dict[str, str],
    step: str,
    arguments: Sequence[str],
    out: Path,
    limit_s: int,
    processors: Collection[int] = (),
) -> bool:
    """Run one step, with output to a file and its last line to the screen. Returns whether it succeeded."""
    begin = time.monotonic()
    for old in out.glob(f"{step}.*"):  # of an earlier run into the same folder
        old.unlink()
    arguments = [re.sub(rf"^{LIMIT}(\d+)$", lambda m: str(max(1, limit_s - int(m[1]))), each) for each in arguments]
    well = run(folder / "tree", env, arguments, out / f"{step}.txt", limit_s, processors)
    lines = [line for line in (out / f"{step}.txt").read_text().splitlines() if line and not line.startswith(STATUS)]
    last = (lines or [""])[-1]
    print(f"{step}: {'well' if well else 'failed'} in {time.monotonic() - begin:.0f} s: {last}", flush=True)
    return well


def run_steps(folder: Path, env: dict[str, str], chosen: dict[str, tuple[str, ...]], out: Path, limit_s: int) -> bool:
    """Run the steps one after another. Returns whether one failed."""
    done = [run_step(folder, env, step, arguments, out, limit_s) for step, arguments in chosen.items()]
    return not all(done)


def device_count() -> int:
    """The number of cards, according to nvidia-smi."""
    return said("nvidia-smi", "-L").count("GPU ")


def groups(part: str, chosen: Collection[str], cards: int, processors: Sequence[int]) -> list[tuple[Placed, int]]:
    """The chosen steps of a part: which run at once, each with its processors (empty: all), and how many seconds."""
    placed: list[tuple[Placed, int]] = []
    for group, share in PARTS[part]:
        names = [name for name in group if name in chosen]
        if (group, share) not in MEASUREMENTS or len(names) < 2:
            of_one = ALONE_S.get(names[0], share) if len(names) == 1 else share
            placed += [(dict.fromkeys(names, ()), of_one)] if names else []
        elif cards < 2 or len(processors) < HALVES:
            placed += [({name: ()}, ALONE_S[name]) for name in names]
        else:
            size = len(processors) // len(names)
            placed.append(({name: processors[i * size : (i + 1) * size] for i, name in enumerate(names)}, share))
    return placed


def renew(
    folder: Path, env: dict[str, str], chosen: dict[str, tuple[str, ...]], out: Path, end: float, part: str
) -> bool:
    """Run the steps of a part that are chosen until `end`, a time of the monotonic clock. Returns whether one
    failed."""
    well, cards = True, device_count()
    wanted = groups(part, chosen, cards, sorted(os.sched_getaffinity(0)))
    second = SECOND if cards > 1 else set()
    for i, (names, share) in enumerate(wanted):
        left = end - time.monotonic()
        limit_s = max(1, int(left * share / sum(share for _, share in wanted[i:])))
        for name, processors in names.items():
            if processors:
                others = " and ".join(other for other in names if other != name)
                with (out / "machine.txt").open("a") as machine:
                    print(f"{name}: on {len(processors)} processors, beside it {others} on the others", file=machine)

        def one(name: str, limit_s: int = limit_s, names: Placed = names) -> bool:
            of_step = env | {"CUDA_VISIBLE_DEVICES": "1"} if name in second else env
            return run_step(folder, of_step, name, chosen[name], out, limit_s, names[name])

        with ThreadPoolExecutor(len(names)) as pool:
            well = all([well, *pool.map(one, names)])
    return not well


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the results (results)")
    parser.add_argument("--wheels", type=Path, help="folder with what --fetch has downloaded; without it: installed")
    parser.add_argument("--fetch", type=Path, metavar="DIR", help="download the wheels, and that is all")
    parser.add_argument("--python-version", default="3.12", help="of the machine with the card, for --fetch (3.12)")
    parser.add_argument("--libcuda", default="libcuda.so.1", help="NVIDIA's driver, if the linker does not find it")
    parser.add_argument("--samples", default="", help="a checkout of NVIDIA's cuda-samples, for the step of that name")
    parser.add_argument("--rounds", type=int, default=7, help="windows of each measurement (7)")
    parser.add_argument("--limit-s", type=int, default=480, help="seconds that a step may take (480)")
    parser.add_argument("--commit", default="", help="of this tree, where it is a copy without .git")
    parser.add_argument("--renew", action="store_true", help="what docs/real-gpu.md is renewed by, in one call")
    parser.add_argument("--part", choices=PARTS, default="both", help="of --renew: what one call does (both)")
    parser.add_argument("--total-s", type=int, default=570, help="seconds that --renew may take (570)")
    parser.add_argument("--built", type=Path, metavar="DIR", help="build there, or use what this tree has built there")
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="STEP",
        help="some of those that each write a file",
    )
    begin = time.monotonic()
    options = parser.parse_args()
    if options.fetch:
        return fetch(options.fetch, options.python_version)
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    chosen = steps(options.libcuda, out, 3 if options.renew else options.rounds, options.samples, options.renew)
    if options.renew and options.only and not any(set(options.only) & set(group) for group, _ in PARTS[options.part]):
        parser.error(f"no step of this part: {' '.join(options.only)}")
    if unknown := set(options.only or ()) - set(chosen):
        parser.error(f"no such step: {' '.join(sorted(unknown))}")
    (out / "machine.txt").write_text(describe(sys.executable, options.commit))
    print((out / "machine.txt").read_text(), end="", flush=True)
    with ExitStack() as stack:
        folder = options.built or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vgpu-gpu-")))
        try:
            env = built(folder.resolve(), options.wheels, out) | {"VGPU_TEST_LIBCUDA": options.libcuda}
        except RuntimeError as error:
            print(error)
            return 1
        picked = {step: chosen[step] for step in options.only or chosen}
        with (out / "machine.txt").open("a") as machine:
            print("before:", beside(), file=machine, flush=True)
            if options.renew:
                has_failed = renew(folder.resolve(), env, picked, out, begin + options.total_s, options.part)
            else:
                has_failed = run_steps(folder.resolve(), env, picked, out, options.limit_s)
            print("after:", beside(), file=machine)
        return has_failed


if __name__ == "__main__":
    sys.exit(main())
