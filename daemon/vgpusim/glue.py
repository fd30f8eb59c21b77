"""The Python half of the simulator's hooks (daemon/vgpusim/device/vgx_sim_hooks.h): images and kernels for the C half.

Each hook may be called from any thread. An exception with a `result` (ImageError, PtxError) is that CUresult and a line
of the log; any other is CUDA_ERROR_UNKNOWN and its traceback. Parsing and compiling are serialised per module, since a
PtxModule is not meant for two threads; vgpusim.codegen.native guards LLVM.
"""

from __future__ import annotations

import array
import hashlib
import itertools
import os
import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast
from weakref import WeakValueDictionary

from vgpusim import demangle, progress
from vgpusim.codegen.compile import CompiledKernel, DiskCache, PtxModule, Variable, compile_entry, compile_whole
from vgpusim.codegen.loader import Loader
from vgpusim.compile_limit import CompileLimit
from vgpusim.image import image, link
from vgpusim.profiles.attribute import DeviceAttribute
from vgpusim.profiles.profile import Profile
from vgpusim.ptx.error import NOT_SUPPORTED, PtxError
from vgpusim.ptx.module import FUNCTIONS, RESERVED_SHARED_NBYTES
from vgpusim.ptx.undefined import Rule

_INVALID_VALUE, _OUT_OF_MEMORY, _NOT_FOUND, _UNKNOWN = 1, 2, 500, 999
_LINE_NBYTES = 1024
_KEPT_NBYTES = 1 << 20  # longest PTX text that is kept though no context has loaded it
_SPACES = {"global": 0, "const": 1, "managed": 2}
_NOT_ANSWERED = -(2**31)
_UNSUPPORTED = 2**64 - 1


class _Text:
    """The module of an image, shared by the contexts that have loaded it."""

    def __init__(self, texts: Sequence[str], rule: Rule) -> None:
        self.lock = threading.Lock()
        self.module = PtxModule.link(texts, rule)


class _Image:
    """A loaded image: its module, and the variables and kernels that the C half knows by index."""

    def __init__(self, text: _Text, compute_capability: tuple[int, int], attributes: Sequence[int]) -> None:
        self.compute_capability = compute_capability
        self.max_threads = attributes[DeviceAttribute.MAX_THREADS_PER_BLOCK]
        self.max_shared_nbytes = attributes[DeviceAttribute.MAX_SHARED_MEMORY_PER_BLOCK] + RESERVED_SHARED_NBYTES
        self.text, self.lock, self.module = text, text.lock, text.module
        self.variables: list[Variable] = list(self.module.variables)
        self.index = {variable.name: i for i, variable in enumerate(self.variables)}
        self.kernels: list[str] = list(self.module.entries)
        self.ids: dict[str, int] = {}
        self.loaded: list[CompiledKernel] = []


class Glue:
    """The images and kernels of this process, by the ids the C half knows."""

    def __init__(self, ffi: Any, lib: Any, devices: Sequence[Mapping[str, Any]], cache: DiskCache | None) -> None:
        self._ffi, self._lib = ffi, lib
        self._devices = [_attributes(device) for device in devices]
        self._cache = cache
        self._compile_limit: CompileLimit | None = None
        self._loader = Loader()
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._loaded: WeakValueDictionary[tuple[bytes, tuple[int, int]], _Text] = WeakValueDictionary()  # by image
        self._texts: WeakValueDictionary[tuple[bytes, bool], _Text] = WeakValueDictionary()  # by PTX
        self._linking: deque[_Text] = deque(maxlen=4)  # parsed when they were added to a link, loaded soon
        self._images: dict[int, _Image] = {}
        self._kernels: dict[int, tuple[_Image, str]] = {}
        self._improves = False  # a thread makes kernels that were compiled quickly from their whole text

    def set_cache(self, cache: DiskCache) -> None:
        """Store compiled kernels in `cache` from now on."""
        self._cache = cache

    def set_compile_limit(self, limit_s: float, end: Callable[[str], object]) -> None:
        """Call `end` with a description of the work if compiling or reading an image takes `limit_s` of a processor."""
        self._compile_limit = CompileLimit(limit_s, end)

    # ---- hooks, in the header's order

    def load_image(self, device: int, data: Any, nbytes: int, out: Any, kernel_count: Any, variable_count: Any) -> int:
        """Parse an image for a device."""
        capability = self._capability(device)
        what = f"reading an image of {-(-nbytes // 1024)} KiB"
        with progress.reported(what), self._bounded(what):
            text = self._text(bytes(self._ffi.buffer(data, nbytes)), capability)
        made = _Image(text, capability, self._devices[device])
        with self._lock:
            identifier = next(self._ids)
            self._images[identifier] = made
        out[0], kernel_count[0], variable_count[0] = identifier, len(made.kernels), len(made.variables)
        return 0

    def unload_image(self, identifier: int) -> int:
        """Forget an image and the code of its kernels; the C half has waited for all launches of these kernels."""
        with self._lock:
            gone = self._images.pop(identifier)
            for kernel in gone.ids.values():
                del self._kernels[kernel]
        for compiled in gone.loaded:
            self._loader.unload(compiled)
        return 0

    def kernel_name(self, identifier: int, index: int, out: Any) -> int:
        """Name of the index-th kernel."""
        return self._put_name(self._images[identifier].kernels[index], out)

    def describe_kernel(self, identifier: int, c_name: Any, info: Any, offsets: Any, nbytes: Any, capacity: int) -> int:
        """Attributes and parameters of a kernel."""
        owner = self._images[identifier]
        name = self._ffi.string(c_name).decode(errors="replace")
        if name not in owner.module.entries:
            return _NOT_FOUND
        with owner.lock:
            entry = owner.module.entry(name)
        if entry.shared_nbytes > owner.max_shared_nbytes:
            raise PtxError(
                f"{name} has {entry.shared_nbytes} bytes of static shared memory: more than a block may have"
            )
        if len(entry.params) > capacity:
            raise PtxError(f"{name} has {len(entry.params)} parameters; {capacity} is the limit")
        with self._lock:
            kernel = owner.ids.get(name)
            if kernel is None:
                kernel = owner.ids[name] = next(self._ids)
                self._kernels[kernel] = (owner, name)
        for i, param in enumerate(entry.params):
            offsets[i], nbytes[i] = param.offset, param.nbytes
        info.kernel, info.param_count, info.param_nbytes = kernel, len(entry.params), entry.param_nbytes
        info.shared_nbytes, info.local_nbytes = entry.shared_nbytes, entry.local_nbytes
        info.const_nbytes = sum(v.nbytes for v in owner.variables if v.space == "const")
        info.register_count = entry.register_count
        info.max_threads = min(entry.max_threads or owner.max_threads, owner.max_threads)
        info.required_block = entry.required_block or (0, 0, 0)
        info.cluster = entry.cluster or (0, 0, 0)
        info.ptx_version = int("".join(c for c in entry.target if c.isdigit()))
        info.binary_version = 10 * owner.compute_capability[0] + owner.compute_capability[1]
        return 0

    def describe_variable(self, identifier: int, index: int, out: Any, variable: Any) -> int:
        """Name and size of the index-th variable."""
        found = self._images[identifier].variables[index]
        variable.nbytes, variable.align = found.nbytes, found.align
        variable.space, variable.flags = _SPACES[found.space], 0
        return self._put_name(found.name, out)

    def initial_bytes(self, identifier: int, index: int, addresses: Any, data: Any) -> int:
        """Write a variable's first contents; device memory is memory of this process."""
        owner = self._images[identifier]
        variable = owner.variables[index]
        content = bytearray(variable.initial)  # what follows is zero already: huge variables cost nothing (AT8)
        for offset, symbol, addend in variable.relocations:
            content[offset : offset + 8] = ((addresses[owner.index[symbol]] + addend) % 2**64).to_bytes(8, "little")
        if any(content):  # fresh memory is zero already: an all-zero write would only touch pages
            self._ffi.memmove(data, bytes(content), len(content))
        return 0

    def compile(
        self, kernel: int, x: int, y: int, z: int, flags: int, followed: Any, addresses: Any, out: Any, symbols: Any,
        capacity: int, count: Any,
    ) -> int:  # fmt: skip
        """Native code of a kernel for a block shape."""
        owner, name = self._kernels[kernel]
        cooperative = bool(flags & self._lib.VGX_SIM_COMPILE_COOPERATIVE)
        watched = bool(flags & self._lib.VGX_SIM_COMPILE_WATCHED)
        counted = bool(flags & self._lib.VGX_SIM_COMPILE_COUNTED)
        tracked = bool(flags & self._lib.VGX_SIM_COMPILE_TRACKED)
        packed = flags >> self._lib.VGX_SIM_COMPILE_CLUSTER_SHIFT
        cluster = (packed & 0xFF, packed >> 8 & 0xFF, packed >> 16 & 0xFF) if packed else None
        what = f"compiling kernel {name}"
        pointers = [followed.pointers[i] for i in range(followed.count)]
        offsets = [pointer - addresses[owner.index[FUNCTIONS]] for pointer in pointers]
        with owner.lock, progress.reported(f"{what}: later runs find it compiled"), self._bounded(what):
            compiled = compile_entry(
                owner.module.following(offsets) if offsets else owner.module,
                name,
                (x, y, z),
                cache=self._cache,
                cooperative=cooperative,
                watched=watched,
                cluster=cluster,
                counted=counted,
                quick=not watched,
                tracked=tracked,
            )
        if len(compiled.symbols) > capacity:
            raise PtxError(f"{name} uses {len(compiled.symbols)} variables; its image has {capacity}")
        for i, symbol in enumerate(compiled.symbols):
            symbols[i] = owner.index[symbol]
        count[0] = len(compiled.symbols)
        address = self._loader.load(compiled)
        with self._lock:
            owner.loaded.append(compiled)
            begins = bool(compiled.whole) and not self._improves
            self._improves |= begins
        if begins:
            threading.Thread(target=self._improve, name="improve", daemon=True).start()
        self._lib.vgx_sim_compiled_set(
            out,
            address,
            compiled.frame_nbytes,
            compiled.local_nbytes,
            compiled.shared_nbytes,
            int(compiled.cooperative) + int(compiled.resident),  # enum vgx_sim_cooperative
        )
        return 0

    def link_images(self, device: int, data: Any, nbytes: Any, count: int, out: Any, out_nbytes: Any) -> int:
        """Combine images into one, in memory from malloc; with `out` NULL, check that each can be linked."""
        capability = self._capability(device)
        inputs = [link.texts_of(bytes(self._ffi.buffer(data[i], nbytes[i])), capability) for i in range(count)]
        if out == self._ffi.NULL:
            for part in inputs:
                for text in part:
                    self._module([text], Rule.PART)
            return 0
        texts = [text for part in inputs for text in part]
        try:
            self._module(texts, Rule.LINKED)
        except PtxError as error:  # each text has been checked alone: the names do not fit together
            raise PtxError(str(error), _UNKNOWN) from error
        linked = link.combine(texts, capability)
        memory = self._lib.malloc(len(linked))
        if memory == self._ffi.NULL:
            return _OUT_OF_MEMORY
        self._ffi.memmove(memory, linked, len(linked))
        out[0], out_nbytes[0] = memory, len(linked)
        return 0

    # ----

    def _text(self, data: bytes, capability: tuple[int, int]) -> _Text:
        """The module of an image; two threads that load it at once may both parse it."""
        key = hashlib.sha256(data).digest(), capability
        with self._lock:
            known = self._loaded.get(key)
        if known is not None:
            return known
        found = image.load(data, capability)
        made = self._module(found.texts, found.rule)
        with self._lock:
            return self._loaded.setdefault(key, made)

    def _module(self, texts: Sequence[str], rule: Rule) -> _Text:
        """The module of PTX texts. The last link's module is cached, because its result is usually loaded next."""
        digest = hashlib.sha256()
        for text in texts:
            digest.update(hashlib.sha256(text.encode()).digest())
        key = digest.digest(), rule is Rule.WHOLE
        with self._lock:
            known = self._texts.get(key)
        if known is None:
            made = _Text(texts, rule)
            with self._lock:
                known = self._texts.setdefault(key, made)
        elif rule is not Rule.WHOLE:
            with known.lock:
                known.module.require_defined(rule)
        if rule is not Rule.WHOLE and sum(map(len, texts)) <= _KEPT_NBYTES:
            self._linking.append(known)
        return known

    def _improve(self) -> None:
        """Compile again what was compiled quickly and runs for long."""
        while True:
            self._lib.vgx_sim_schedule_wait()
            for quick in self._loader.take_due():
                try:
                    with self._bounded("compiling a kernel again"):
                        whole = compile_whole(quick, self._cache)
                    self._loader.replace(quick, whole)
                except Exception:  # the kernel goes on as it is (past limits.kernel_compile_s the session ends)
                    _log(3, f"simulator: compiling a kernel again failed: {traceback.format_exc()}")

    def _bounded(self, what: str) -> AbstractContextManager[None]:
        return nullcontext() if self._compile_limit is None else self._compile_limit.over(what)

    def _capability(self, device: int) -> tuple[int, int]:
        attributes = self._devices[device]
        return (
            attributes[DeviceAttribute.COMPUTE_CAPABILITY_MAJOR],
            attributes[DeviceAttribute.COMPUTE_CAPABILITY_MINOR],
        )

    def _put_name(self, name: str, out: Any) -> int:
        data = name.encode()
        if len(data) >= self._lib.VGX_SIM_NAME_NBYTES:
            raise PtxError(f"a name of {len(data)} bytes: {name[:60]}...", NOT_SUPPORTED)
        self._ffi.memmove(out, data + b"\0", len(data) + 1)
        return 0


def _attributes(device: Mapping[str, Any]) -> array.array[int]:
    values = array.array("i")
    values.frombytes(device["attributes"])
    return values


def _log(level: int, text: str) -> None:
    line = demangle.text(" ".join(text.split())).encode()[:_LINE_NBYTES]
    os.write(2, b"<%d>%s\n" % (level, line))  # as the executor's lines: vgpud bounds and escapes them


def _served(ffi: Any, lib: Any, hook: Callable[..., int], has_why: bool) -> Callable[..., int]:
    """`hook` with its exceptions turned into results; a trailing `why` receives the reason."""

    def serve(*arguments: Any) -> int:
        try:
            return hook(*arguments[:-1]) if has_why else hook(*arguments)
        except Exception as error:
            result = getattr(error, "result", None)
            if isinstance(error, MemoryError):
                result = _OUT_OF_MEMORY
            if result is None:
                _log(3, f"simulator: {hook.__name__} failed: {traceback.format_exc()}")
                result = _UNKNOWN
            if has_why:
                reason = demangle.text(str(error)).encode(errors="replace")[: lib.VGX_SIM_WHY_NBYTES - 1] + b"\0"
                ffi.memmove(arguments[-1], reason, len(reason))
            elif result != _UNKNOWN:
                _log(4, f"simulator: {error}")
            return int(result)

    return serve


_HOOKS_WITH_WHY = ("load_image", "describe_kernel", "compile", "link_images")
_HOOKS = ("unload_image", "kernel_name", "describe_variable", "initial_bytes")


def install(
    ffi: Any, lib: Any, profiles: Sequence[Profile], inventory: Mapping[str, Any], cache: DiskCache | None
) -> tuple[Any, Glue]:
    """Set the simulator up in this process, once.

    Args:
        ffi, lib: Of vgpud._executor.
        profiles: The simulated cards of this host, at least as many as devices in `inventory`; not used otherwise.
        inventory: wire.md's INVENTORY, as this client sees it: its device i is the C half's device i.
        cache: Where compiled kernels are kept; None: nowhere, until set_cache.
    Returns:
        `const struct vgx_backend *` for vgx_serve, and the Glue that answers its hooks.
    Raises:
        RuntimeError: A device cannot be set up, such as when its addresses are taken.
    """
    if len(profiles) < len(inventory["devices"]):
        raise RuntimeError(f"{len(inventory['devices'])} devices, but {len(profiles)} profiles")
    glue = Glue(ffi, lib, inventory["devices"], cache)
    for name in (*_HOOKS_WITH_WHY, *_HOOKS):
        served = _served(ffi, lib, getattr(glue, name), name in _HOOKS_WITH_WHY)
        ffi.def_extern(name=f"vgx_py_{name}", error=_UNKNOWN)(served)

    def log(line: Any) -> None:
        _log(4, ffi.string(line, _LINE_NBYTES).decode(errors="replace"))

    def log_reason(text: Any, capacity: int) -> None:
        readable = demangle.text(ffi.string(text, capacity).decode(errors="replace"))
        _log(6, f"simulator: {readable}")  # the client gets the same text
        told = readable.encode()[: capacity - 1] + b"\0"
        ffi.memmove(text, told, len(told))

    ffi.def_extern(name="vgx_py_log")(log)
    ffi.def_extern(name="vgx_py_log_reason")(log_reason)
    for index, device in enumerate(inventory["devices"]):
        result = lib.vgx_sim_configure(index, _properties(ffi, lib, device))
        if result != 0:
            raise RuntimeError(f"simulated device {index} ({device['name']}) cannot be set up: CUDA error {result}")
    lib.vgx_sim_install_python()
    return cast(Any, lib.vgx_sim_backend()), glue


def _properties(ffi: Any, lib: Any, device: Mapping[str, Any]) -> Any:
    properties = ffi.new("struct vgx_sim_device_properties *")
    properties.memory_nbytes, properties.context_nbytes = device["memory_nbytes"], device["context_nbytes"]
    properties.priority_least, properties.priority_greatest = device["priorities"]
    attributes = list(_attributes(device))
    limits = array.array("Q")
    limits.frombytes(device["limits"])
    properties.attributes = _filled(attributes, lib.VGX_SIM_ATTRIBUTES_MAX, _NOT_ANSWERED)
    properties.limits = _filled(list(limits), lib.VGX_SIM_LIMITS_MAX, _UNSUPPORTED)
    return properties


def _filled(values: list[int], count: int, value: int) -> list[int]:
    return [*values, *([value] * (count - len(values)))][:count]
