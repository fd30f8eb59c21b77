"""Which endpoint this program uses, whether vgpud answers at it, over which channel, and how fast."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from ..endpoint import EndpointError, TcpEndpoint, parse_endpoint
from . import check_configuration, judge_endpoint, mend
from .endpoint import CONFIGURATION, find
from .greeting import greet
from .names import DRIVER
from .place import PlaceError, ask
from .route import describe_route, prepare
from .shared_memory import look

if TYPE_CHECKING:
    from .diagnosis import Diagnosis
    from .subject import Subject

_GREETING_TIMEOUT_S = 20.0
_FAMILIES = {"unix": "AF_UNIX", "tcp": "AF_INET", "vsock": "AF_VSOCK", "hybrid-vsock": "AF_UNIX"}


def check(subject: Subject, diagnosis: Diagnosis, *, measure: bool = True) -> None:
    """Fills `endpoint` and adds the endpoint-... findings."""
    found: dict[str, Any] = ask(subject.place, find, subject.environment)
    token = found.pop("token")
    endpoint: dict[str, Any] = {**found, "has_token": bool(token)}
    diagnosis.endpoint = endpoint
    check_configuration.check(subject, diagnosis, found)
    if not found["url"]:
        if not any(f.kind.startswith("configuration-") for f in diagnosis.findings):
            _add_none(subject, diagnosis)
        return
    diagnosis.evidence.append(f"endpoint {found['url']}, from {found['source']}")
    if _is_family_blocked(subject, diagnosis, found["url"]):
        return
    try:
        answer = ask(subject.place, greet, found["url"], token, measure, timeout_s=_GREETING_TIMEOUT_S)
    except PlaceError as error:
        answer = {"failure": "endpoint-mute", "text": str(error), "code": 0}
    if "failure" in answer:
        endpoint["failure"] = answer["failure"]
        judge_endpoint.judge(subject, diagnosis, answer, found, token)
        return
    endpoint.update(answer)
    memory: dict[str, str] = {}
    if "vsock" in str(answer.get("kind")):
        memory = ask(subject.place, look, subject.environment, found["shared_memory"])
        _tell_memory(diagnosis, answer, memory)
    endpoint["channel"] = channel(answer, memory)
    endpoint["route"] = _route(subject, found["url"], str(answer.get("remote", "")), str(answer.get("local", "")))
    _tell(diagnosis, endpoint)
    protocol = diagnosis.libraries.get(DRIVER, {}).get("protocol")
    if protocol is not None and answer.get("version") not in (None, protocol):
        text = f"{DRIVER} speaks protocol {protocol}, vgpud {answer.get('version')}"
        diagnosis.add("library-version", text)


def channel(answer: dict[str, Any], memory: dict[str, str]) -> str:
    """The channel of a program's calls, by the features that both sides have (docs/guests.md, Channels)."""
    features = answer.get("features", [])
    if "ring" in features:
        return "shared-memory rings"
    if "region" in features and "path" in memory:
        return "shared-memory rings in the VM's ivshmem device"
    return "vsock" if "vsock" in str(answer.get("kind")) else "plain socket"


def _tell_memory(diagnosis: Diagnosis, answer: dict[str, Any], memory: dict[str, str]) -> None:
    """Say why shared memory is not used if only one side offers it (docs/vm.md)."""
    has_host = "region" in answer.get("features", [])
    if has_host and "why" in memory:
        diagnosis.warnings.append(f"no memory shared with the host, though vgpud has some for this VM: {memory['why']}")
    elif "path" in memory and not has_host and "features" in answer:
        diagnosis.warnings.append(f"{memory['path']} is not used: vgpud has no `ivshmem` in this VM's [[vm]]")


def _tell(diagnosis: Diagnosis, endpoint: dict[str, Any]) -> None:
    if endpoint.get("route"):
        diagnosis.evidence.append(f"route: {endpoint['route']}")
    if "without" in endpoint:
        diagnosis.warnings.append(endpoint["without"])
        return
    inventory = endpoint["inventory"]
    names = ", ".join(d["name"] for d in inventory["devices"]) or "no device"
    diagnosis.evidence.append(
        f"vgpud answers: {names}; {inventory['backend']}, driver {inventory['driver_release']}; {endpoint['channel']}"
    )
    if "round_trip_us" in endpoint:
        rate = endpoint["upload_bytes_per_s"] / 1e6
        diagnosis.evidence.append(
            f"hello {endpoint['hello_ms']:.1f} ms, round trip {endpoint['round_trip_us']:.0f} us, "
            f"at least {rate:.0f} MB/s (control channel)"
        )


def _route(subject: Subject, url: str, remote: str, local: str) -> str:
    try:
        endpoint = parse_endpoint(url)
        if not isinstance(endpoint, TcpEndpoint):
            return ""
        prepare()
        return str(ask(subject.place, describe_route, remote, local))
    except (EndpointError, PlaceError):
        return ""


def _add_none(subject: Subject, diagnosis: Diagnosis) -> None:
    import os

    here = find(os.environ)
    if subject.unit is not None and here["url"] and here["source"] == "VGPU_ENDPOINT":
        word, url = subject.label.removesuffix(".service"), shlex.quote(here["url"])
        text = f"{subject.label} has no endpoint: VGPU_ENDPOINT is set in this shell, not in the unit"
        command = f"sudo vgpu install --service {word} --endpoint {url} && {mend.restart(subject.label)}"
        diagnosis.add("service-environment", text, command)
    else:
        conf = diagnosis.endpoint.get("configuration_file", CONFIGURATION)
        diagnosis.add("endpoint-none", f"no VGPU_ENDPOINT, no endpoint in {conf}, no default socket, no stub device")


def _is_family_blocked(subject: Subject, diagnosis: Diagnosis, url: str) -> bool:
    """Whether a unit's sandbox forbids the socket. Read from the unit's files; the doctor runs outside the sandbox."""
    unit = subject.unit
    if unit is None:
        return False
    kind = url.partition(":")[0]
    families = " ".join(unit.settings.get("RestrictAddressFamilies", [])).split()
    name = _FAMILIES.get(kind, "")
    if families and name:
        allowed = name not in families if families[0].startswith("~") else name in families
        if families[0].startswith("~"):
            allowed = name not in [f.lstrip("~") for f in families]
        if not allowed:
            text = f"{unit.name} has RestrictAddressFamilies={' '.join(families)}, and {url} needs {name}"
            if families[0].startswith("~"):
                advice = f"take {name} out of RestrictAddressFamilies= in {', '.join(unit.files)}"
                diagnosis.add("socket-family-blocked", text, advice=advice)
            else:
                diagnosis.add("socket-family-blocked", text, mend.set_in_unit(unit, "RestrictAddressFamilies", name))
            return True
    if kind == "tcp" and subject.process is None and unit.last("PrivateNetwork").lower() in ("yes", "true", "1", "on"):
        text = f"{unit.name} has PrivateNetwork=yes: {url} cannot be reached from there"
        diagnosis.add("socket-family-blocked", text, mend.set_in_unit(unit, "PrivateNetwork", "no"))
        return True
    return False
