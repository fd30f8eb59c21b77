"""The proof: cuInit in the program's environment, through the same library that the program would load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import mend, probe
from .names import DRIVER, NVML
from .place import PlaceError

if TYPE_CHECKING:
    from .diagnosis import Diagnosis
    from .subject import Subject

_NO_DEVICE = 100
_NO_REGION = "no memory shared with the host"  # shim/channel/vgs_region.c


def check(subject: Subject, diagnosis: Diagnosis, tables: list[str]) -> None:
    """Sets `proven`, fills `probe`; adds cuinit-failed and library-crashed where nothing else explains the failure."""
    driver = diagnosis.libraries.get(DRIVER, {})
    if not driver.get("resolved"):
        return
    if driver["kind"] != "ours":
        return  # a call into another driver proves nothing about the vGPU
    try:
        outcome = probe.ask(subject.place, subject.environment, "cuda", driver["resolved"], tables)
    except (PlaceError, probe.NoProbeError) as error:
        diagnosis.warnings.append(f"cuInit was not tried: {error}")
        return
    diagnosis.probe = {"cuda": vars(outcome)}
    _judge(diagnosis, outcome)
    nvml = diagnosis.libraries.get(NVML, {})
    if diagnosis.proven and nvml.get("kind") == "ours":
        _ask_nvml(subject, diagnosis, nvml["resolved"], outcome)


def _judge(diagnosis: Diagnosis, outcome: probe.Outcome) -> None:
    no_region = [line for line in outcome.said if line.startswith(_NO_REGION)]
    if no_region and "ivshmem" in str(diagnosis.endpoint.get("channel")):
        diagnosis.endpoint["channel"] = "vsock" if "vsock" in diagnosis.endpoint["url"] else "plain socket"
        diagnosis.warnings.append(no_region[0])
    outcome.said = [line for line in outcome.said if not line.startswith((_NO_REGION, "connected to "))]
    for name, file in outcome.foreign.items():
        text = f"{name} is answered by {file}, not by {diagnosis.libraries[DRIVER]['resolved']}, to whoever asks for it"
        if not any(f.kind == "library-interposed" and file in f.text for f in diagnosis.findings):
            diagnosis.add("library-interposed", text)
    if outcome.result == 0 and outcome.count > 0 and not outcome.error:
        diagnosis.proven = True
        names = ", ".join(f"{d.get('name')} at {d.get('pci')}" for d in outcome.devices)
        diagnosis.evidence.insert(0, f"cuInit = 0, {outcome.count} device(s): {names}")
        return
    said = f": {outcome.said[0]}" if outcome.said else ""
    if outcome.result is None:
        diagnosis.add("library-crashed", f"cuInit did not come back: {outcome.error}{said}")
        return
    diagnosis.evidence.append(f"cuInit = {outcome.result} {outcome.name}{said}")
    if diagnosis.findings:
        return
    if outcome.result in (0, _NO_DEVICE) and "CUDA_VISIBLE_DEVICES" in _environment(diagnosis):
        value = _environment(diagnosis)["CUDA_VISIBLE_DEVICES"]
        diagnosis.add(
            "devices-hidden",
            f"CUDA_VISIBLE_DEVICES={value!r} names none of vgpud's devices",
            mend.set_variable(diagnosis.subject, "CUDA_VISIBLE_DEVICES", "") if diagnosis.subject is not None else "",
        )
    elif outcome.result == 0:
        diagnosis.add("cuinit-failed", "cuInit = 0, but there is no device")
    else:
        diagnosis.add("cuinit-failed", f"cuInit = {outcome.result} {outcome.name}{said}")


def _environment(diagnosis: Diagnosis) -> dict[str, str]:
    return diagnosis.subject.environment if diagnosis.subject is not None else {}


def _ask_nvml(subject: Subject, diagnosis: Diagnosis, library: str, cuda: probe.Outcome) -> None:
    try:
        outcome = probe.ask(subject.place, subject.environment, "nvml", library)
    except (PlaceError, probe.NoProbeError):
        return
    diagnosis.probe["nvml"] = vars(outcome)
    if outcome.result != 0:
        reason = outcome.error or f"code {outcome.result}"
        diagnosis.add("nvml-failed", f"nvmlInit failed ({reason}) though cuInit = 0: no nvidia-smi, no memory numbers")
    elif outcome.count < cuda.count:
        diagnosis.warnings.append(f"NVML shows {outcome.count} device(s), the driver {cuda.count}")
