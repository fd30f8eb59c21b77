"""LLVM through llvmlite. The only module that imports it, since it has no type information."""

from __future__ import annotations

import ctypes
import functools
import platform
import struct
import threading
from collections.abc import Mapping
from typing import Any

import llvmlite.binding as _llvm
from vgpu_guest.elf_symbol import read_undefined

llvm: Any = _llvm
_lock = threading.Lock()  # for target machines, which threads share; llvmlite has a lock of its own
_machines: dict[int, Any] = {}
_QUICK_NBYTES, _PLAIN_NBYTES = 1_000_000, 3_000_000  # of IR; measured: docs/simulator.md
_BUNDLE_MAGIC = b"vgpuobjs"
_BUNDLE, _PART = struct.Struct("<8sIQ"), struct.Struct("<II")  # parts, bytes of the first; bytes of a name and its part
IS_X86 = platform.machine() in ("x86_64", "AMD64")

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
llvm.initialize_native_asmparser()


@functools.cache
def cpu_name() -> str:
    """Name and features of the CPU that code is generated for; part of the cache key."""
    return f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


@functools.cache
def has_wide_gathers() -> bool:
    """Whether AVX-512's gathers and scatters are faster than single accesses: not on AMD's processors."""
    return IS_X86 and bool(llvm.get_host_cpu_features().get("avx512f")) and not is_amd()


@functools.cache
def has_masked_gathers() -> bool:
    """Whether LLVM has instructions for masked gathers and scatters."""
    return IS_X86 and bool(llvm.get_host_cpu_features().get("avx512f"))


@functools.cache
def has_few_registers() -> bool:
    """Whether the processor has 16 vector registers, of 32 bytes at most."""
    return IS_X86 and not llvm.get_host_cpu_features().get("avx512f")


@functools.cache
def follows_rows() -> bool:
    """Whether the processor fetches rows of consecutive warps by itself so well that prefetches only cost time: AMD's
    before Zen 4. On Zen 5 streaming took 2.4 times longer without them."""
    return is_amd() and not llvm.get_host_cpu_features().get("avx512f")


@functools.cache
def is_amd() -> bool:
    return IS_X86 and "znver" in llvm.get_host_cpu_name()


@functools.cache
def has_own_rounding() -> bool:
    """Whether an instruction can have a rounding mode of its own: AVX-512."""
    return IS_X86 and bool(llvm.get_host_cpu_features().get("avx512f"))


def _machine(level: int) -> Any:
    if level not in _machines:
        features = llvm.get_host_cpu_features().flatten()
        target = llvm.Target.from_default_triple()
        _machines[level] = target.create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=features, opt=level, jit=True
        )
    return _machines[level]


def assemble(text: str) -> bytes:
    """LLVM IR to an object file. The more text, the fewer passes: their time grows faster than the text, and one kernel
    should take no more than about three seconds."""
    level = 2 if len(text) < _QUICK_NBYTES else 1 if len(text) < _PLAIN_NBYTES else 0
    with _lock:
        machine = _machine(level)
        module = _parsed(text, machine)
        options = llvm.create_pipeline_tuning_options(speed_level=max(1, level))
        options.loop_vectorization = False  # kernels are vectors already
        options.slp_vectorization = False
        builder = llvm.create_pass_builder(machine, options)
        if level == 2:
            manager = builder.getModulePassManager()
        else:
            manager = llvm.create_new_module_pass_manager()
            manager.add_sroa_pass()
        if level == 1:
            manager.add_instruction_combine_pass()
            manager.add_simplify_cfg_pass()
            manager.add_dead_code_elimination_pass()
        manager.run(module, builder)
        return bytes(machine.emit_object(module))


def assemble_quickly(text: str) -> bytes:
    """Without any pass."""
    with _lock:
        machine = _machine(0)
        return bytes(machine.emit_object(_parsed(text, machine)))


def _parsed(text: str, machine: Any) -> Any:
    module = llvm.parse_assembly(text)
    module.verify()
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    return module


def bundle(code: bytes, parts: Mapping[str, bytes]) -> bytes:
    """An object file and, by name, those of functions that it calls, as one."""
    head = _BUNDLE.pack(_BUNDLE_MAGIC, len(parts), len(code)) + code
    return head + b"".join(_PART.pack(len(name), len(part)) + name.encode() + part for name, part in parts.items())


def _parts(code: bytes) -> tuple[bytes, dict[str, bytes]]:
    if not code.startswith(_BUNDLE_MAGIC):
        return code, {}
    _, count, nbytes = _BUNDLE.unpack_from(code)
    at = _BUNDLE.size + nbytes
    parts = {}
    for _ in range(count):
        name_nbytes, part_nbytes = _PART.unpack_from(code, at)
        name_at, at = at + _PART.size, at + _PART.size + name_nbytes + part_nbytes
        parts[code[name_at : name_at + name_nbytes].decode()] = code[name_at + name_nbytes : at]
    return code[_BUNDLE.size : _BUNDLE.size + nbytes], parts


def missing_symbols(code: bytes) -> list[str]:
    """Undefined symbols that neither a bundle's parts nor this process provide; loading such an object would call
    address 0."""
    process = ctypes.CDLL(None)
    own, parts = _parts(code)
    names = [name for name in read_undefined(own) if name != "_GLOBAL_OFFSET_TABLE_" and name not in parts]
    return [name for name in names if llvm.address_of_symbol(name) is None and not hasattr(process, name)]


class LoadedObject:
    """An object file, or a bundle, linked into this process; dropping it unmaps the code."""

    def __init__(self, code: bytes) -> None:
        own, parts = _parts(code)
        with _lock:
            module = llvm.parse_assembly("")
            features = llvm.get_host_cpu_features().flatten()
            machine = llvm.Target.from_default_triple().create_target_machine(
                cpu=llvm.get_host_cpu_name(), features=features, jit=True
            )
            self._engine = llvm.create_mcjit_compiler(module, machine)
            for part in (own, *parts.values()):
                self._engine.add_object_file(llvm.ObjectFileRef.from_data(part))
            self._engine.finalize_object()

    def address(self, symbol: str) -> int:
        return int(self._engine.get_global_value_address(symbol))
