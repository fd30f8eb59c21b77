"""The tables of the configuration's file, each with its keys, their defaults and limits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from ._gen.api import GROUPS, OBJECT_QUOTAS
from .endpoint import VMADDR_CID_ANY, HybridVsockEndpoint, TcpEndpoint, parse_endpoint

RANGE_NBYTES_MIN = 24 << 20  # a ring takes 10 MiB, and half a range is for pinned memory
_SPIN_US, _FEW_PROCESSORS = 50, 2
_OBJECTS: Any = Field(default=None, ge=1, le=1 << 22)  # the capacity of a handle table
_TOKEN_LENGTHS = range(16, 256)  # the guest library stores at most 255 characters


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SocketConfig(Table):
    """Who may open the unix sockets vgpud listens on."""

    mode: str = Field(default="0600", pattern=r"^0[0-7]{3}$")
    group: str | None = None

    @property
    def mode_bits(self) -> int:
        """`mode` as a number."""
        return int(self.mode, 8)


class TokenConfig(Table):
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


class ShareConfig(Table):
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


class MpsConfig(Table):
    """NVIDIA's Multi-Process Service, which the administrator has started on this host."""

    # The control daemon's own default
    pipe_directory: str = Field(default="/tmp/nvidia-mps", pattern="^/")  # noqa: S108


class TlsConfig(Table):
    """Where clients of other machines connect over TLS (`vgpu connect` on their side). They need a token, too."""

    listen: str = "tcp://0.0.0.0:7443"
    certificate: str  # PEM; the chain, and the key if `key` is left out
    key: str | None = None
    client_ca: str | None = None  # file of the authority that clients' certificates must be signed by

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


class UserConfig(Table):
    """The share of one user of this host."""

    uid: int = Field(ge=0, lt=2**32 - 1)
    share: str


class LimitsConfig(Table):
    """Limits of what clients may use. All can be changed by SIGHUP."""

    max_sessions: int = Field(default=1024, ge=1, le=65535)
    sessions_per_client: int = Field(default=512, ge=1, le=65535)  # per uid, vsock CID or TCP address
    pending_connections: int = Field(default=1024, ge=1, le=65535)  # connections that have not been welcomed yet
    pending_per_client: int = Field(default=512, ge=1, le=65535)  # so that one client cannot shut the others out
    ipc_objects_per_tenant: int = Field(default=4096, ge=0, le=16384)  # allocations and events shared by cuIpc; 0: none
    spare_workers: int = Field(default=1, ge=0, le=16)
    # For each device: workers that already have a context there, which uses device memory.
    warm_workers: int = Field(default=0, ge=0, le=16)
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


class ImagesConfig(Table):
    """How much of clients' program images is kept, so that they need not be sent again at the next start. 0 in any
    setting: nothing is kept.
    """

    tenant_nbytes: int = Field(default=512 * 1024 * 1024, ge=0, le=2**40)  # of memory, for each tenant
    tenant_entries: int = Field(default=1024, ge=0, le=65536)
    nbytes: int = Field(default=2 * 1024 * 1024 * 1024, ge=0, le=2**44)  # of all tenants
    entries: int = Field(default=8192, ge=0, le=2**20)  # of all tenants; each uses one descriptor of vgpud
    keep_s: float = Field(default=86400.0, gt=0, le=1e8)  # after a tenant's last session


class LogConfig(Table):
    """What is logged and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "human", "journal", "json"] = "auto"
    lines_per_session_s: float = Field(default=5.0, gt=0, le=1_000_000)
    audit: str | None = Field(default=None, pattern="^/")  # file for the audit log, beside vgpud's own log

    @property
    def audit_path(self) -> Path | None:
        """`audit` as a path."""
        return None if self.audit is None else Path(self.audit)


class VmConfig(Table):
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


class RecordingConfig(Table):
    """Whose sessions are recorded for `vgpu replay`: all that their programs send and receive, contents included."""

    tenants: list[str] = []  # as `vgpu status` names them; "*": all
    dir: str | None = None  # default: `recordings` in state_dir
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
