"""Saying hello to vgpud as a guest library does (protocol/wire.md), and measuring the connection.

Runs in the program's place, as its user. Every wait has a deadline, every frame a maximum size.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401  getaddrinfo() looks for it, and in the program's place nothing is imported
import os
import socket
import struct
import time
from typing import Any

from ..endpoint import Endpoint, EndpointError, HybridVsockEndpoint, addresses, parse_endpoint
from .endpoint import stub_devices

try:
    import msgpack  # type: ignore[import-untyped]
except ImportError:  # optional dependency: without it only reachability is checked
    msgpack = None

CONNECT_TIMEOUT_S = 1.0  # the guest library's value
ANSWER_TIMEOUT_S = 5.0
PROTOCOL_VERSION = 1
LOCAL_FEATURES, REMOTE_FEATURES = ("pinned-fd", "ring"), ("region",)  # offered in the hello, but not used
_STUBS_CAP = 64
_FRAME_NBYTES = 4 << 20
_PINGS = 20
_BULK_NBYTES, _BULK_PINGS, _BULK_TIMEOUT_S = 60_000, 64, 1.0


class GreetingError(Exception):
    """`kind` names a verdict; the text is for the user."""

    def __init__(self, kind: str, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.kind = kind
        self.code = code


def greet(url: str, token: str, measure: bool) -> dict[str, Any]:
    """What vgpud answers: `failure` and `text`, or `version`, `features`, `inventory`, and the measurements.

    `round_trip_us` is the median of pings; `upload_bytes_per_s` is the rate of pings with ballast on the control
    channel, a lower bound for the data channel. `local` is the connection's address on this side.
    """
    try:
        return _greet(url, token, measure)
    except GreetingError as error:
        return {"failure": error.kind, "text": str(error), "code": error.code}


def _greet(url: str, token: str, measure: bool) -> dict[str, Any]:
    try:
        endpoint = parse_endpoint(url)
    except EndpointError as error:
        raise GreetingError("endpoint-invalid", str(error)) from error
    with _connect(endpoint) as sock:
        if isinstance(endpoint, HybridVsockEndpoint):
            _ask_for_port(sock, endpoint.port)
        kind = url.partition(":")[0]
        answer: dict[str, Any] = {"kind": kind, "local": _address(sock, sock.getsockname())}
        answer["remote"] = _address(sock, sock.getpeername())
        if msgpack is None:
            answer["without"] = "python3-msgpack is not installed: connected, but nothing was asked"
            return answer
        features = list(LOCAL_FEATURES if kind == "unix" else REMOTE_FEATURES)
        client = {"pid": os.getpid(), "comm": "vgpu-doctor", "library": "doctor"}
        hello: dict[str, Any] = {
            "type": "hello",
            "versions": [PROTOCOL_VERSION] * 2,
            "features": features,
            "client": client,
        }
        start = time.perf_counter()
        if kind != "unix" and stub_devices():
            hello["pci"] = stub_devices()[:_STUBS_CAP]
        welcome = _ask(sock, hello | ({"token": token} if token else {}), "welcome", first=True)
        answer["hello_ms"] = (time.perf_counter() - start) * 1e3
        answer["version"] = welcome.get("version")
        answer["features"] = [str(f) for f in welcome.get("features", []) if isinstance(f, str)][:64]
        answer["inventory"] = _inventory(welcome.get("inventory"))
        if measure:
            _measure(sock, answer)
        return answer


def _connect(endpoint: Endpoint) -> socket.socket:
    """Connect to the first address that answers, or raise the error of the last address."""
    try:
        found = addresses(endpoint)
    except EndpointError as error:
        raise GreetingError("endpoint-unreachable", str(error)) from error
    failure = GreetingError("endpoint-unreachable", f"{endpoint}: the name has no address")
    for family, address in found:
        try:
            return _connect_to(family, address, str(endpoint))
        except GreetingError as error:
            failure = error
    raise failure


def _connect_to(family: int, address: Any, url: str) -> socket.socket:
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise GreetingError(
            "endpoint-blocked", f"no socket of this family may be made here ({error.strerror})"
        ) from error
    try:
        sock.settimeout(CONNECT_TIMEOUT_S)
        sock.connect(address)
        sock.settimeout(ANSWER_TIMEOUT_S)
        if family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except PermissionError as error:
        sock.close()
        raise GreetingError("endpoint-denied", f"{url}: this user may not connect (permission denied)") from error
    except FileNotFoundError as error:
        sock.close()
        raise GreetingError("endpoint-unreachable", f"{url}: there is no such socket") from error
    except ConnectionRefusedError as error:
        sock.close()
        if family == socket.AF_UNIX:
            raise GreetingError("endpoint-stale", f"{url}: a socket that nobody listens on") from error
        raise GreetingError("endpoint-unreachable", f"{url}: nobody listens there") from error
    except TimeoutError as error:
        sock.close()
        raise GreetingError("endpoint-unreachable", f"{url}: no answer within {CONNECT_TIMEOUT_S:g} s") from error
    except OSError as error:
        sock.close()
        raise GreetingError("endpoint-unreachable", f"{url}: {error.strerror}") from error
    return sock


def _ask_for_port(sock: socket.socket, port: int) -> None:
    """Ask a VM's monitor for a port. It answers `OK` and a port number of its own, or closes the connection."""
    sock.sendall(f"CONNECT {port}\n".encode())
    deadline, line = time.monotonic() + ANSWER_TIMEOUT_S, b""
    while not line.endswith(b"\n") and len(line) < 32:
        line += _receive(sock, 1, deadline)
    if not line.startswith(b"OK "):
        raise GreetingError("endpoint-unreachable", f"the VM's monitor refuses port {port}")


def _ask(sock: socket.socket, fields: dict[str, Any], expected: str, *, first: bool = False) -> dict[str, Any]:
    body: bytes = msgpack.packb(fields, use_bin_type=True)
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    try:
        sock.sendall((b"VGPU" if first else b"") + struct.pack("<I", len(body)) + body)
    except BrokenPipeError:
        pass  # a host that refuses at once has sent the reason
    except OSError as error:
        raise GreetingError("endpoint-foreign", f"the connection broke while sending ({error.strerror})") from error
    (nbytes,) = struct.unpack("<I", _receive(sock, 4, deadline))
    if not 0 < nbytes <= _FRAME_NBYTES:
        raise GreetingError("endpoint-foreign", f"what answers there is not a vgpud (a frame of {nbytes} bytes)")
    try:
        answer = msgpack.unpackb(_receive(sock, nbytes, deadline), raw=False, strict_map_key=True)
    except GreetingError:
        raise
    except Exception as error:  # msgpack raises many kinds of exceptions
        raise GreetingError("endpoint-foreign", "what answers there is not a vgpud (no msgpack)") from error
    if not isinstance(answer, dict):
        raise GreetingError("endpoint-foreign", "what answers there is not a vgpud (no map)")
    if answer.get("type") == "refused":
        code = answer.get("code") if isinstance(answer.get("code"), int) else 0
        reason = str(answer.get("reason"))[:256]
        kind = "endpoint-version" if code == 803 else "endpoint-refused"
        raise GreetingError(kind, f"vgpud refuses: {reason} (CUresult {code})", int(code or 0))
    if answer.get("type") != expected:
        raise GreetingError("endpoint-version", f"vgpud answers {str(answer.get('type'))[:32]!r}, not {expected!r}")
    if expected == "welcome" and answer.get("version") != PROTOCOL_VERSION:
        said = str(answer.get("version"))[:16]
        raise GreetingError("endpoint-version", f"vgpud speaks protocol {said}, this guest {PROTOCOL_VERSION}")
    return answer


def _receive(sock: socket.socket, nbytes: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < nbytes:
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            piece = sock.recv(min(65536, nbytes - len(data)))
        except TimeoutError as error:
            raise GreetingError("endpoint-mute", f"connected, but no answer within {ANSWER_TIMEOUT_S:g} s") from error
        except OSError as error:
            raise GreetingError("endpoint-foreign", f"the connection broke ({error.strerror})") from error
        if not piece:
            raise GreetingError("endpoint-foreign", "connected, but what listens there hung up without an answer")
        data += piece
    return bytes(data)


def _measure(sock: socket.socket, answer: dict[str, Any]) -> None:
    times = []
    for _ in range(_PINGS):
        start = time.perf_counter()
        _ask(sock, {"type": "ping"}, "pong")
        times.append((time.perf_counter() - start) * 1e6)
    answer["round_trip_us"] = sorted(times)[len(times) // 2]
    ballast = bytes(_BULK_NBYTES)
    start = time.perf_counter()
    sent = 0
    while sent < _BULK_PINGS and time.perf_counter() - start < _BULK_TIMEOUT_S:
        _ask(sock, {"type": "ping", "ballast": ballast}, "pong")  # vgpud ignores the unknown key `ballast`
        sent += 1
    answer["upload_bytes_per_s"] = sent * _BULK_NBYTES / (time.perf_counter() - start)


def _inventory(value: Any) -> dict[str, Any]:
    """The parts of an inventory that the doctor reports. The inventory is not trusted."""
    if not isinstance(value, dict) or not isinstance(value.get("devices"), list):
        raise GreetingError("endpoint-version", "vgpud's inventory cannot be read")
    devices = []
    for device in value["devices"][:64]:
        attributes = device.get("attributes", b"") if isinstance(device, dict) else b""
        if not isinstance(attributes, bytes) or len(attributes) < 77 * 4:
            raise GreetingError("endpoint-version", "vgpud's inventory cannot be read")
        numbers = struct.unpack_from("<77i", attributes)
        nbytes = device.get("memory_nbytes")
        devices.append(
            {
                "name": str(device.get("name"))[:256],
                "pci": str(device.get("pci"))[:16],
                "memory_nbytes": nbytes if isinstance(nbytes, int) else 0,
                "compute_capability": [numbers[75], numbers[76]],
            }
        )
    version = value.get("driver_version")
    return {
        "driver_version": version if isinstance(version, int) else 0,
        "driver_release": str(value.get("driver_release"))[:32],
        "backend": str(value.get("backend"))[:32],
        "devices": devices,
    }


def _address(sock: socket.socket, name: Any) -> str:
    return str(name[0]) if isinstance(name, tuple) and sock.family != socket.AF_VSOCK else ""
