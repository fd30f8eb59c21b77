"""Compiled random programs against the interpreter, bit for bit; the uniformity analysis against interpreted values."""

from __future__ import annotations

import numpy as np
import pytest
from vgpusim.codegen import passes
from vgpusim.ptx.module import PtxModule

from tests.vgpusim.codegen import interpreter
from tests.vgpusim.codegen.harness import HEADER, pack, run
from tests.vgpusim.codegen.random_program import SLOT_NBYTES, RandomProgram

_GRID = 2
_SEEDS = 40


def _inputs(seed: int, threads: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 1 << 32, threads * SLOT_NBYTES // 4, dtype=np.uint32)
    words[rng.random(words.size) < 0.3] &= 7
    usual = rng.standard_normal(words.size).astype(np.float32).view(np.uint32)
    return np.where(rng.random(words.size) < 0.4, usual, words)


def _check_claims(state: passes.State, ctas: list[list[interpreter.Thread]]) -> None:
    """Outside divergent blocks, a value kept as a scalar follows its pattern in every warp, each time."""
    for threads in ctas:
        for first in range(0, len(threads), 32):
            warp = threads[first : first + 32]
            for (block, place), values in warp[0].given.items():
                if block in state.analysis.divergent:
                    continue
                (reg, *_) = interpreter.ir.defined(state.graph.blocks[block].instructions[place])
                pattern = state.analysis.shapes[reg].pattern
                if not pattern.known or reg.nbits == 1:
                    continue
                for lane, thread in enumerate(warp):
                    offset = pattern.offsets()[lane]
                    wanted = [(value + offset) % (1 << reg.nbits) for value in values]
                    assert thread.given.get((block, place)) == wanted, (reg, block, place)


@pytest.mark.parametrize("seed", range(_SEEDS))
def test_random_program(seed: int) -> None:
    block = (33, 64, 96, 20)[seed % 4]
    text = RandomProgram(seed, shared=seed % 3 != 0).text(HEADER)
    buffer = _inputs(seed, _GRID * block)
    start, address = buffer.copy(), int(buffer.ctypes.data)
    run(text, "k", _GRID, block, [buffer, seed * 3])
    module = PtxModule.parse(text)
    state = passes.run(passes.State(module, "k", (block, 1, 1), cooperative=False))
    memory = interpreter.Memory()
    result = memory.add(address, start.tobytes())
    params = pack(module, "k", [address, seed * 3])
    ctas = interpreter.run(state.program, state.graph, _GRID, block, params, memory, state.program.shared_nbytes)
    expected = np.frombuffer(bytes(result), np.uint32)
    wrong = np.flatnonzero(expected != buffer)
    assert wrong.size == 0, [(int(i * 4 // SLOT_NBYTES), int(i % (SLOT_NBYTES // 4))) for i in wrong[:8]]
    _check_claims(state, ctas)
