"""The control protocol's messages: typed, checked when they come from the peer."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from .error import RemoteProtocolError

if TYPE_CHECKING:
    from .packing import Map

VERSION_LOWEST = 1
VERSION_HIGHEST = 1
QUOTAS = "quotas"  # the number of objects is limited: the client waits for the answer to each call that creates one
ACTIVITY = "activity"  # the worker measures the work that calls start on the device
FEATURES = ("pinned-fd", "ring", "images", "progress", ACTIVITY)
FEATURES_OF_SHARED_MEMORY = ("pinned-fd", "ring")
REGION = "region"  # feature that a client names only if it has found memory shared with the host
RECORD_NBYTES = 4 * 1024 * 1024

_FEATURE_COUNT_CAP = 64
_TEXT_CAP = 64
_ARGUMENT_COUNT_CAP = 8
_TOKEN_CAP = 4096
_PCI_COUNT_CAP = 64
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")


def _integer(fields: Map, key: str, lowest: int, highest: int) -> int:
    value = fields.get(key)
    if type(value) is not int or not lowest <= value <= highest:
        raise RemoteProtocolError(f"{key} is not an integer in {lowest}..{highest}")
    return value


def _text(fields: Map, key: str, cap: int) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or len(value) > cap:
        raise RemoteProtocolError(f"{key} is not a string of at most {cap} characters")
    return value


def _features(fields: Map) -> tuple[str, ...]:
    value = fields.get("features", [])
    if not isinstance(value, list) or len(value) > _FEATURE_COUNT_CAP:
        raise RemoteProtocolError(f"features is not a list of at most {_FEATURE_COUNT_CAP}")
    if not all(isinstance(item, str) and len(item) <= _TEXT_CAP for item in value):
        raise RemoteProtocolError(f"features holds something that is not a string of at most {_TEXT_CAP} characters")
    return tuple(value)


def _region(fields: Map) -> Map | None:
    value = fields.get("region")
    if value is None:
        return None
    if (
        not isinstance(value, dict)
        or not isinstance(value.get("cookie"), bytes)
        or type(value.get("nbytes")) is not int
    ):
        raise RemoteProtocolError("region is not a map of cookie and nbytes")
    return {"cookie": value["cookie"], "nbytes": value["nbytes"]}


def _pci(fields: Map) -> tuple[str, ...]:
    value = fields.get("pci", [])
    if not isinstance(value, list) or len(value) > _PCI_COUNT_CAP:
        raise RemoteProtocolError(f"pci is not a list of at most {_PCI_COUNT_CAP}")
    if not all(isinstance(item, str) and _PCI_ADDRESS.fullmatch(item) for item in value):
        raise RemoteProtocolError("pci holds something that is not an address dddd:bb:dd.f")
    return tuple(value)


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """A client's description of itself: for the log only, never trusted."""

    pid: int = 0
    comm: str = ""
    library: str = ""

    @classmethod
    def parse(cls, value: Any) -> ClientInfo:
        """Keep values of the right type, cut to the size of a log line. A wrong value is no reason to refuse the
        client.
        """
        if not isinstance(value, dict):
            return cls()
        pid, comm, library = value.get("pid"), value.get("comm"), value.get("library")
        return cls(
            pid=pid if type(pid) is int and 0 <= pid < 2**32 else 0,
            comm=comm[:_TEXT_CAP] if isinstance(comm, str) else "",
            library=library[:_TEXT_CAP] if isinstance(library, str) else "",
        )


@dataclass(frozen=True, slots=True)
class Hello:
    """A client's first frame."""

    type: ClassVar[str] = "hello"
    lowest: int = VERSION_LOWEST
    highest: int = VERSION_HIGHEST
    features: tuple[str, ...] = FEATURES
    client: ClientInfo = field(default_factory=ClientInfo)
    token: str | None = field(default=None, repr=False)
    pci: tuple[str, ...] = ()

    @classmethod
    def parse(cls, fields: Map) -> Hello:
        """Check a peer\'s map. Raises RemoteProtocolError."""
        versions = fields.get("versions")
        if not (isinstance(versions, list) and len(versions) == 2 and all(type(v) is int for v in versions)):
            raise RemoteProtocolError("versions is not [lowest, highest]")
        lowest, highest = versions
        if not 0 < lowest <= highest < 2**16:
            raise RemoteProtocolError("versions is not [lowest, highest] within 1..65535")
        token = None if fields.get("token") is None else _text(fields, "token", _TOKEN_CAP)
        return cls(lowest, highest, _features(fields), ClientInfo.parse(fields.get("client")), token, _pci(fields))

    def fields(self) -> Map:
        """The map, without its type."""
        client = {"pid": self.client.pid, "comm": self.client.comm, "library": self.client.library}
        fields: Map = {"versions": [self.lowest, self.highest], "features": list(self.features), "client": client}
        if self.token is not None:
            fields["token"] = self.token
        if self.pci:
            fields["pci"] = list(self.pci)
        return fields


@dataclass(frozen=True, slots=True)
class Welcome:
    """The host's answer to hello: everything a client needs to finish cuInit."""

    type: ClassVar[str] = "welcome"
    version: int
    features: tuple[str, ...]
    epoch: int
    inventory: Map
    record_nbytes: int = RECORD_NBYTES
    region: Map | None = None  # {cookie, nbytes}, with the feature `region`

    @classmethod
    def parse(cls, fields: Map) -> Welcome:
        """Check a peer\'s map. Raises RemoteProtocolError."""
        caps, inventory = fields.get("caps"), fields.get("inventory")
        if not isinstance(caps, dict) or not isinstance(inventory, dict):
            raise RemoteProtocolError("caps or inventory is not a map")
        return cls(
            _integer(fields, "version", VERSION_LOWEST, VERSION_HIGHEST),
            _features(fields),
            _integer(fields, "epoch", 1, 65535),
            inventory,
            _integer(caps, "record_nbytes", 4096, 2**31),
            _region(fields),
        )

    def fields(self) -> Map:
        """The map, without its type."""
        fields: Map = {
            "version": self.version,
            "features": list(self.features),
            "epoch": self.epoch,
            "caps": {"record_nbytes": self.record_nbytes},
            "inventory": self.inventory,
        }
        return fields if self.region is None else fields | {"region": self.region}


@dataclass(frozen=True, slots=True)
class Refused:
    """The host will not serve this client; `code` is a CUresult. The host closes after it."""

    type: ClassVar[str] = "refused"
    code: int
    reason: str

    @classmethod
    def parse(cls, fields: Map) -> Refused:
        """Check a peer\'s map. Raises RemoteProtocolError."""
        return cls(_integer(fields, "code", 1, 999), _text(fields, "reason", 4096))

    def fields(self) -> Map:
        """The map, without its type."""
        return {"code": self.code, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Attach:
    """The client wants a worker on this connection; the last control frame a client sends."""

    type: ClassVar[str] = "attach"
    device: int = -1  # device of the client's first context; -1: unknown
    region: bool = False  # the client has found the region that welcome announced, and requests a range of it

    @classmethod
    def parse(cls, fields: Map) -> Attach:
        """Check a peer\'s map. Raises RemoteProtocolError."""
        device = _integer(fields, "device", -1, 63) if "device" in fields else -1
        return cls(device, bool(_integer(fields, "region", 0, 1)) if "region" in fields else False)

    def fields(self) -> Map:
        """The map, without its type."""
        fields: Map = {} if self.device < 0 else {"device": self.device}
        return fields | {"region": 1} if self.region else fields


@dataclass(frozen=True, slots=True)
class Attached:
    """Sent by the worker; the command stream starts with the next byte. `worker` is the session's number in the log."""

    type: ClassVar[str] = "attached"
    worker: int
    region: tuple[int, int] | None = None  # the session's range: offset and bytes

    @classmethod
    def parse(cls, fields: Map) -> Attached:
        """Check a peer\'s map. Raises RemoteProtocolError."""
        region = fields.get("region")
        if region is not None and not (isinstance(region, list) and [type(item) for item in region] == [int, int]):
            raise RemoteProtocolError("region is not [offset, bytes]")
        return cls(_integer(fields, "worker", 0, 2**63 - 1), None if region is None else (region[0], region[1]))

    def fields(self) -> Map:
        """The map, without its type."""
        return {"worker": self.worker} | ({} if self.region is None else {"region": list(self.region)})


@dataclass(frozen=True, slots=True)
class Ping:
    """Round-trip measurement; answered by pong."""

    type: ClassVar[str] = "ping"

    @classmethod
    def parse(cls, _fields: Map) -> Ping:
        """Check a peer\'s map. Raises RemoteProtocolError."""
        return cls()

    def fields(self) -> Map:
        """The map, without its type."""
        return {}


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to ping."""

    type: ClassVar[str] = "pong"

    @classmethod
    def parse(cls, _fields: Map) -> Pong:
        """Check a peer\'s map. Raises RemoteProtocolError."""
        return cls()

    def fields(self) -> Map:
        """The map, without its type."""
        return {}


@dataclass(frozen=True, slots=True)
class Nvml:
    """One question to NVML: a function's name, a device (-1: the system), the integers the program gave."""

    type: ClassVar[str] = "nvml"
    call: str
    device: int = -1
    arguments: tuple[int, ...] = ()

    @classmethod
    def parse(cls, fields: Map) -> Nvml:
        """Check a peer\'s map. Raises RemoteProtocolError."""
        arguments = fields.get("arguments", [])
        if not isinstance(arguments, list) or len(arguments) > _ARGUMENT_COUNT_CAP:
            raise RemoteProtocolError(f"arguments is not a list of at most {_ARGUMENT_COUNT_CAP}")
        if not all(type(item) is int for item in arguments):
            raise RemoteProtocolError("arguments holds something that is not an integer")
        return cls(_text(fields, "call", _TEXT_CAP), _integer(fields, "device", -1, 63), tuple(arguments))

    def fields(self) -> Map:
        """The map, without its type."""
        return {"call": self.call, "device": self.device, "arguments": list(self.arguments)}


@dataclass(frozen=True, slots=True)
class Answer:
    """NVML's answer: `result` is an nvmlReturn_t; `value`, with result 0, what the function writes, in order."""

    type: ClassVar[str] = "answer"
    result: int
    value: Any = None

    @classmethod
    def parse(cls, fields: Map) -> Answer:
        """Check a peer\'s map. Raises RemoteProtocolError."""
        return cls(_integer(fields, "result", 0, 999), fields.get("value"))

    def fields(self) -> Map:
        """The map, without its type."""
        return {"result": self.result, "value": self.value}


ClientMessage = Hello | Attach | Ping | Nvml
HostMessage = Welcome | Refused | Attached | Pong | Answer

CLIENT_MESSAGES: dict[str, type[Hello] | type[Attach] | type[Ping] | type[Nvml]] = {
    m.type: m for m in (Hello, Attach, Ping, Nvml)
}
HOST_MESSAGES: dict[str, type[Welcome] | type[Refused] | type[Attached] | type[Pong] | type[Answer]] = {
    m.type: m for m in (Welcome, Refused, Attached, Pong, Answer)
}
