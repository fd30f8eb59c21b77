"""What a device computes for each form of PTX, for every input of its approximations, and for textures.

    python3 tests/gpu/oracle.py OUT [--known FILE.tsv] [--jobs N] [--only forms tensor approximations textures]

It needs numpy and libcuda alone: a card's, or the simulator's by `vgpu run`. OUT/answers.tsv has a line for each
question: its name, a digest of the answer's bits and, for element-wise forms, one with every NaN made equal; or
`refused` and the driver's error. OUT/words.npz has the words of the answers whose digest FILE.tsv, an earlier
answers.tsv, does not have. OUT/approximations.zip has the distance of each result from the correctly rounded one."""

from __future__ import annotations

import argparse
import bz2
import io
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.gpu import textures
from tests.gpu.driver import Driver, Refusal, Words
from tests.vgpusim.codegen import (
    card_forms,
    edge_inputs,
    more_forms,
    sparse_forms,
    tensor_core,
    warp_forms,
    warpgroup_forms,
)

HEADER = ".version 8.8\n.target sm_90\n.address_size 64\n"
KEPT = 512  # words of an answer that words.npz has at most


@dataclass(frozen=True)
class Question:
    name: str
    ask: Callable[[Driver], Words]
    form: card_forms.Form | None = None


def _element(form: card_forms.Form) -> Question:
    def ask(driver: Driver) -> Words:
        words = np.full(card_forms.COUNT, 0xEEEE, np.uint64)
        header = card_forms.HEADER if form.digest else HEADER
        driver.run(header + card_forms.kernel(form, "k"), card_forms.COUNT // 128, 128, card_forms.inputs(), words)
        return words

    return Question(form.text, ask, form)


def _matrix(form: tensor_core.Mma, special: bool) -> Question:
    def ask(driver: Driver) -> Words:
        words = tensor_core.special_words() if special else tensor_core.inputs(form)
        result = np.zeros((len(words), form.c), np.uint32)
        driver.run(tensor_core.kernel(form), len(words) // 32, 32, words, result)
        return result

    return Question(f"{'fixed special' if special else 'recorded'} {form.text}", ask)


def _warp(form: warp_forms.WarpForm, name: str, words: Callable[[], Words]) -> Question:
    def ask(driver: Driver) -> Words:
        result = np.zeros((warp_forms.WARPS * 32, form.results), np.uint32)
        scratch = np.zeros(warp_forms.WARPS * warp_forms.SCRATCH_NBYTES, np.uint8)
        driver.run(warp_forms.kernel(form), warp_forms.WARPS, 32, words(), result, scratch)
        return result

    return Question(f"{name} {form.text}", ask)


def _warpgroup(form: warp_forms.WarpForm, name: str, words: Callable[[], Words]) -> Question:
    def ask(driver: Driver) -> Words:
        result = np.zeros((warpgroup_forms.GROUPS * 128, form.results), np.uint32)
        driver.run(warpgroup_forms.kernel(form), warpgroup_forms.GROUPS, 128, words(), result, result.copy())
        return result

    return Question(f"{name} {form.text}", ask)


def _texture(texture: textures.Texture) -> Question:
    return Question(texture.name, lambda driver: textures.answer(driver, texture))


def _forms() -> list[Question]:
    found = [_element(form) for form in (*card_forms.forms(), *more_forms.forms())]
    for special in (False, True):
        found += [_matrix(mma, special) for mma in tensor_core.FORMS]
        name = "special" if special else "usual"
        found += [_warp(f, name, partial(warp_forms.inputs, f, special)) for f in warp_forms.forms()]
        found += [_warpgroup(f, name, partial(warpgroup_forms.inputs, f, special)) for f in warpgroup_forms.forms()]
    return found


def _tensor() -> list[Question]:
    """Products at the edges of their types, and sparse ones."""
    found = []
    for name in edge_inputs.CLASSES:
        chosen = [form for form in warp_forms.forms() if "mma." in form.text and ".s32" not in form.text]
        found += [_warp(f, name, partial(edge_inputs.inputs, f, name)) for f in chosen if "mma.sp" not in f.text]
        groups = [form for form in warpgroup_forms.forms() if ".s32" not in form.text]
        found += [_warpgroup(f, name, partial(edge_inputs.inputs, f, name)) for f in groups]
    for name in ("usual", "special", *edge_inputs.CLASSES):
        chosen = [form for form in sparse_forms.forms() if name in ("usual", "special") or form.text.endswith(" 0x0;")]
        chosen = [form for form in chosen if name == "usual" or form.parts[2][0] != "s32"]
        found += [_warp(f, name, partial(sparse_forms.inputs, f, name)) for f in chosen]
    return found


QUESTIONS = {
    "forms": _forms,
    "tensor": _tensor,
    "textures": lambda: [_texture(texture) for texture in textures.textures()],
}
Answer = tuple[str, str, str, Words | None]
Job = tuple[str, tuple[int, ...]]


def _part(job: Job) -> tuple[list[Answer], Job]:
    """Answers to some questions, and the questions that are left after one that has ended the context."""
    driver, (kind, numbers) = Driver(), job
    found: list[Answer] = []
    asked = QUESTIONS[kind]()
    for place, number in enumerate(numbers):
        question = asked[number]
        try:
            words = question.ask(driver)
        except Refusal as error:
            found.append((question.name, "refused", str(error), None))
            if not driver.works():
                return found, (kind, numbers[place + 1 :])
            continue
        form = question.form
        same = card_forms.digest(card_forms.without_payloads(form, words)) if form else "-"
        found.append((question.name, card_forms.digest(words), same, words))
    return found, (kind, ())


def _answers(kind: str, jobs: int, known: dict[str, str] | None, limit_s: float) -> list[Answer]:
    """Ask in `jobs` processes at once; each job has a process of its own. Jobs that are late are given up."""
    end = time.monotonic() + limit_s
    numbers = [i for i, question in enumerate(QUESTIONS[kind]()) if known is None or question.name in known]
    found: list[Answer] = []
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=1) as pool:
        # Many small jobs, so that a kernel without an end loses little.
        running = [pool.apply_async(_part, ((kind, tuple(numbers[i :: 8 * jobs])),)) for i in range(8 * jobs)]
        while running:
            try:
                answers, rest = running.pop(0).get(timeout=max(0.1, end - time.monotonic()))
            except multiprocessing.TimeoutError:
                print(f"{kind}: a job of {len(numbers) // (8 * jobs)} questions is late", flush=True)
                continue
            found += answers
            if rest[1]:
                running.append(pool.apply_async(_part, (rest,)))
        pool.terminate()
    return found


# ---- approximations

_KERNEL = """{header}.visible .entry k(.param .u64 in, .param .u64 out) {{
.reg .b32 %t<6>; .reg .b64 %x<6>; .reg .f32 %f<3>; .reg .f64 %g<3>; .reg .b16 %h<4>;
ld.param.u64 %x0, [in]; ld.param.u64 %x1, [out]; ld.global.v2.b32 {{%t0, %t1}}, [%x0];
mov.u32 %t2, %ctaid.x; mov.u32 %t3, %tid.x; mad.lo.u32 %t2, %t2, 256, %t3; mad.wide.u32 %x1, %t2, 4, %x1;
mad.lo.u32 %t2, %t2, %t1, %t0; {body} st.global.b32 [%x1], %t4; ret; }}"""
_F32 = "mov.b32 %f0, %t2; {op} %f1, %f0; mov.b32 %t4, %f1;"
_F64 = "mov.b32 %t3, 0; mov.b64 %g0, {{%t3, %t2}}; {op} %g1, %g0; mov.b64 {{%t5, %t4}}, %g1;"
_F16 = "cvt.u16.u32 %h0, %t2; {op} %h1, %h0; cvt.u32.u16 %t4, %h1;"
_ONE = 0x3F800000


def _exact(op: str, x: NDArray[np.float64]) -> NDArray[np.float64]:
    name = op.split(".")[0]
    functions: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
        "rcp": lambda v: 1 / v, "rsqrt": lambda v: 1 / np.sqrt(v), "sqrt": np.sqrt, "ex2": np.exp2, "lg2": np.log2,
        "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
    }  # fmt: skip
    with np.errstate(all="ignore"):
        return functions[name](x)


def ranges() -> Iterator[tuple[str, int, int, int]]:
    """Operation, first input (its bits), step and number: all of the binades that the hardware's tables cover, and
    samples of the others."""
    whole = 1 << 23
    yield "rcp.approx.ftz.f32", _ONE, 1, whole
    yield "rsqrt.approx.ftz.f32", _ONE, 2, whole
    yield "sqrt.approx.ftz.f32", _ONE, 16, whole >> 3
    yield "ex2.approx.ftz.f32", _ONE, 1, whole
    yield "lg2.approx.ftz.f32", _ONE, 1, whole
    yield "sin.approx.ftz.f32", _ONE, 1, whole
    yield "cos.approx.ftz.f32", _ONE, 8, whole >> 3
    for name, binades in (("ex2", range(-20, 7)), ("lg2", range(-3, 4)), ("sin", range(-12, 5)), ("cos", range(-12, 5)),
                          ("tanh", range(-13, 4))):  # fmt: skip
        ftz = "" if name == "tanh" else ".ftz"
        for binade in binades:
            yield f"{name}.approx{ftz}.f32", _ONE + binade * whole, 128 if name != "tanh" else 64, whole >> 7
    yield "tanh.approx.f32", _ONE - whole, 1, whole >> 1
    yield "rcp.approx.ftz.f64", 0x3FF00000, 1, 1 << 20
    yield "rsqrt.approx.ftz.f64", 0x3FF00000, 1, 1 << 21
    for op in ("ex2.approx.f16", "tanh.approx.f16", "ex2.approx.ftz.bf16", "tanh.approx.bf16"):
        yield op, 0, 1, 1 << 16


def _distances(driver: Driver, op: str, first: int, step: int, count: int) -> tuple[str, Words]:
    body = (_F64 if op.endswith("f64") else _F32 if op.endswith("f32") else _F16).format(op=op)
    result = np.zeros(count, np.uint32)
    driver.run(_KERNEL.format(header=HEADER, body=body), count // 256, 256, np.array([first, step], np.uint32), result)
    name = f"{op} from {first:#x} by {step}"
    if op.endswith("16"):
        return name, result.astype(np.uint16)
    bits = (first + step * np.arange(count, dtype=np.uint64)).astype(np.uint32)
    if op.endswith("f64"):
        exact = _exact(op, (bits.astype(np.uint64) << np.uint64(32)).view(np.float64))
        expected = (exact.view(np.uint64) >> np.uint64(32)).astype(np.uint32)
    else:
        expected = _exact(op, bits.view(np.float32).astype(np.float64)).astype(np.float32).view(np.uint32)
    distance = result.astype(np.int64) - expected
    small = np.abs(distance).max() < 128
    return name, distance.astype(np.int8) if small else distance.astype(np.int32)


def _range(asked: tuple[str, int, int, int]) -> tuple[str, bytes]:
    """A name and the compressed .npy; or the driver's refusal and nothing."""
    try:
        name, words = _distances(Driver(), *asked)
    except Refusal as error:
        return f"{asked[0]}: {error}", b""
    stream = io.BytesIO()
    np.save(stream, words)
    return name, bz2.compress(stream.getvalue())


def read_approximations(path: Path) -> dict[str, Words]:
    with ZipFile(path) as archive:
        return {n: np.load(io.BytesIO(bz2.decompress(archive.read(n)))) for n in archive.namelist()}


# ----


def _known(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    return dict(line.split("\t")[:2] for line in path.read_text().splitlines())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--known", type=Path)
    parser.add_argument("--all", action="store_true", help="ask forms, too, that FILE.tsv does not have")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--limit-s", type=float, default=150, help="seconds for the forms, and for the textures (150)")
    parser.add_argument("--only", nargs="+", default=("forms", "tensor", "approximations", "textures"))
    options = parser.parse_args()
    begin, known = time.monotonic(), _known(options.known)
    options.out.mkdir(parents=True, exist_ok=True)
    answers: list[Answer] = []
    for kind in QUESTIONS:
        if kind in options.only:
            answers += _answers(kind, options.jobs, None if options.all or not known else known, options.limit_s)
            print(f"{kind}: {time.monotonic() - begin:.0f} s", flush=True)
    if answers:
        lines = [f"{name}\t{digest}\t{same}\n" for name, digest, same, _ in sorted(answers, key=lambda a: a[0])]
        (options.out / "answers.tsv").write_text("".join(lines))
        words = {n: w.ravel()[:KEPT] for n, d, _, w in answers if w is not None and known.get(n, "refused") != d}
        np.savez_compressed(options.out / "words.npz", **words)  # type: ignore[arg-type]
        counts = sum(known.get(name) == digest for name, digest, _, _ in answers)
        print(f"{len(answers)} answers, {counts} known, words of {len(words)} kept", flush=True)
    if "approximations" in options.only:
        with (
            multiprocessing.get_context("spawn").Pool(options.jobs) as pool,
            ZipFile(options.out / "approximations.zip", "w") as archive,
        ):
            for name, data in pool.imap_unordered(_range, ranges(), chunksize=1):
                if data:
                    archive.writestr(name, data)
                else:
                    print(name)
        print(f"approximations: {time.monotonic() - begin:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
