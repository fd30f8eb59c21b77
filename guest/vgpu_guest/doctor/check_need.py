"""What the program needs before it runs, and whether this library and this endpoint have it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from . import loader, need, python_program, torch_overlay
from .names import DRIVER, RUNTIMES
from .place import PlaceError, ask
from .report import shortened
from .verdict import VERDICTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .diagnosis import Diagnosis
    from .subject import Subject

_TIMEOUT_S = 60.0  # enough for a closure with libtorch_cuda and 5 GB of other libraries
_CUDA_LIBRARY = re.compile(r"lib(cuda|cudart|nvidia|nvrtc|nvJitLink|cu[a-z]+|nccl|npp)[-\w]*\.so")
_CUDA_SYMBOL = re.compile(r"(cu|cuda|cublas|cudnn|cufft|curand|cusparse|cusolver|nvml|nvrtc|__cuda)[A-Z_]")
# The driver function that a function of NVIDIA's runtime requires, where they differ by more than the prefix.
_DRIVER_OF = {
    "cudaMallocManaged": "cuMemAllocManaged",
    "cudaMemPrefetchAsync": "cuMemPrefetchAsync_v2",
    "cudaMemAdvise": "cuMemAdvise_v2",
    "cudaMallocArray": "cuArrayCreate_v2",
    "cudaMalloc3DArray": "cuArray3DCreate_v2",
    "cudaMallocMipmappedArray": "cuMipmappedArrayCreate",
    "cudaCreateTextureObject": "cuTexObjectCreate",
    "cudaCreateSurfaceObject": "cuSurfObjectCreate",
    "cudaDeviceEnablePeerAccess": "cuCtxEnablePeerAccess",
    "cudaMemcpyPeer": "cuMemcpyPeer",
    "cudaMemcpyPeerAsync": "cuMemcpyPeerAsync",
    "cudaImportExternalMemory": "cuImportExternalMemory",
    "cudaImportExternalSemaphore": "cuImportExternalSemaphore",
    "cudaGraphicsMapResources": "cuGraphicsMapResources",
}
_SHARING = frozenset({"cudaMallocManaged", "cuMemAllocManaged"})  # make memory of host and device
_DRIVERS = ("libcuda.so", "libnvidia-ml.so")
_SYSTEM = ("linux-vdso.so.1", "statically linked")
_NAMES_CAP = 6  # shown in one line; the JSON has all
_OLDEST_CAPABILITY = [7, 5]  # assumed if no endpoint reports devices


def check(subject: Subject, diagnosis: Diagnosis) -> list[str]:
    """Fills `need`; adds symbol-version, runtime-missing, functions-missing, runtime-too-new and no-device-code.

    Returns:
        The private tables that the program uses; the probe asks the library for them.
    """
    if subject.program is None:
        return []
    listing = diagnosis.listing or loader.list_program(subject.place, subject.environment, subject.program)
    judge_listing(subject, diagnosis, listing)
    files = [subject.program]
    files += [file for name, file in listing.libraries.items() if file and name not in _SYSTEM and file not in files]
    machine_code = diagnosis.endpoint.get("inventory", {}).get("backend") == "cuda"
    packages = ask(subject.place.as_administrator(), need.python_packages, subject.program)
    if packages and not machine_code:
        sites = ask(subject.place, python_program.site_names, subject.program, dict(subject.environment))
        if torch_overlay.is_active(subject, sites):
            packages = [file for file in packages if "/torch/lib/" not in file]  # vgpu-torch replaces their kernels
    files += packages
    if subject.process is not None:
        files += [file for file in subject.process.libraries if not file.endswith(" (deleted)")]
    files = [file for file in dict.fromkeys(files) if not file.rpartition("/")[2].startswith(_DRIVERS)]
    inventory = diagnosis.endpoint.get("inventory", {})
    devices = inventory.get("devices", [])
    capability = devices[0]["compute_capability"] if devices else _OLDEST_CAPABILITY
    place = subject.place.as_administrator()
    try:
        found = ask(place, need.read_all, files, capability, machine_code, timeout_s=_TIMEOUT_S)
    except PlaceError as error:
        diagnosis.warnings.append(f"the program's files were not read: {error}")
        return []
    tables = sorted({table for entry in found for table in entry["tables"]})
    diagnosis.need = {
        "files": found,
        "undefined": listing.undefined,
        "complaints": listing.complaints,
        "tables": tables,
    }
    _judge_imports(diagnosis, found)
    _judge_channel(diagnosis, found)
    _judge_runtime(diagnosis, found, inventory.get("driver_version", 0))
    if devices:
        _judge_code(diagnosis, found, capability, inventory["backend"])
    return tables


def judge_tables(diagnosis: Diagnosis) -> None:
    """After the probe: tables without which a runtime fails to start."""
    answers = diagnosis.probe.get("cuda", {}).get("tables", {})
    refused = [table for table, code in answers.items() if code and need.TABLES.get(table)]
    if refused:
        diagnosis.add("tables-missing", f"private tables that the library does not serve: {', '.join(refused)}")


def judge_listing(subject: Subject, diagnosis: Diagnosis, listing: loader.Listing) -> None:
    """Adds the loader's own complaints: version tags (L02), names (L03, L05), missing libraries."""
    missing = [name for name, file in listing.libraries.items() if file is None and name not in _SYSTEM]
    culprits: dict[str, list[str]] = {}
    for name, version, wanted_by in listing.undefined:
        if version in missing or (missing and not version):
            continue  # a consequence of a missing library, which is reported below
        if _CUDA_SYMBOL.match(name) or _CUDA_LIBRARY.match(version):
            culprits.setdefault(version or wanted_by, []).append(f"{name}@{version}" if version else name)
    for library, names in culprits.items():
        is_versioned = bool(_CUDA_LIBRARY.match(library))
        file = listing.libraries.get(library) or library
        text = f"{file} lacks {shortened(names, _NAMES_CAP)}, which {os.path.basename(subject.program or '')} binds to"
        if is_versioned:
            diagnosis.add("symbol-version", text, advice=_restore(subject, file))
        else:
            text = f"{library} wants {shortened(names, _NAMES_CAP)}, which no library here has"
            diagnosis.add("functions-missing", text)
    for complaint in listing.complaints:
        if _CUDA_LIBRARY.search(complaint) and not culprits:
            diagnosis.add(
                "symbol-version", complaint, advice=_restore(subject, complaint.partition(": ")[2].partition(":")[0])
            )
    if not missing and listing.error and ": cannot open shared object file" in listing.error:
        missing = [listing.error.partition(":")[0]]
    for name in missing:
        if name == DRIVER:
            continue
        text = f"{subject.program} needs {name}, which the loader does not find"
        if _CUDA_LIBRARY.match(name):
            diagnosis.add("runtime-missing", text, *_provide(name))
        else:
            diagnosis.warnings.append(text)


def _restore(subject: Subject, file: str) -> str:
    if "/ollama/" in file or "ollama" in (subject.program or ""):
        return f"{VERDICTS['bundle-missing'].advice}  # restores its libraries; vgpu needs none of them replaced"
    return f"reinstall what {file} came with: NVIDIA's own runtime works on vgpu's driver"


def _provide(name: str) -> tuple[str, str]:
    """A command that installs a missing library, or else advice."""
    if name.startswith("libcudart"):
        return "sudo vgpu install --with-cudart auto", ""
    return "", f"install the package that has {name} (cuBLAS and others are NVIDIA's; vgpu brings only the runtime)"


def _judge_imports(diagnosis: Diagnosis, found: list[dict[str, Any]]) -> None:
    try:
        from .._gen.coverage import NOT_SUPPORTED
    except ImportError:
        return
    lacking: dict[str, frozenset[str]] = {
        "libcuda": NOT_SUPPORTED[DRIVER],
        "libnvidia-ml": NOT_SUPPORTED["libnvidia-ml.so.1"],
    }
    for name in RUNTIMES:
        if diagnosis.listing is not None and diagnosis.listing.libraries.get(name):
            lacking["libcudart"] = _runtime_lacking(diagnosis, name, NOT_SUPPORTED)
    lacking_static = frozenset(runtime for runtime, driver in _DRIVER_OF.items() if driver in NOT_SUPPORTED[DRIVER])
    for entry in found:
        entry["not_supported"] = sorted(lacking_static & set(entry["static_calls"] or ()))
        for library, names in entry["imports"].items():
            unsupported = sorted(set(names) & lacking.get(library, frozenset()))
            entry["not_supported"].extend(unsupported)
        if not entry["not_supported"]:
            continue
        names = shortened(entry["not_supported"], _NAMES_CAP)
        text = f"{entry['file']} calls {names}: vgpu answers NOT_SUPPORTED (801) to these"
        if entry is found[0]:
            diagnosis.add("function-unsupported", text)
        else:
            diagnosis.warnings.append(text)
    first, *others = found
    counts = ", ".join(f"{len(names)} functions of {library}" for library, names in first["imports"].items())
    static = f"static CUDA runtime {first['static_runtime']}" if first["static_runtime"] else ""
    if first["static_calls"] is not None:
        static += f", {len(first['static_calls'])} functions of it"
    opens = "opens libcuda.so.1 itself" if first["opens_driver"] else ""
    parts = [part for part in (counts, static, opens, architectures(first["code"]["kinds"])) if part]
    if parts:
        diagnosis.evidence.append(f"needs: {first['file']}: {'; '.join(parts)}")
    if others:
        diagnosis.evidence.append(
            f"and through it: {shortened([os.path.basename(e['file']) for e in others], _NAMES_CAP)}"
        )


def _judge_channel(diagnosis: Diagnosis, found: list[dict[str, Any]]) -> None:
    """Warn of calls that do less on this endpoint's channel (docs/guests.md, Channels)."""
    channel = str(diagnosis.endpoint.get("channel", ""))
    if not channel or channel.startswith("shared-memory"):
        return
    for entry in found:
        called = {name for names in entry["imports"].values() for name in names} | set(entry["static_calls"] or ())
        if names := sorted(_SHARING & called):
            diagnosis.warnings.append(
                f"{entry['file']} calls {shortened(names, _NAMES_CAP)}: on a {channel} such memory is copied at "
                "launches and waits, and host and kernels do not see each other's writes meanwhile"
            )


def _runtime_lacking(diagnosis: Diagnosis, name: str, table: dict[str, frozenset[str]]) -> frozenset[str]:
    """Functions of a runtime that return 801: in vgpu's runtime those not implemented, in NVIDIA's those whose driver
    function vgpu does not implement."""
    if diagnosis.libraries[name]["kind"] == "ours":
        return table.get(name, frozenset())
    return frozenset(runtime for runtime, driver in _DRIVER_OF.items() if driver in table[DRIVER])


def architectures(kinds: Iterable[str]) -> str:
    """A summary of kinds of device code, as in "ELF sm_80, sm_90; PTX sm_90"."""
    by_kind: dict[str, list[str]] = {}
    for text in kinds:
        kind, _, target = text.rpartition(" ")
        by_kind.setdefault(kind, []).append(target)
    ordered = {kind: sorted(targets, key=lambda t: (len(t.rstrip("af")), t)) for kind, targets in by_kind.items()}
    return "; ".join(f"{kind} {', '.join(ordered[kind])}" for kind in sorted(ordered))


def _judge_runtime(diagnosis: Diagnosis, found: list[dict[str, Any]], driver_version: int) -> None:
    for entry in found:
        release = entry["static_runtime"].partition(".")[0]
        major = max(entry["runtime"], int(release) if release.isdigit() else 0)
        if driver_version and major > driver_version // 1000:
            text = f"{entry['file']} has a CUDA runtime {major}, the endpoint's driver is for {driver_version // 1000}"
            diagnosis.add("runtime-too-new", text)


def _judge_code(diagnosis: Diagnosis, found: list[dict[str, Any]], capability: list[int], backend: str) -> None:
    device = f"compute capability {capability[0]}.{capability[1]} ({backend})"
    code, file = found[0]["code"], found[0]["file"]
    if code["containers"] and not code["usable"]:
        text = f"{file} carries {architectures(code['kinds'])}: nothing for {device}"
        diagnosis.add("no-device-code", text)
    elif code["usable"] < code["containers"]:
        count = code["containers"] - code["usable"]
        diagnosis.evidence.append(
            f"{count} of {code['containers']} pieces of its device code have nothing for {device}: "
            "kernels of those end in 209, if it launches any"
        )
    useless = [e["file"] for e in found[1:] if e["code"]["containers"] and not e["code"]["usable"]]
    if useless:
        names = shortened([os.path.basename(file) for file in useless], _NAMES_CAP)
        diagnosis.warnings.append(f"no kernel of these runs on {device}: {names}")
