"""The configuration: one TOML file, every key optional, unknown keys refused, errors naming file, line and key."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from .config_location import locate, syntax_error_line
from .config_tables import (
    ImagesConfig,
    LimitsConfig,
    LogConfig,
    MpsConfig,
    RecordingConfig,
    ShareConfig,
    SocketConfig,
    Table,
    TlsConfig,
    TokenConfig,
    UserConfig,
    VmConfig,
)
from .devices import mps, selection
from .devices.inventory import InventoryError, load_inventory
from .endpoint import (
    Endpoint,
    EndpointError,
    TcpEndpoint,
    default_endpoint,
    parse_endpoint,
    runtime_directory,
)
from .worker.user_ids import format_ids, parse_ids

_CONFIG_NBYTES = 1024 * 1024
WEIGHT_DEFAULT = 100  # a tenant's, among those that are busy; also the kernel's default of cpu.weight
_KEY = re.compile(r"([a-z_]+(?:\.[a-z_0-9]+)*): ")
# Ids that no other software uses: UIDS-GIDS.md of systemd lists 1879048192 to 2147352575 as unused.
_WORKER_IDS = "2000000000-2000065535"


class ConfigError(Exception):
    """The configuration cannot be used; the text names file, line and key."""


# vgx_sim_watch.h
_TOOLS = {"memcheck": 1, "initcheck": 2, "racecheck": 4, "synccheck": 8, "leakcheck": 16, "initcheck-shared": 32}


class Config(BaseModel):
    """The whole file."""

    model_config = Table.model_config

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
