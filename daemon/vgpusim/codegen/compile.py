"""The PTX compiler: parse, inline, analyse, emit, assemble. Public names are those in __all__.

passes.py lists the passes; emit_*.py write LLVM IR; native.py assembles it."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import struct
import traceback
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from vgpusim.codegen import (  # noqa: F401  (each registers its emitters)
    abi,
    cfg,
    dump,
    emit_async,
    emit_atomic,
    emit_barrier,
    emit_bits,
    emit_call,
    emit_cluster,
    emit_convert,
    emit_copy,
    emit_float,
    emit_integer,
    emit_matrix,
    emit_mbarrier,
    emit_memory,
    emit_mma_forms,
    emit_multimem,
    emit_special,
    emit_tensor_map,
    emit_texture,
    emit_unset,
    emit_video,
    emit_warp,
    emit_wgmma,
    emit_wmma,
    native,
    outline,
    passes,
    shared_forms,
)  # fmt: skip
from vgpusim.codegen.cache import DiskCache, key_of
from vgpusim.codegen.emit_cluster import Dimensions
from vgpusim.codegen.emit_code import LOOPS, caller_of, describe, replaceable, turns_of
from vgpusim.codegen.emit_control import WarpFunction
from vgpusim.codegen.emitter import Emitter
from vgpusim.ptx import ir
from vgpusim.ptx.error import NOT_SUPPORTED, InternalError, PtxError, UnsupportedInstruction
from vgpusim.ptx.module import EntryInfo, Param, PtxModule, Variable

__all__ = [
    "CompiledKernel", "DiskCache", "EntryInfo", "Param", "PtxError", "PtxModule", "UnsupportedInstruction", "Variable",
    "compile_entry", "compile_whole",
]  # fmt: skip

_MAX_BLOCK_THREADS = 1024
# Text from which on a kernel is made quickly, and how long that may run, for each byte, until it is made from the whole
# text, which takes some 2,000 ns a byte.
QUICK_LEAST_NBYTES, QUICK_NS = 100_000, 500
_QUICK, _DUE = "quick", "due"  # kinds of keys
_RARELY = '!1 = !{!"branch_weights", i32 1, i32 1000000}\n'  # as !prof !1
_MAX_FRAME_NBYTES = 1 << 32
_WIDE = '"prefer-vector-width"="512" "min-legal-vector-width"="512"'
_PROBED = '"probe-stack"="inline-asm"'  # a frame larger than a thread's stack hits the guard page, not memory beyond


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """Native code of a kernel for one block shape; see daemon/vgpusim/device/vgx_sim_abi.h."""

    object_code: bytes
    frame_nbytes: int  # scratch of each pool thread
    local_nbytes: int  # local memory of each pool thread
    shared_nbytes: int  # static
    symbols: list[str]  # module variables, in the order of vgx_sim_launch.symbols
    cooperative: bool  # may be launched cooperatively
    resident: bool  # all CTAs run on one thread, each with its own frames and shared memory
    interleaved: bool  # a thread whose CTAs all wait may start further CTAs
    whole: bytes = b""  # of code that was made quickly (outline.py): the compressed text to make it from again
    key: str = ""  # and the key by which that is stored


def compile_entry(
    module: PtxModule,
    name: str,
    block: tuple[int, int, int],
    *,
    cache: DiskCache | None = None,
    cooperative: bool = False,
    confined: bool = True,
    watched: bool = False,
    cluster: Dimensions | None = None,
    counted: bool = False,
    quick: bool = False,
    tracked: bool = False,
) -> CompiledKernel:
    """Compile entry `name` for a block shape.

    Args:
        block: Threads in x, y, z; at least 1 each, at most 1024 together.
        cooperative: For a launch whose CTAs wait for each other.
        confined: Check that each access is within reach; else a kernel can access all of this process's memory.
        watched: For the sanitizer: each access first calls the sanitizer, which checks the access.
        cluster: CTAs of a cluster; None: as many as the entry requires.
        counted: For the profiler: count what the kernel's warps do.
        quick: A large kernel may be made quickly (outline.py), for compile_whole to make it from its whole text once it
            turns out that much runs.
        tracked: Of a watched kernel: report values of shared memory that nothing has written where they are used.
        cache: Where compiled kernels are kept; None compiles anew.
    Raises:
        UnsupportedInstruction: NOT_SUPPORTED, naming kernel, instruction and line.
        PtxError: INVALID_PTX when the body is malformed.
    """
    if min(block) < 1 or block[0] * block[1] * block[2] > _MAX_BLOCK_THREADS:
        raise ValueError(f"block {block}")
    if name not in module.entries:
        raise PtxError(f"no entry {name}")
    cluster = cluster or module.entry(name).cluster
    key = (
        _key(module, name, (block, cooperative, confined, watched, cluster, counted, tracked))
        if cache is not None
        else ""
    )
    quick = quick and os.environ.get("VGPU_QUICK") != "0"
    if cache is not None:
        quick = quick and cache.get(key_of(key, _DUE)) is None
        stored = cache.get(key) or (cache.get(key_of(key, _QUICK)) if quick else None)
        if stored is not None:
            return _unpack(stored)
    code = None
    try:
        text, compiled, warp = _lower(module, name, block, cooperative, confined, watched, cluster, counted, tracked)
        if quick and len(text) >= QUICK_LEAST_NBYTES:
            try:
                code = _assemble_quickly(text, warp, cache)
            except Exception as error:  # the whole text is compiled instead
                _reported(_internal(name, error), module, block, cooperative, cache)
        quick = code is not None
        if code is None:
            code = native.assemble(text)
        else:
            compiled = replace(compiled, whole=zlib.compress(text.encode(), 1), key=key)
    except InternalError as error:
        raise _reported(error, module, block, cooperative, cache) from error
    except PtxError:
        raise
    except Exception as error:  # a mistake of this compiler, or IR that LLVM refuses: other kernels are not affected
        raise _reported(_internal(name, error), module, block, cooperative, cache) from error
    _check_symbols(name, code)
    compiled = replace(compiled, object_code=code)
    if cache is not None:
        cache.put(key_of(key, _QUICK) if quick else key, _pack(compiled))
    return compiled


def _assemble_quickly(text: str, warp: WarpFunction, cache: DiskCache | None) -> bytes | None:
    """None: the kernel cannot be compiled quickly. Raises whatever LLVM says of text that it refuses."""
    made = outline.outlined(text, warp.without_copies(), _temporary(warp.e), _compiler_version())
    if made is None:
        return None
    cheap, modules = made
    code = native.assemble_quickly(replaceable(cheap, max(1, len(text) * QUICK_NS)))
    return native.bundle(code, shared_forms.objects_of(modules, cache))


def _check_symbols(name: str, code: bytes) -> None:
    """Raises PtxError: NOT_SUPPORTED, if this process lacks a function that LLVM has made the code call."""
    missing = native.missing_symbols(code)
    if missing:
        raise PtxError(f"{name}: needs {', '.join(missing)}, which this host does not have", NOT_SUPPORTED)


def _internal(name: str, error: Exception) -> InternalError:
    """The error, with the file that it comes from, as one of this compiler."""
    frames = traceback.extract_tb(error.__traceback__)
    made = InternalError(name, Path(frames[-1].filename).stem if frames else "?", error)
    made.__context__ = error
    return made


def compile_whole(quick: CompiledKernel, cache: DiskCache | None = None) -> CompiledKernel:
    """The kernel that compile_entry has made quickly, from its whole text. If this process ends before, the next one
    makes it so at once."""
    if cache is not None:
        cache.put(key_of(quick.key, _DUE), b"1")
    code = native.assemble(zlib.decompress(quick.whole).decode())
    _check_symbols(quick.key, code)
    compiled = replace(quick, object_code=code, whole=b"", key="")
    if cache is not None:
        cache.put(quick.key, _pack(compiled))
    return compiled


def _reported(
    error: InternalError, module: PtxModule, block: tuple[int, int, int], cooperative: bool, cache: DiskCache | None
) -> InternalError:
    """The error, with the path of its dump."""
    if cache is not None:
        facts = [str(error), f"block {block}, cooperative {cooperative}, {native.cpu_name()}"]
        path = dump.write(cache.directory, facts, module.texts, error.__context__ or error)
        if path is not None:
            error.args = (f"{error}; attach {path} to a report",)
    return error


def lower(
    module: PtxModule,
    name: str,
    block: tuple[int, int, int],
    cooperative: bool = False,
    confined: bool = True,
    watched: bool = False,
    cluster: Dimensions | None = None,
    counted: bool = False,
    tracked: bool = False,
) -> tuple[str, CompiledKernel]:
    """LLVM IR of a kernel, and its description without code."""
    text, compiled, _ = _lower(module, name, block, cooperative, confined, watched, cluster, counted, tracked)
    return text, compiled


def _lower(
    module: PtxModule,
    name: str,
    block: tuple[int, int, int],
    cooperative: bool,
    confined: bool,
    watched: bool,
    cluster: Dimensions | None,
    counted: bool,
    tracked: bool,
) -> tuple[str, CompiledKernel, WarpFunction]:
    cluster = cluster or module.entry(name).cluster
    if cluster is not None and cooperative:
        raise PtxError(f"{name}: cooperative launches of clusters are not supported", NOT_SUPPORTED)
    state = passes.run(passes.State(module, name, block, cooperative, confined, watched, cluster, counted, tracked))
    program, graph = state.program, state.graph
    flush = native.IS_X86 and _flushes_everything(graph)
    e = Emitter(state, flush)
    warp = WarpFunction(e, patient=not state.waits)
    resident = cooperative and any(b.terminator is not None and b.terminator.opcode == cfg.YIELD for b in graph.blocks)
    interleaved = graph.waits_for_ctas and not state.waits
    size = sum(len(block.instructions) for block in graph.blocks)
    turns = turns_of(warp.arrivals, resident, interleaved, warp.lockstep, cluster, size)
    warp_text = warp.emit(turns)
    frame = warp.frame
    if max(frame.nbytes, frame.locals_nbytes) > _MAX_FRAME_NBYTES:
        raise PtxError(f"{name}: local memory is too large", 2)
    code = describe(e.warp_count, frame, turns, flush, cluster)
    fp_mode = ' "denormal-fp-math-f32"="preserve-sign,preserve-sign"' if flush else ""
    attributes = f"attributes #0 = {{ nounwind {_PROBED} {_WIDE}{fp_mode} }}\n"
    strings = "".join(
        f'{label} = private constant [{len(t.encode()) + 1} x i8] c"{_escape(t)}\\00"\n'
        for t, label in e.strings.items()
    )
    texts = [warp_text, caller_of(turns, e.warp_count), code, *e.helpers.values()]
    declared, bodies = _apart(texts)
    declared |= e.declarations
    metadata = f"!0 = !{{}}\n{_RARELY}{LOOPS}!5 = !{{i64 {program.param_nbytes}}}\n"
    whole = strings + "\n".join(sorted(declared)) + "\n" + bodies + "\n" + attributes + metadata
    compiled = CompiledKernel(
        b"",
        frame.nbytes,
        frame.locals_nbytes,
        program.shared_nbytes,
        program.symbols,
        cooperative,
        resident,
        interleaved,
    )
    return whole, compiled, warp


def _apart(texts: Sequence[str]) -> tuple[set[str], str]:
    """Declarations in texts, and the rest."""
    declared: set[str] = set()
    rest = []
    for text in texts:
        if "declare" in text:
            lines = text.splitlines()
            declared.update(line for line in lines if line.startswith("declare"))
            rest += [line for line in lines if not line.startswith("declare")]
        elif text:
            rest.append(text.removesuffix("\n"))
    return declared, "\n".join(rest)


def _temporary(e: Emitter) -> set[str]:
    """Slots of registers that no block needs from another."""
    needed = 0
    for bits in e.live.live_in:
        needed |= bits
    return set(map(e.slot, e.live.registers)).difference(map(e.slot, e.live.names(needed)))


def _escape(text: str) -> str:
    return "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in text.encode())


def _flushes_everything(graph: cfg.Graph) -> bool:
    """Whether every f32 operation flushes subnormals and no other float type is used: the CPU's flush mode serves."""
    some = False
    for block in graph.blocks:
        for ins in block.all():
            types = {m for m in ins.modifiers if m in ir.TYPE_NBITS}
            if ins.opcode in ("ld", "st", "mov", "selp", "shfl"):
                continue
            if types & {"f64", "bf16", "bf16x2", "f16", "f16x2"} or (ins.opcode == "mma" and "f32" in types):
                return False
            if ins.opcode in ("atom", "red") and "f32" in types and not ins.has("global"):
                return False  # in shared memory a card does not flush
            if "f32" in types and ins.opcode not in ("cvt", "abs", "neg", "atom", "red", "copysign"):
                if not ins.has("ftz"):
                    return False
                some = True
            elif "f32" in types and ins.opcode in ("abs", "neg"):
                some |= ins.has("ftz")
    return some


@functools.cache
def _compiler_version() -> bytes:
    """A hash of this package's sources."""
    state = hashlib.sha256()
    for path in sorted(Path(__file__).parent.parent.rglob("*.py")):
        state.update(path.name.encode() + path.read_bytes())
    return state.digest()


def _key(module: PtxModule, name: str, launch: tuple[object, ...]) -> str:
    """The inputs that determine the code: the text of each function, and the meaning in this module of every name in
    it.
    """
    functions = module.reachable(name)
    parts: list[str | bytes] = []
    for function in functions:
        mentioned = sorted(function.symbols)
        shared = [f"{s} {module.shared[s].nbytes} {module.shared[s].align}" for s in mentioned if s in module.shared]
        called = [name for p in function.prototypes.values() for name in module.callable_by(p)]
        places = [str(module.address_of(ir.Symbol(s))) for s in (function.name, *mentioned, *called)]
        parts += [function.name, *shared, *called, *places, module.source(function.name)]
    shape = repr(launch)
    return key_of(_compiler_version(), str(abi.VERSION), str(module.version), native.cpu_name(), name, shape, *parts)


_PACKED = tuple(field.name for field in fields(CompiledKernel) if field.name not in ("object_code", "whole"))


def _pack(compiled: CompiledKernel) -> bytes:
    head = json.dumps({name: getattr(compiled, name) for name in _PACKED}).encode()
    return struct.pack("<II", len(head), len(compiled.whole)) + head + compiled.whole + compiled.object_code


def _unpack(data: bytes) -> CompiledKernel:
    head, whole = struct.unpack_from("<II", data)
    body = 8 + head
    return CompiledKernel(data[body + whole :], **json.loads(data[8:body]), whole=data[body : body + whole])
