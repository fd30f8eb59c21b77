"""`vgpud`: the daemon."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vgpud.devices.inventory import InventoryError, load_inventory
from vgpud.serving.fd_store import receive_kept
from vgpud.serving.listener import AlreadyRunningError, ListenError
from vgpud.serving.notify import Notifier
from vgpud.serving.service import Service
from vgpud.serving.succession import receive, refusal
from vgpud.tenancy.state_file import StateError

from .. import __version__
from ..config import Config, ConfigError, check_gpus, check_mps, load_config
from ..config_tables import LogConfig
from ..endpoint import EndpointError
from ..log import configure_log
from ..vm.region import RegionError
from .fail import fail
from .status import ExitStatus

if TYPE_CHECKING:
    from collections.abc import Callable


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config", "config_path", type=click.Path(path_type=Path, dir_okay=False), help="TOML file (see vgpud.toml)."
)
@click.option("--listen", multiple=True, metavar="URL", help="Listen here instead of where the file says; repeatable.")
@click.option(
    "--admin", metavar="PATH", help='The socket of `vgpu status`; "" for none. One for each vgpud of a machine.'
)
@click.option("--gpus", metavar="PROFILES", help='Simulated devices, as in "h100:2,t4".')
@click.option("--check", is_flag=True, help="Read the configuration, say whether it is good, and exit.")
@click.option("--private", type=click.Path(path_type=Path, file_okay=False), hidden=True)
@click.version_option(__version__, prog_name="vgpud")
def daemon(
    config_path: Path | None,
    listen: tuple[str, ...],
    admin: str | None,
    gpus: str | None,
    check: bool,
    private: Path | None,
) -> None:
    """Serve GPUs to clients: identify each client, tell it which devices there are, and give it a worker."""
    try:
        config = _configure(config_path, listen, admin, gpus, private)
        inventory = load_inventory(config.backend, config.gpus, config.libcuda, config.mig)
        check_gpus(config, inventory.fields, config_path)
        check_mps(config, config_path)
    except (ConfigError, InventoryError) as error:
        fail(str(error), ExitStatus.CONFIG)
    if check:
        if (why := refusal()) is not None:
            fail(why, ExitStatus.CONFIG)
        click.echo(f"good: {inventory.device_count} devices, listening on {', '.join(config.listen)}")
        return
    configure_log(config.log.level, config.log.format)
    try:
        service = Service(config, inventory, config_path=config_path, incoming=receive() or receive_kept(Notifier()))
    except StateError as error:
        fail(str(error), ExitStatus.CONFIG)
    gc.freeze()  # excludes loaded code from later garbage collections, which then scan only sessions
    try:
        _run(service, _stdin_closed if private is not None else None)
    except AlreadyRunningError as error:
        hint = '; --admin PATH or --admin "" lets a second one run' if str(config.admin) in str(error) else ""
        fail(f"{error}{hint}", ExitStatus.ALREADY_RUNNING)
    except (ListenError, EndpointError, RegionError) as error:
        fail(str(error), ExitStatus.SOFTWARE)
    finally:
        if private is not None:
            shutil.rmtree(private, ignore_errors=True)


def _configure(
    config_path: Path | None, listen: tuple[str, ...], admin: str | None, gpus: str | None, private: Path | None
) -> Config:
    """The file's configuration, overridden by the command line and checked as a whole."""
    config = load_config(config_path)
    changes: dict[str, Any] = {}
    if listen:
        changes["listen"] = list(listen)
    if admin is not None:
        changes["admin"] = admin
    if gpus is not None:
        changes["gpus"] = gpus
    if private is not None:
        # `vgpu run`'s own daemon: it lives in a directory of mode 0700 and as long as its standard input is open.
        level = os.environ.get("VGPU_LOG", "")
        log = LogConfig(level="warning" if level not in ("debug", "info") else level, format="human")  # type: ignore[arg-type]
        kept = {"lines_per_session_s": config.log.lines_per_session_s}
        changes |= {"listen": [f"unix:{private}/vgpud.sock"], "admin": None, "log": log.model_dump() | kept}
    return config.with_changes(changes)


async def _stdin_closed() -> None:
    """Return at end of file, which the kernel reports when `vgpu run` has ended in any way."""
    loop = asyncio.get_running_loop()
    closed = asyncio.Event()

    def read() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            loop.remove_reader(sys.stdin.fileno())
            closed.set()

    loop.add_reader(sys.stdin.fileno(), read)
    await closed.wait()


def _run(service: Service, until: Callable[[], Any] | None) -> None:
    """Run it on uvloop where that is installed, else on asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        factory = None
    else:
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(service.run(until))
