"""What a device computes in random programs (tests/vgpusim/codegen/random_kernel.py).

    python3 tests/gpu/programs.py OUT --first SEED --count N [--also SEED ...] [--parts N] [--jobs N]
        [--known FILE.tsv] [--limit-s S]

It needs numpy and libcuda alone. OUT/programs.tsv has a line for each seed: the seed, a digest of the program's text
and inputs, one of what is in memory afterwards, and the same of the program compiled without optimizations; or
`refused` and the driver's error. OUT/columns.npz has a checksum of each word of the threads' memory over all threads,
and of each thread over all words, by seed. FILE.tsv is an earlier programs.tsv: of programs with another digest
OUT/words.npz has the memory itself. OUT/parts.npz has the checksums of these, and of the first N programs, after each
of their outermost statements."""

from __future__ import annotations

import argparse
import ctypes
import lzma
import multiprocessing
import sys
import time
import zlib
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.gpu.driver import Driver, Refusal, Words
from tests.vgpusim.codegen import random_kernel
from tests.vgpusim.codegen.random_kernel import SLOT_NBYTES, RandomKernel

_LEVELS = (4, 0)  # of ptxas's optimizations
AT_ONCE = 8  # programs of a module: ptxas takes each pointer to a function for any function of its module
Answer = tuple[int, str, str, Words | None, Words | None]  # seed, digests, memory, checksums


def checksums(words: Words) -> Words:
    """Of each word over all threads, then of each thread over all words."""
    slots = words.reshape(-1, SLOT_NBYTES // 4)
    rows = [*np.ascontiguousarray(slots.T), *slots]
    return np.array([zlib.crc32(row.tobytes()) for row in rows], np.uint32)


def _one(driver: Driver, kernel: RandomKernel, module: ctypes.c_void_p, name: str) -> Answer:
    words, counters = random_kernel.inputs(kernel)
    addresses = driver.copy(words), driver.copy(counters)
    driver.launch(module, kernel.grid, kernel.block, *addresses, random_kernel.argument(kernel), name=name)
    driver.read(addresses[0], words)
    driver.read(addresses[1], counters)
    for address in addresses:
        driver.free(address)
    both = np.concatenate([words, counters])
    return kernel.seed, random_kernel.question(kernel), random_kernel.digest(words, counters), both, checksums(words)


def _parts(seed: int) -> tuple[int, list[Words]]:
    driver, kernel, found = Driver(), RandomKernel(seed), []
    try:
        module = driver.load(random_kernel.parts(kernel))
        for place in range(len(kernel.cuts)):
            *_, checked = _one(driver, kernel, module, f"k{place}")
            found.append(checked)
    except Refusal as error:
        print(f"{seed}, part {len(found)}: {error}", flush=True)
    return seed, [words for words in found if words is not None]


def _load(driver: Driver, group: list[RandomKernel], level: int) -> ctypes.c_void_p | None:
    try:
        return driver.load(random_kernel.module(group), level)
    except Refusal:
        return None


def _part(seeds: tuple[int, ...]) -> tuple[list[Answer], tuple[int, ...]]:
    """Answers for some seeds, and the seeds left after one that has ended the context."""
    driver = Driver()
    found: list[Answer] = []
    kernels = [RandomKernel(seed) for seed in seeds]
    for first in range(0, len(kernels), AT_ONCE):
        group = kernels[first : first + AT_ONCE]
        together = [_load(driver, group, level) for level in _LEVELS]
        for place, kernel in enumerate(group):
            try:
                answers = []
                for module, level in zip(together, _LEVELS, strict=True):
                    alone = module or driver.load(random_kernel.module([kernel]), level)
                    answers.append(_one(driver, kernel, alone, f"k{place if module else 0}"))
                seed, question, digest, words, checked = answers[0]
                found.append((seed, question, f"{digest}\t{answers[1][2]}", words, checked))
            except Refusal as error:
                found.append((kernel.seed, "refused", str(error), None, None))
                if not driver.works():
                    return found, seeds[first + place + 1 :]
        for module in together:
            if module:
                driver("cuModuleUnload", module)
    return found, ()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--also", type=int, nargs="*", default=[], help="seeds beside those")
    parser.add_argument("--parts", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--known", type=Path)
    parser.add_argument("--limit-s", type=float, default=300)
    options = parser.parse_args()
    end = time.monotonic() + options.limit_s * (0.5 if options.parts else 1)
    known = {}
    if options.known:
        with (lzma.open if options.known.suffix == ".xz" else open)(options.known, "rt") as file:
            known = {int(line[0]): line[2] for line in map(str.split, file)}
    options.out.mkdir(parents=True, exist_ok=True)
    seeds = (*options.also, *range(options.first, options.first + options.count))
    words, sums, answered = {}, {}, 0
    with (
        multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=16) as pool,
        (options.out / "programs.tsv").open("w") as table,
    ):
        # Small parts, so that a program without an end loses little.
        running = [pool.apply_async(_part, (seeds[i : i + AT_ONCE],)) for i in range(0, len(seeds), AT_ONCE)]
        while running:
            try:
                answers, rest = running.pop(0).get(timeout=max(0.1, end - time.monotonic()))
            except multiprocessing.TimeoutError:
                continue
            if rest:
                running.append(pool.apply_async(_part, (rest,)))
            for seed, question, digest, both, checked in answers:
                table.write(f"{seed}\t{question}\t{digest}\n")
                answered += 1
                if both is not None:
                    sums[str(seed)] = checked
                    if known.get(seed, digest.split()[0]) != digest.split()[0]:
                        words[str(seed)] = both
            table.flush()
        pool.terminate()
    np.savez_compressed(options.out / "columns.npz", **sums)
    np.savez_compressed(options.out / "words.npz", **words)
    print(f"{answered} of {len(seeds)} programs, {len(words)} with another digest than {options.known}", flush=True)
    end += options.limit_s * 0.5
    stages: dict[str, Words] = {}
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        try:
            chosen = [*map(int, words), *seeds[: options.parts]]
            made = pool.imap_unordered(_parts, chosen, chunksize=1)
            for _ in chosen:
                seed, found = made.next(timeout=max(0.1, end - time.monotonic()))
                if found:
                    stages[str(seed)] = np.stack(found)
        except multiprocessing.TimeoutError:
            print(f"parts: late after {len(stages)}")
        pool.terminate()
    np.savez_compressed(options.out / "parts.npz", **stages)
    return 0


if __name__ == "__main__":
    sys.exit(main())
