"""The configuration: one TOML file, every key optional, unknown keys refused, errors naming file, line and key."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator

from ._gen.api import GROUPS, OBJECT_QUOTAS
from .config_location import locate, syntax_error_line
from .devices import mps, selection
from .devices.inventory import InventoryError, load_inventory
from .endpoint import (
    VMADDR_CID_ANY,
    Endpoint,
    EndpointError,
    HybridVsockEndpoint,
    TcpEndpoint,
    default_endpoint,
    parse_endpoint,
    runtime_directory,
)
from .worker.user_ids import format_ids, parse_ids

_CONFIG_NBYTES = 1024 * 1024
WEIGHT_DEFAULT = 100  # a tenant's, among those that are busy; also the kernel's default of cpu.weight
RANGE_NBYTES_MIN = 24 << 20  # a ring takes 10 MiB, and half a range is for pinned memory
_SPIN_US, _FEW_PROCESSORS = 50, 2
_KEY = re.compile(r"([a-z_]+(?:\.[a-z_0-9]+)*): ")
# Ids that no other software uses: UIDS-GIDS.md of systemd lists 1879048192 to 2147352575 as unused.
_WORKER_IDS = "2000000000-2000065535"
_OBJECTS: Any = Field(default=None, ge=1, le=1 << 22)  # the capacity of a handle table
_TOKEN_LENGTHS = range(16, 256)  # the guest library stores at most 255 characters


class ConfigError(Exception):
    """The configuration cannot be used; the text names file, line and key."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SocketConfig(_Model):
    """Who may open the unix sockets vgpud listens on."""

    mode: str = Field(default="0600", pattern=r"^0[0-7]{3}$")
    group: str | None = None

    @property
    def mode_bits(self) -> int:
        """`mode` as a number."""
        return int(self.mode, 8)


class TokenConfig(_Model):
    """A secret that admits TCP clients; the log shows `name` instead."""

    name: str = Field(min_length=1, max_length=64)
    value: SecretStr
    share: str | None = None  # name of the [[shares]] entry for clients with this token

    @field_validator("value")
    @classmethod
    def _long_enough(cls, value: SecretStr) -> SecretStr:
        secret = value.get_secret_value()
        if len(secret) not in _TOKEN_LENGTHS or not (secret.isascii() and secret.isprintable()):
            raise ValueError(f"a token has {_TOKEN_LENGTHS[0]} to {_TOKEN_LENGTHS[-1]} printable ASCII characters")
        return value


class ShareConfig(_Model):
    """How much of the devices a tenant gets. A tenant is a user, a VM or a TCP address, with one token."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    # The devices that a tenant sees, by number or UUID (GPU-..., or one MIG-...), renumbered in the host's order;
    # default: all GPUs
    gpus: list[int | str] | None = Field(default=None, min_length=1, max_length=64)
    memory_mib: int | None = Field(default=None, ge=1, le=1 << 30)  # of each device, for all sessions of a tenant
    sessions: int | None = Field(default=None, ge=1, le=65535)  # at the same time
    weight: int | None = Field(default=None, ge=1, le=10000)  # of compute time among busy tenants; default: 100
    mps_active_thread_percentage: int | None = Field(default=None, ge=1, le=100)  # of a card's multiprocessors ([mps])
    # Limits of objects in all sessions of a tenant together; protocol/gen/dsl.py defines which objects count
    contexts: int | None = _OBJECTS
    streams: int | None = _OBJECTS
    events: int | None = _OBJECTS
    modules: int | None = _OBJECTS  # and libraries
    graphs: int | None = _OBJECTS  # and executable graphs
    arrays: int | None = _OBJECTS  # and mipmapped arrays
    pools: int | None = _OBJECTS
    image_mib: int | None = Field(default=None, ge=1, le=1 << 20)  # of program images that are being loaded, or loaded
    compile_s: float | None = Field(default=None, gt=0, le=1e6)  # processor time of compiling for open sessions
    host_memory_mib: int | None = Field(default=None, ge=1, le=1 << 30)  # in place of limits.host_memory_mib
    calls_per_s: int | None = Field(default=None, ge=1, le=1_000_000_000)  # calls above this rate are delayed
    deny: list[str] = []  # groups of functions that a tenant's programs may not call (protocol/gen/dsl.py)

    @field_validator("deny")
    @classmethod
    def _are_groups(cls, value: list[str]) -> list[str]:
        if unknown := [name for name in value if name not in GROUPS]:
            raise ValueError(f"there is no group {unknown[0]!r} of functions; there are: {', '.join(GROUPS)}")
        return value

    @property
    def quotas(self) -> dict[str, int]:
        """The limits that workers count, by the names of protocol/gen/dsl.py."""
        given = {name: getattr(self, name) for name in OBJECT_QUOTAS}
        given["image_nbytes"] = None if self.image_mib is None else self.image_mib << 20
        given["compile_ns"] = None if self.compile_s is None else max(1, round(self.compile_s * 1e9))
        given["host_nbytes"] = None if self.host_memory_mib is None else self.host_memory_mib << 20
        given["calls_per_s"] = self.calls_per_s
        return {name: limit for name, limit in given.items() if limit is not None}

    @property
    def memory_nbytes(self) -> int | None:
        """`memory_mib` in bytes."""
        return None if self.memory_mib is None else self.memory_mib << 20


class MpsConfig(_Model):
    """NVIDIA's Multi-Process Service, which the administrator has started on this host."""

    # The control daemon's own default
    pipe_directory: str = Field(default="/tmp/nvidia-mps", pattern="^/")  # noqa: S108


class TlsConfig(_Model):
    """Where clients of other machines connect over TLS (`vgpu connect` on their side). They need a token, too."""

    listen: str = "tcp://0.0.0.0:7443"
    certificate: str  # PEM; the chain, and the key if `key` is left out
    key: str | None = None
    client_ca: str | None = None  # clients need a certificate of this authority

    @field_validator("listen")
    @classmethod
    def _is_tcp(cls, value: str) -> str:
        if not isinstance(parse_endpoint(value, listening=True), TcpEndpoint):
            raise ValueError(f"TLS is for tcp://HOST:PORT, not {value}")
        return value

    @property
    def endpoint(self) -> TcpEndpoint:
        """`listen`, parsed."""
        endpoint = parse_endpoint(self.listen, listening=True)
        assert isinstance(endpoint, TcpEndpoint)
        return endpoint


class UserConfig(_Model):
    """The share of one user of this host."""

    uid: int = Field(ge=0, lt=2**32 - 1)
    share: str


class LimitsConfig(_Model):
    """Limits of what clients may use. All can be changed by SIGHUP."""

    max_sessions: int = Field(default=1024, ge=1, le=65535)
    sessions_per_client: int = Field(default=512, ge=1, le=65535)  # per uid, vsock CID or TCP address
    pending_connections: int = Field(default=1024, ge=1, le=65535)  # connections that have not been welcomed yet
    pending_per_client: int = Field(default=512, ge=1, le=65535)  # so that one client cannot shut the others out
    ipc_objects_per_tenant: int = Field(default=4096, ge=0, le=16384)  # allocations and events shared by cuIpc; 0: none
    spare_workers: int = Field(default=1, ge=0, le=16)
    warm_workers: int = Field(default=0, ge=0, le=16)  # for each device; the context of each uses device memory
    kernel_cache_nbytes: int = Field(default=2**30, ge=0, le=2**44)  # on disk, for each tenant; 0: nothing is kept
    kernel_compile_s: float = Field(default=300.0, ge=0.1, le=1e6)  # processor time for one kernel, on the simulator
    kernel_run_s: float = Field(default=0.0, ge=0, le=1e6)  # for one kernel, on the simulator; 0: no limit
    # How long a worker's thread polls an empty ring before it sleeps; default: 50, or 0 with at most two processors.
    spin_us: int | None = Field(default=None, ge=0, le=1_000_000)
    hello_timeout_s: float = Field(default=5.0, gt=0, le=60)
    frame_timeout_s: float = Field(default=5.0, gt=0, le=60)  # to finish a begun frame, or to read an answer
    # How long a session without a worker may be silent: after hello, and between two questions to NVML.
    attach_timeout_s: float = Field(default=3600.0, gt=0, le=1e7)
    worker_start_timeout_s: float = Field(default=20.0, gt=0, le=300)
    worker_exit_timeout_s: float = Field(default=2.0, gt=0, le=60)  # after its client's end, or SIGTERM
    worker_memory_mib: int | None = Field(default=None, ge=64, le=1 << 30)  # host memory; needs control groups
    # Memory that clients share with their workers (pinned, registered), for each tenant; default: half the machine's
    host_memory_mib: int | None = Field(default=None, ge=1, le=1 << 30)
    drain_timeout_s: float = Field(default=5.0, ge=0, le=86400)  # how long sessions may go on after SIGTERM
    oversubscribe_memory: bool = False  # shares of a device may promise more memory than it has

    @property
    def host_memory_nbytes(self) -> int:
        """`host_memory_mib` in bytes, or its default."""
        if self.host_memory_mib is not None:
            return self.host_memory_mib << 20
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2

    @property
    def spin_here_us(self) -> int:
        """`spin_us`, or its default on this machine: on two processors a spinning thread would stop its client."""
        if self.spin_us is not None:
            return self.spin_us
        return _SPIN_US if len(os.sched_getaffinity(0)) > _FEW_PROCESSORS else 0


class ImagesConfig(_Model):
    """How much of clients' program images is kept, so that they need not be sent again at the next start. 0 in any
    setting: nothing is kept.
    """

    tenant_nbytes: int = Field(default=512 * 1024 * 1024, ge=0, le=2**40)  # of memory, for each tenant
    tenant_entries: int = Field(default=1024, ge=0, le=65536)
    nbytes: int = Field(default=2 * 1024 * 1024 * 1024, ge=0, le=2**44)  # of all tenants
    entries: int = Field(default=8192, ge=0, le=2**20)  # of all tenants; each uses one descriptor of vgpud
    keep_s: float = Field(default=86400.0, gt=0, le=1e8)  # after a tenant's last session


class LogConfig(_Model):
    """What is logged and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "human", "journal", "json"] = "auto"
    lines_per_session_s: float = Field(default=5.0, gt=0, le=1_000_000)
    audit: str | None = Field(default=None, pattern="^/")  # file for the audit log, beside vgpud's own log

    @property
    def audit_path(self) -> Path | None:
        """`audit` as a path."""
        return None if self.audit is None else Path(self.audit)


class VmConfig(_Model):
    """A virtual machine: its name, and how its vsock reaches vgpud if not through this host's kernel."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    cid: int = Field(ge=3, lt=VMADDR_CID_ANY)
    vsock: str | None = None  # vgpud is its vsock device: the vhost-user socket that QEMU connects to
    hybrid: str | None = None  # the unix socket that its VMM (Firecracker, Cloud Hypervisor) maps vsock to
    port: int = Field(default=7070, ge=1, lt=VMADDR_CID_ANY)
    group: str | None = None  # the VMM's group, for the socket and the ivshmem file (mode 0660)
    share: str | None = None  # name of the [[shares]] entry for clients in this VM
    ivshmem: str | None = None  # the file behind its ivshmem device: memory that the VM and this host share
    ivshmem_mib: int = Field(default=256, ge=32, le=1 << 20)
    # Number of ranges in the ivshmem memory; further sessions get none. 0: four, or as many as fit.
    ivshmem_sessions: int = Field(default=0, ge=0, le=64)

    @model_validator(mode="after")
    def _one_way(self) -> VmConfig:
        if self.ivshmem_mib & (self.ivshmem_mib - 1):
            raise ValueError("ivshmem_mib is not a power of two, as a PCI device's memory is")
        if (self.ivshmem_mib << 20) // self.ivshmem_ranges < RANGE_NBYTES_MIN:
            raise ValueError(f"ivshmem_mib gives each of ivshmem_sessions less than {RANGE_NBYTES_MIN >> 20} MiB")
        if self.ivshmem is not None and not self.ivshmem.startswith("/"):
            raise ValueError("ivshmem is not an absolute path")
        if self.vsock is not None and self.hybrid is not None:
            raise ValueError("a VM has one vsock device: vsock or hybrid, not both")
        if self.vsock is not None:
            parse_endpoint(f"unix:{self.vsock}.control")  # the longer of the two paths derived from vsock
        if self.hybrid_endpoint is not None:
            parse_endpoint(str(self.hybrid_endpoint))
        return self

    @property
    def ivshmem_ranges(self) -> int:
        """`ivshmem_sessions`, or its default."""
        return self.ivshmem_sessions or max(1, min(4, (self.ivshmem_mib << 20) // RANGE_NBYTES_MIN))

    @property
    def hybrid_endpoint(self) -> HybridVsockEndpoint | None:
        """The endpoint at which the VMM delivers the VM's connections."""
        return None if self.hybrid is None else HybridVsockEndpoint(self.hybrid, self.port)


_TENANTS = ("token:", "uid:", "vm:", "cid:", "host:")  # tenancy/session.py, tenant_name()


class RecordingConfig(_Model):
    """Whose sessions are recorded for `vgpu replay`: all that their programs send and receive, contents included."""

    tenants: list[str] = []  # as `vgpu status` names them; "*": all
    dir: str | None = None  # default: `recordings` in the state's folder
    session_mib: int = Field(default=64, ge=1, le=1 << 20)  # after that a session goes on without
    epoch: int | None = Field(default=None, ge=1, le=65535)  # of the first session, for addresses as in a recording

    @model_validator(mode="after")
    def _dir_is_absolute(self) -> RecordingConfig:
        if self.dir is not None and not self.dir.startswith("/"):
            raise ValueError("dir is not an absolute path")
        return self

    @field_validator("tenants")
    @classmethod
    def _are_names_of_tenants(cls, tenants: list[str]) -> list[str]:
        for name in tenants:
            if name != "*" and not name.startswith(_TENANTS):  # it would record nothing, and say nothing
                raise ValueError(f"{name!r} names no tenant: as {', '.join(_TENANTS)} with what follows, or '*'")
        return tenants


# vgx_sim_watch.h
_TOOLS = {"memcheck": 1, "initcheck": 2, "racecheck": 4, "synccheck": 8, "leakcheck": 16, "initcheck-shared": 32}


class Config(_Model):
    """The whole file."""

    listen: Annotated[list[str], Field(min_length=1, max_length=64)] = Field(
        default_factory=lambda: [str(default_endpoint())]
    )
    admin: str | None = Field(default_factory=lambda: str(runtime_directory() / "admin.sock"))
    backend: Literal["simulator", "cuda"] = "simulator"
    gpus: str = Field(default="h100", min_length=1, max_length=1024)
    libcuda: str = "libcuda.so.1"
    cache_dir: str | None = None
    state_dir: str | None = None  # for issued tokens and quarantine; default: systemd's, or none is saved
    shared_memory: bool = True  # unix sockets: rings and pinned memory shared with the client
    require_isolation: bool = False  # refuse clients if this kernel lacks a part of worker/cell.py's isolation
    worker_ids: str = _WORKER_IDS  # FIRST-LAST: each worker gets one of them as its user and group id
    worker_command: list[str] | None = (
        None  # run instead of `python -m vgpud.worker`: a sandbox around it, or a test's replacement
    )
    # The simulator's checks of kernels, for `vgpu sanitize`, which reads the reports in the log.
    sanitize: list[Literal["memcheck", "initcheck", "initcheck-shared", "racecheck", "synccheck", "leakcheck"]] = []
    # Count what kernels do and log it by launch, for `vgpu sim profile`.
    profile: bool = False
    socket: SocketConfig = SocketConfig()
    tls: TlsConfig | None = None
    mps: MpsConfig | None = None
    tokens: list[TokenConfig] = []
    shares: Annotated[list[ShareConfig], Field(max_length=1024)] = []
    users: Annotated[list[UserConfig], Field(max_length=65536)] = []
    default_share: str | None = None  # the share of clients without one of their own
    vm: Annotated[list[VmConfig], Field(max_length=1024)] = []
    limits: LimitsConfig = LimitsConfig()
    images: ImagesConfig = ImagesConfig()
    recording: RecordingConfig = RecordingConfig()
    log: LogConfig = LogConfig()

    @property
    def sanitizer_tools(self) -> int:
        """`sanitize` as the worker's bits."""
        return sum(_TOOLS[name] for name in set(self.sanitize))

    @field_validator("listen")
    @classmethod
    def _endpoints(cls, value: list[str]) -> list[str]:
        for text in value:
            parse_endpoint(text, listening=True)
        return value

    @field_validator("admin")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        if value == "":
            return None
        if value is not None:
            parse_endpoint(f"unix:{value}")
        return value

    @field_validator("worker_ids")
    @classmethod
    def _ids(cls, value: str) -> str:
        return format_ids(parse_ids(value))

    @model_validator(mode="after")
    def _tcp_needs_token(self) -> Config:
        for endpoint in self.endpoints:
            if isinstance(endpoint, TcpEndpoint) and not endpoint.is_loopback and not self.tokens:
                raise ValueError(f"listen: {endpoint} is reachable from other machines: configure [[tokens]] first")
        if self.tls is not None and not self.tls.endpoint.is_loopback and not self.tokens:
            raise ValueError("tls.listen: it is reachable from other machines: configure [[tokens]] first")
        return self

    @model_validator(mode="after")
    def _recordings_have_a_place(self) -> Config:
        if self.recording.tenants and self.recording_path is None:
            raise ValueError("recording.dir: give one, as there is no state_dir")
        return self

    @model_validator(mode="after")
    def _shares_exist(self) -> Config:
        names = [share.name for share in self.shares]
        if self.mps is not None and self.backend != "cuda":
            raise ValueError('mps: it is for backend = "cuda"')
        for index, share in enumerate(self.shares):
            if share.mps_active_thread_percentage is not None and self.mps is None:
                raise ValueError(f"shares.{index}.mps_active_thread_percentage: it needs [mps]")
            if share.name in names[:index]:
                raise ValueError(f"shares.{index}.name: two are called {share.name!r}")
        uses = [("default_share", self.default_share)]
        uses += [(f"tokens.{index}.share", token.share) for index, token in enumerate(self.tokens)]
        uses += [(f"vm.{index}.share", vm.share) for index, vm in enumerate(self.vm)]
        uses += [(f"users.{index}.share", user.share) for index, user in enumerate(self.users)]
        for where, name in uses:
            if name is not None and name not in names:
                raise ValueError(f"{where}: there is no [[shares]] called {name!r}")
        return self

    @model_validator(mode="after")
    def _shares_gpus_exist(self) -> Config:
        chosen = [(index, share.gpus) for index, share in enumerate(self.shares) if share.gpus is not None]
        if chosen and self.backend == "simulator":  # a driver is asked once, at start: check_gpus()
            try:
                inventory = load_inventory("simulator", self.gpus, self.libcuda)
            except InventoryError as error:
                raise ValueError(str(error).replace(" = ", ": ", 1)) from error
            for index, gpus in chosen:
                try:
                    selection.find(inventory.fields, gpus)
                except ValueError as error:
                    raise ValueError(f"shares.{index}.gpus: {error}") from error
        return self

    @property
    def mig(self) -> list[str]:
        """The MIG instances that shares name."""
        names = [name for share in self.shares for name in share.gpus or [] if isinstance(name, str)]
        return list(dict.fromkeys(name for name in names if name.startswith("MIG-")))

    def share(self, name: str | None) -> ShareConfig | None:
        """The [[shares]] of that name."""
        return next((share for share in self.shares if share.name == name), None)

    def weight(self, name: str | None) -> int:
        """The weight of the tenants that have the [[shares]] of that name."""
        share = self.share(name)
        return WEIGHT_DEFAULT if share is None or share.weight is None else share.weight

    @field_validator("vm")
    @classmethod
    def _distinct(cls, value: list[VmConfig]) -> list[VmConfig]:
        for key in ("name", "cid", "vsock", "hybrid", "ivshmem"):
            given = [getattr(vm, key) for vm in value if getattr(vm, key) is not None]
            if twice := [item for item in given if given.count(item) > 1]:
                raise ValueError(f"two VMs have the {key} {twice[0]!r}")
        return value

    @property
    def endpoints(self) -> list[Endpoint]:
        """`listen`, parsed."""
        return [parse_endpoint(text, listening=True) for text in self.listen]

    @property
    def cache_path(self) -> Path:
        """Where compiled kernels are kept: CACHE_DIRECTORY is systemd's."""
        if self.cache_dir is not None:
            return Path(self.cache_dir)
        given = os.environ.get("CACHE_DIRECTORY", "").split(":")[0]
        if given:
            return Path(given)
        base = os.environ.get("XDG_CACHE_HOME")
        return (Path(base) if base else Path.home() / ".cache") / "vgpu"

    def records(self, tenant: str) -> bool:
        """Whether the sessions of a tenant are recorded, by its name."""
        return bool({tenant, "*"} & set(self.recording.tenants))

    @property
    def recording_path(self) -> Path | None:
        """Where sessions are recorded. None: neither `recording.dir` nor a folder of the state is known."""
        if self.recording.dir is not None:
            return Path(self.recording.dir)
        return None if self.state_path is None else self.state_path / "recordings"

    @property
    def state_path(self) -> Path | None:
        """The folder that keeps the administrator's orders across restarts: STATE_DIRECTORY is systemd's. None: they
        are not kept.
        """
        given = self.state_dir or os.environ.get("STATE_DIRECTORY", "").split(":")[0]
        return Path(given) if given else None

    def with_changes(self, changes: dict[str, Any]) -> Config:
        """This configuration, overridden by the command line's settings and checked as a whole. Raises ConfigError."""
        try:
            return Config.model_validate(self.model_dump() | changes)
        except ValidationError as error:
            raise ConfigError(
                "\n".join(_describe("", "command line", dict(item)) for item in error.errors())
            ) from error


def parse_config(text: str, *, source: str) -> Config:
    """Read configuration text. `source` names it in errors. Raises ConfigError."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}:{syntax_error_line(text, error)}: {error}") from error
    try:
        return Config.model_validate(tables)
    except ValidationError as error:
        raise ConfigError("\n".join(_describe(text, source, dict(item)) for item in error.errors())) from error
    except EndpointError as error:
        raise ConfigError(f"{source}: {error}") from error


def _describe(text: str, source: str, item: dict[str, object]) -> str:
    where = item["loc"]
    assert isinstance(where, tuple)
    message = str(item["msg"]).removeprefix("Value error, ")
    if item["type"] == "extra_forbidden":
        message = "unknown key"
    if not where and (named := _KEY.match(message)):  # a check of several keys names the one to change
        where = tuple(int(part) if part.isdecimal() else part for part in named[1].split("."))
        message = message[named.end() :]
    key = ".".join(str(part) for part in where)
    line = locate(text, where)
    return f"{source}:{line}: {key}: {message}" if line else f"{source}: {key}: {message}"


def check_gpus(config: Config, inventory: dict[str, Any], path: Path | None) -> None:
    """Check that the devices that shares name are in the host's INVENTORY. `path`: the configuration's file. Raises
    ConfigError.
    """
    for index, share in enumerate(config.shares):
        try:
            selection.find(inventory, share.gpus or [])
        except ValueError as error:
            raise _error_of_host(path, ("shares", index, "gpus"), error) from error


def check_mps(config: Config, path: Path | None) -> None:
    """Check that the control daemon of [mps] answers. Raises ConfigError."""
    if config.mps is None:
        return
    try:
        mps.check(config.mps.pipe_directory)
    except mps.MpsError as error:
        raise _error_of_host(path, ("mps", "pipe_directory"), error) from error


def _error_of_host(path: Path | None, where: tuple[str | int, ...], error: Exception) -> ConfigError:
    """What this host lacks of a key's value, with the key's line."""
    try:
        text = "" if path is None else path.read_text()
    except (OSError, UnicodeDecodeError):
        text = ""
    return ConfigError(_describe(text, str(path), {"loc": where, "msg": str(error), "type": "value_error"}))


def load_config(path: Path | None) -> Config:
    """The file's configuration, or the defaults without one. Raises ConfigError."""
    if path is None:
        return Config()
    try:
        with path.open("rb") as file:
            data = file.read(_CONFIG_NBYTES + 1)
        if len(data) > _CONFIG_NBYTES:
            raise ConfigError(f"{path}: larger than {_CONFIG_NBYTES} bytes")
        text = data.decode()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 (byte {error.start})") from error
    return parse_config(text, source=str(path))
