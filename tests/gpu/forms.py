"""Instruction forms on a card: `python3 tests/gpu/forms.py record FILE.npz` runs every form of tests/vgpusim/codegen
natively, with numpy and libcuda alone; `python tests/gpu/forms.py compare FILE.npz`, on a machine with the simulator,
prints which forms the simulator computes differently. MORE are forms whose answers on a card are not recorded yet."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.vgpusim.codegen import card_forms, tensor_core

_BLOCK = 128
Words = NDArray[np.generic]

MORE = (
    *(f"{op}.f64 D, A, B;" for op in ("sub.rn", "sub.rz", "min", "max")),
    *(f"{op}.f64 D, A;" for op in ("neg", "abs")),
    *(f"cvt.rzi.{to}.f64 D, A;" for to in ("s64", "u64")),
    "cvt.rn.bf16.f64 D, A;", "cvt.f64.bf16 D, A;", "copysign.f64 D, A, B;", "fma.rn.ftz.relu.f16x2 D, A, B, C;",
    *(f"{op}.f32 D, A;" for op in ("ex2.approx", "lg2.approx", "sin.approx", "cos.approx", "rsqrt.approx",
                                   "sqrt.approx", "rcp.approx", "tanh.approx", "ex2.approx.ftz", "rsqrt.approx.ftz")),
    "div.full.f32 D, A, B;", "div.approx.f32 D, A, B;", "rsqrt.approx.f64 D, A;", "rcp.approx.ftz.f64 D, A;",
    *(f"{op} D, A, B;" for op in ("vadd.s32.s32.s32.sat", "vsub.s32.u32.u32.sat", "vabsdiff.u32.s32.s32",
                                  "vmin.s32.s32.s32", "vmax.u32.u32.u32", "vshl.u32.u32.u32.wrap",
                                  "vshr.s32.s32.u32.clamp")),
    *(f"{op} D, A, B, C;" for op in ("vadd.u32.u32.u32.add", "vmax.s32.s32.s32.min", "vshr.u32.u32.u32.clamp.add")),
    *(f"cvt.{mode}.f16.{kind} D, A;" for mode in ("rz", "rm", "rp") for kind in ("s32", "u32", "s64")),
    "tanh.approx.f16x2 D, A;", "ex2.approx.f16x2 D, A;", "tanh.approx.bf16x2 D, A;",
)  # fmt: skip


def all_forms() -> list[card_forms.Form]:
    more = (card_forms.Form(text, "", "", *card_forms.classes(text)) for text in MORE)
    return [*card_forms.forms(), *more]


def special_words(form: tensor_core.Mma | tensor_core.IntegerMma) -> NDArray[np.uint32]:
    """Random bits with many zeros: the recorded inputs do not show how a zero factor takes part in the alignment."""
    rng = np.random.default_rng(3)
    words = rng.integers(0, 1 << 32, (tensor_core.WARPS * 32, tensor_core.WORDS), dtype=np.uint32)
    words[rng.random(words.shape) < 0.3] = 0
    return words


def matrices() -> dict[str, tuple[tensor_core.Mma | tensor_core.IntegerMma, NDArray[np.uint32]]]:
    """The matrix products and their inputs, by the name under which the answers are stored."""
    found: dict[str, tuple[tensor_core.Mma | tensor_core.IntegerMma, NDArray[np.uint32]]] = {}
    for mma in tensor_core.FORMS:
        found[f"usual {mma.text}"] = (mma, tensor_core.inputs(mma))
        found[f"special {mma.text}"] = (mma, special_words(mma))
    for whole in tensor_core.INTEGER_FORMS:
        found[f"special {whole.text}"] = (whole, special_words(whole))
    return found


class Card:
    """The few calls of the CUDA driver that this script needs."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: object) -> None:
        result = getattr(self.cuda, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name}: {result}")

    def run(self, text: str, grid: int, block: int, words: Words, result: Words) -> None:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        pointers = [ctypes.c_uint64(), ctypes.c_uint64()]
        self.call("cuModuleLoadData", ctypes.byref(module), text.encode())
        self.call("cuModuleGetFunction", ctypes.byref(function), module, b"k")
        for pointer, array in zip(pointers, (words, result), strict=True):
            self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(array.nbytes))
            self.call("cuMemcpyHtoD_v2", pointer, ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes))
        listed = (ctypes.c_void_p * 2)(*(ctypes.addressof(pointer) for pointer in pointers))
        self.call("cuLaunchKernel", function, grid, 1, 1, block, 1, 1, 0, None, listed, None)
        self.call("cuMemcpyDtoH_v2", ctypes.c_void_p(result.ctypes.data), pointers[1], ctypes.c_size_t(result.nbytes))
        for pointer in pointers:
            self.call("cuMemFree_v2", pointer)
        self.call("cuModuleUnload", module)


def record(path: Path) -> None:
    card = Card()
    found: dict[str, Words] = {}
    for form in all_forms():
        words = np.full(card_forms.COUNT, 0xEEEE, np.uint64)
        try:
            text = card_forms.HEADER + card_forms.kernel(form, "k")
            card.run(text, card_forms.COUNT // _BLOCK, _BLOCK, card_forms.inputs(), words)
        except RuntimeError as error:
            print(f"{form.text}: {error}")
            continue
        found[form.text] = words
        if form.digest and card_forms.digest(words) != form.digest:
            print(f"{form.text}: not the recorded digest")
    for name, (mma, words) in matrices().items():
        result = np.zeros((len(words), mma.c), np.uint32)
        try:
            card.run(tensor_core.kernel(mma), len(words) // 32, 32, words, result)
        except RuntimeError as error:
            print(f"{mma.text}: {error}")
            continue
        found[name] = result
    np.savez_compressed(path, **found)  # type: ignore[arg-type]
    print(f"{len(found)} forms in {path}")


def compare(path: Path) -> int:
    """Compare the simulator with the recorded answers; returns the number of forms that differ."""
    recorded, differing = np.load(path), 0
    mmas = matrices()
    forms = {form.text: form for form in all_forms()}
    for text in recorded.files:
        expected = recorded[text]
        try:
            if text in mmas:
                got: Words = tensor_core.simulate(*mmas[text])
            else:
                got = card_forms.simulate(forms[text])
        except Exception as error:
            print(f"{text}: {error}")
            differing += 1
            continue
        wrong = got != expected
        if wrong.any():
            differing += 1
            place = np.argwhere(wrong)[0]
            card, ours = int(expected[tuple(place)]), int(got[tuple(place)])
            print(
                f"{text}: {int(wrong.sum())} of {wrong.size}, first at {place.tolist()}: card {card:#x}, not {ours:#x}"
            )
    print(f"{len(recorded.files)} forms, {differing} differ")
    return differing


if __name__ == "__main__":
    command, file = sys.argv[1], Path(sys.argv[2])
    if command == "record":
        record(file)
    else:
        sys.exit(1 if compare(file) else 0)
