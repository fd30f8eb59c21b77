"""PyTorch's own database of operators, natively and through vgpud: `python -m tests.conformance.op_db`.

Runs the first samples of each operator, forward and backward, in four dtypes. Results must have the same bits on both
sides. The native side runs twice: results that differ between these two runs are undefined (uninitialised memory, sums
in any order) and are listed as unstable. Those that are the same twice but differ remoted are computed again many times
on both sides: what natively has another value then is unstable, too; what natively never has is an error. Exit code 1:
a stable result differs or is missing remoted, or there is none. `--work` runs one worker process, which prints a line
`operator dtype sample TAB digest or error` for each result.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
import warnings
import zlib
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

# Operators that return uninitialised memory; operators for which torch documents the order of sums as undefined.
CONTENT_UNDEFINED = ("empty", "new_empty")
ORDER_UNDEFINED = ("nn.functional.upsample_bilinear",)
DTYPES = ("float32", "bfloat16", "complex64", "int64")
SAMPLES, SAMPLE_TIMEOUT_S = 5, 30
ROUNDS = 40  # in which a process computes again what differs
NATIVE_AGAIN, REMOTED_AGAIN = 3, 2  # processes that do so
ROOT = Path(__file__).resolve().parents[2]

Found = tuple[dict[str, str], list[str]]  # outcomes by name, and messages of failed processes
Seen = dict[str, set[str]]  # the outcomes of a result in many computations


def work(part: int, parts: int, samples: int, only: Collection[str] = (), rounds: int = 1) -> None:
    """Run every `parts`-th operator, from operator `part` on, or what computes the results `only`; print the
    outcomes."""
    if not _has("expecttest"):  # the base class of torch's tests derives from its TestCase, which is unused
        stub = types.ModuleType("expecttest")
        stub.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stub
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _on_alarm)
    torch.use_deterministic_algorithms(False)
    titles = {name.rpartition(" ")[0] for name in only}
    for number, op, name in itertools.product(range(rounds), op_db[part::parts], DTYPES):
        dtype = getattr(torch, name)
        title = f"{op.name}{'.' + op.variant_test_name if op.variant_test_name else ''} {name}"
        if (only and title not in titles) or dtype not in op.supported_dtypes("cuda"):
            continue
        if only:
            _litter(number)
        for sample, outcome in _outcomes(op, dtype, title, samples):
            if not only or sample in only:
                print(f"{sample}\t{outcome}", flush=True)


def _outcomes(op: Any, dtype: Any, title: str, samples: int) -> Iterable[tuple[str, str]]:
    backward = op.supports_autograd and dtype.is_floating_point
    _seed(title)
    try:
        inputs = op.sample_inputs("cuda", dtype, requires_grad=backward)
        for i, sample in enumerate(itertools.islice(inputs, samples)):
            yield f"{title} {i}", _outcome(op, sample, backward)
            _seed(f"{title} {i}")
    except Exception as error:  # torch fails to make the samples
        yield f"{title} samples", type(error).__name__


def _litter(number: int) -> None:
    """Leave other bytes in torch's free memory than the round before, so that results of unset memory differ."""
    import torch

    sizes = [512 << i for i in range(14) for _ in range(8)]
    kept = [torch.full((size,), number % 251, dtype=torch.uint8, device="cuda") for size in sizes]
    del kept


def _has(module: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(module) is not None


def _on_alarm(*_: object) -> None:
    raise TimeoutError


def _seed(text: str) -> None:
    import numpy as np
    import torch

    number = zlib.crc32(text.encode())
    torch.manual_seed(number)
    np.random.seed(number)
    random.seed(number)


def _outcome(op: Any, sample: Any, backward: bool) -> str:
    """A digest of results and gradients, or the name of the exception."""
    signal.alarm(SAMPLE_TIMEOUT_S)
    try:
        return _digest(_results(op, sample, backward), op.name.startswith(CONTENT_UNDEFINED))
    except Exception as error:
        return type(error).__name__
    finally:
        signal.alarm(0)


def _tensors(value: Any) -> list[Any]:
    import torch
    from torch.utils._pytree import tree_flatten

    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]


def _results(op: Any, sample: Any, backward: bool) -> list[Any]:
    import torch

    result = op(sample.input, *sample.args, **sample.kwargs)
    found = _tensors(sample.output_process_fn_grad(result) if backward else result)
    outputs = [t for t in found if t.requires_grad and (t.is_floating_point() or t.is_complex())]
    inputs = [t for t in _tensors((sample.input, sample.args, sample.kwargs)) if t.requires_grad]
    if outputs and inputs:
        ones = [torch.ones_like(t) for t in outputs]
        found += [g for g in torch.autograd.grad(outputs, inputs, ones, allow_unused=True) if g is not None]
    return found


def _digest(tensors: list[Any], shapes_alone: bool) -> str:
    import torch

    digest = hashlib.sha256()
    for tensor in tensors:
        plain = tensor.detach()
        plain = plain.to_dense() if plain.layout != torch.strided else plain
        plain = plain.cpu().resolve_conj().resolve_neg().contiguous()
        digest.update(f"{plain.dtype} {tuple(plain.shape)}".encode())
        if not shapes_alone:
            digest.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b"")
    return f"={digest.hexdigest()[:16]}"


def outcomes(env: dict[str, str], parts: int, samples: int, limit_s: float) -> Found:
    """Run all operators on one side in `parts` processes; returns outcomes, and messages of failed processes."""
    said, failures = _processes(env, [["--work", f"{part}/{parts}"] for part in range(parts)], samples, limit_s)
    return dict(said), failures


def again(env: dict[str, str], names: Collection[str], processes: int, samples: int, limit_s: float) -> Seen:
    """Compute some results many times on one side; returns the outcomes that each had."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as only:
        only.write("\n".join(names))
        only.flush()
        command = ["--work", "0/1", "--only", only.name]
        said, failures = _processes(env, [command] * processes, samples, limit_s)
    print(*(f"again: {failure}" for failure in failures), sep="\n", end="\n" if failures else "")
    seen: Seen = {name: set() for name in names}
    for name, outcome in said:
        seen[name].add(outcome)
    return seen


def _processes(
    env: dict[str, str], commands: Iterable[list[str]], samples: int, limit_s: float
) -> tuple[list[tuple[str, str]], list[str]]:
    """Run worker processes at once; returns their results, and messages of those that failed."""
    deadline = time.monotonic() + limit_s
    # torch takes some samples from sets of strings, whose order is another in each process otherwise.
    env = {**env, "PYTHONHASHSEED": "0"}

    def one(arguments: list[str]) -> tuple[str, str]:
        command = [sys.executable, "-m", "tests.conformance.op_db", *arguments, "--samples", str(samples)]
        with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(command, env=env, cwd=ROOT, stdout=said, stderr=errors)
            try:
                code = process.wait(max(1.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            said.seek(0)
            errors.seek(0)
            return said.read(), "" if code == 0 else f"part {arguments[1]}: exit {code}: {errors.read()[-300:]}"

    commands = list(commands)
    with ThreadPoolExecutor(len(commands)) as pool:
        done = list(pool.map(one, commands))
    lines = [line.partition("\t") for text, _ in done for line in text.splitlines() if "\t" in line]
    return [(name, outcome) for name, _, outcome in lines], [failure for _, failure in done if failure]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.op_db", description=__doc__)
    parser.add_argument("--work", help="PART/PARTS: be one of the processes")
    parser.add_argument("--only", type=Path, help="of --work: a file with a result's name on each line, computed often")
    parser.add_argument("--libcuda", default="libcuda.so.1")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--parts", type=int, default=max(1, (os.cpu_count() or 1) // 4), help="processes on each side")
    parser.add_argument("--limit-s", type=float, default=420)
    options = parser.parse_args()
    if options.work:
        part, _, parts = options.work.partition("/")
        only = options.only.read_text().splitlines() if options.only else ()
        work(int(part), int(parts), options.samples, set(only), ROUNDS if only else 1)
        return 0
    from vgpud.bench.side import Host, native

    end = time.monotonic() + options.limit_s
    with (
        tempfile.TemporaryDirectory(prefix="vgpu-op-db-") as folder,
        ThreadPoolExecutor(3) as pool,
        Host("shm", Path(folder), "cuda", "h100", options.libcuda) as host,
    ):
        sides = [native(options.libcuda), native(options.libcuda), host.side]
        given = (options.parts, options.samples, options.limit_s)
        first, second, remoted = pool.map(lambda side: outcomes(side.of_program(), *given), sides)
        names = differing(first, second, remoted)
        left_s = end - time.monotonic()
        many: list[Seen] = [{}, {}]
        if names:
            many = list(
                pool.map(
                    lambda side, processes: again(side.of_program(), names, processes, options.samples, left_s),
                    sides[1:],
                    (NATIVE_AGAIN, REMOTED_AGAIN),
                )
            )
    return report(first, second, remoted, *many)


def differing(first: Found, second: Found, remoted: Found) -> list[str]:
    """Names of results that are the same in two native runs, but not remoted."""
    return [
        name
        for name, outcome in first[0].items()
        if second[0].get(name) == outcome and remoted[0].get(name, outcome) != outcome
    ]


def _varies(name: str, outcome: str, natively: Seen) -> bool:
    """Whether a result that was computed has had another value natively; that it could not be computed once says
    nothing."""
    digests = {each for each in natively.get(name, ()) if each.startswith("=")}
    return outcome.startswith("=") and len(digests | {outcome}) > 1


def report(first: Found, second: Found, remoted: Found, natively: Seen | None = None, there: Seen | None = None) -> int:
    """Print the differences and the counts; returns the exit code.

    Args:
        first, second: Of the native runs.
        natively, there: What differs, computed again on both sides.
    """
    stable = {name: outcome for name, outcome in first[0].items() if second[0].get(name) == outcome}
    unstable = [name for name in first[0] if name in second[0] and name not in stable]
    different = []
    for name in differing(first, second, remoted):
        if name.startswith(ORDER_UNDEFINED) or _varies(name, stable[name], natively or {}):
            unstable.append(name)
            del stable[name]
        else:
            different.append(name)
    absent = [name for name in stable if name not in remoted[0]]
    for name in different:
        seen = " ".join(sorted((there or {}).get(name, ()))) or "nothing"
        print(f"different: {name}: natively {stable[name]}, remoted {remoted[0][name]}; again {seen}")
    for name in absent[:20]:
        print(f"not reached remoted: {name}")
    for side, (_, failures) in (("native", first), ("native, again", second), ("remoted", remoted)):
        for failure in failures:
            print(f"{side}: {failure}")
    digests = sum(outcome.startswith("=") for outcome in stable.values())
    print("unstable natively: " + " ".join(name.replace(" ", ":") for name in unstable))
    print(f"{len(first[0])} results natively, {len(stable)} always the same ({digests} computed, the others errors), "
          f"{len(unstable)} unstable; remoted {len(stable) - len(different) - len(absent)} the same, "
          f"{len(different)} different, {len(absent)} not reached")  # fmt: skip
    failed = any(failures for _, failures in (first, second, remoted))  # what they had not reached is in no count
    return 1 if different or absent or failed or not stable else 0


if __name__ == "__main__":
    sys.exit(main())
