"""`vgpu install`, `vgpu repair`, `vgpu uninstall`. Exit codes: 0 done, 1 not (one line says why), 2 wrong usage."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from .cdi import specs_of
from .endpoint_url import EndpointError, check_endpoint
from .exit_status import ExitStatus
from .installation import Installation, Report, without_service
from .installer import InstallError
from .layout import RUNTIMES, SYSTEM, USER, LayoutError, unit_name
from .manifest import ManifestError, Request, is_smi
from .payload import PayloadError
from .service import ServiceError
from .system_kind import check_system, user_writable
from .tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    _TextType = click.ParamType[str]
else:  # Debian 12's click has no type parameters yet
    _TextType = click.ParamType


class _EndpointType(_TextType):
    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return check_endpoint(value)
        except EndpointError as error:
            self.fail(str(error), param, ctx)


class _ServiceType(_TextType):
    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return unit_name(value)
        except LayoutError as error:
            self.fail(str(error), param, ctx)


def _where(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select the tree, common to the three commands."""
    root = click.option(
        "--root",
        type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
        default="/",
        show_default=True,
        help="Another system's tree: an image, a chroot.",
    )
    user = click.option(
        "--user", is_flag=True, help="For the calling user alone, in the home directory; needs no root."
    )
    return root(user(function))


_SERVICE: dict[str, Any] = {"metavar": "NAME", "type": _ServiceType(), "multiple": True}
_FROM: dict[str, Any] = {
    "metavar": "DIR",
    "type": click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    "help": "Folder of the libraries to install (default: those that came with vgpu).",
}


@click.command()
@_where
@click.option("--service", "services", **_SERVICE, help="For this systemd service alone, by a drop-in (repeatable).")
@click.option("--endpoint", type=_EndpointType(), help="Where vgpud listens: of the service, else of the machine.")
@click.option(
    "--with-cudart",
    "cudart",
    type=click.Choice([*RUNTIMES, "auto", "none"]),
    multiple=True,
    help="vgpu's CUDA runtimes for programs that bring none (auto: all; with --user: none).",
)
@click.option("--with-smi", is_flag=True, help="`vgpu smi` as nvidia-smi, which installers look for, if there is none.")
@click.option("--from", "payload", **_FROM)
@click.option("--dry-run", is_flag=True, help="Say what would be made; change nothing.")
def install(
    root: Path,
    user: bool,
    services: tuple[str, ...],
    endpoint: str | None,
    cudart: tuple[str, ...],
    with_smi: bool,
    payload: Path | None,
    dry_run: bool,
) -> None:
    """Install vgpu's libraries for all programs, for one service, or for one user.

    What another package or person has put there is never replaced, moved or followed through a link. `vgpu uninstall`
    removes everything again.
    """
    if user and (services or root != Path("/")):
        raise click.UsageError("--user goes without --service and --root: a user's units read the same environment")
    if user and with_smi:
        raise click.UsageError("--with-smi is for the machine: it goes without --user")
    if len(cudart) > 1 and {"auto", "none"} & set(cudart):
        raise click.UsageError("--with-cudart auto and none go alone")

    def change(before: Request, available: tuple[str, ...]) -> Request:
        runtimes = before.runtimes
        if cudart == ("none",):
            runtimes = ()
        elif cudart and cudart != ("auto",):
            runtimes = tuple(sorted(set(cudart)))
        elif cudart or before == Request():
            # None for a user installation: it can only set LD_LIBRARY_PATH, where vgpu's runtime would take precedence
            # over NVIDIA's runtime in a RUNPATH.
            runtimes = () if user else available
        request = replace(before, runtimes=runtimes, smi=_find_smi(root) if with_smi else before.smi)
        if services:
            added = {unit: before.services.get(unit, "") if endpoint is None else endpoint for unit in services}
            return replace(request, services={**before.services, **added})
        return replace(request, machine=True, endpoint=before.endpoint if endpoint is None else endpoint)

    with _tree(root, user) as (tree, layout):
        if not user:
            check_system(tree)
        report = Installation(tree, layout, payload).install(change, dry_run=dry_run)
        if user and not dry_run:
            report.done.append(f"for a shell: . {tree.show(layout.libraries)}/env.sh; for the session: log in again")
        _tell(report, dry_run)


def _find_smi(root: Path) -> str:
    """The vgpu command that the installed nvidia-smi calls; for another root, `vgpu` found by PATH in that root."""
    if find_spec("vgpud") is None:  # find_spec does not import the package
        raise InstallError("this vgpu has no `vgpu smi`: the guest's package and a checkout have it")
    theirs = root / "usr/bin/nvidia-smi"
    if os.path.lexists(theirs):
        raise InstallError(f"{theirs} is there already: vgpu's would hide it")
    program = "vgpu" if root != Path("/") else os.path.abspath(shutil.which(sys.argv[0]) or shutil.which("vgpu") or "")
    if root == Path("/") and (writer := user_writable(program)):
        raise InstallError(f"{writer} can be changed by a user, and root would run it: use the package's vgpu for this")
    if not is_smi(program) or not program.endswith("vgpu"):
        raise InstallError("vgpu is not in the PATH: nvidia-smi would not find it")
    return program


@click.command()
@_where
@click.option("--from", "payload", **_FROM)
@click.option("--dry-run", is_flag=True, help="Say what was found; change nothing.")
def repair(root: Path, user: bool, payload: Path | None, dry_run: bool) -> None:
    """Restore what an update has deleted or changed, and report it."""
    with _tree(root, user) as (tree, layout):
        installation = Installation(tree, layout, payload)
        found, report = installation.repair(dry_run=dry_run)
        for line in found:
            click.echo(f"found: {line}")
        if not found:
            click.echo("nothing was missing or changed")
        if dry_run:
            for line in report.done:
                click.echo(line)
            click.echo("nothing was changed")
        elif found:
            click.echo("everything is as it was installed")
            manifest = installation.manifest()
            for unit in manifest.request.services if manifest and tree.is_live else ():
                click.echo(f"next: systemctl restart {unit}")
        _warn(report)


@click.command()
@_where
@click.option("--service", "services", **_SERVICE, help="Take back the drop-in of this service alone (repeatable).")
@click.option("--purge", is_flag=True, help="Also remove what was changed since it was installed.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed; change nothing.")
def uninstall(root: Path, user: bool, services: tuple[str, ...], purge: bool, dry_run: bool) -> None:
    """Remove what `vgpu install` made; the tree is as it was before."""
    with _tree(root, user) as (tree, layout):
        installation = Installation(tree, layout)
        manifest = installation.manifest()
        if services:
            _uninstall_services(installation, services, dry_run)
            return
        if dry_run:
            for entry in reversed(manifest.entries if manifest else ()):
                click.echo(f"would remove {tree.show(entry.path)}")
            click.echo("nothing was changed")
            return
        kept = installation.uninstall(purge=purge)
        if kept is None:
            click.echo(f"nothing is installed in {root if not user else Path.home()}")
            return
        for path in kept:
            click.echo(f"kept, for it was changed since: {tree.show(path)} (--purge removes it)", err=True)
        if kept:
            raise SystemExit(ExitStatus.FAILURE)
        click.echo("removed; everything is as it was before")
        for spec in specs_of(tree) if not user else ():
            click.echo(f"note: {tree.show(spec)}, by vgpu cdi generate, names what is gone: remove it", err=True)
        for unit in manifest.request.services if manifest and tree.is_live else ():
            click.echo(f"next: systemctl restart {unit}")


def _uninstall_services(installation: Installation, services: tuple[str, ...], dry_run: bool) -> None:
    manifest = installation.manifest()
    for unit in services:
        if manifest is None or unit not in manifest.request.services:
            _fail(f"nothing is installed for {unit}")
    request = manifest.request if manifest else Request()
    for unit in services:
        request = without_service(request, unit)
    if not request.machine and not request.services and not dry_run:
        installation.uninstall()
        click.echo("removed; it was the last service, and everything is as it was before")
        return
    _tell(installation.install(lambda _before, _runtimes: request, dry_run=dry_run), dry_run)


@contextmanager
def _tree(root: Path, user: bool) -> Iterator[tuple[Tree, Any]]:
    """The tree; every error in it ends the command with one line."""
    try:
        with Tree(Path.home().resolve() if user else root) as tree:
            yield tree, USER if user else SYSTEM
    except (InstallError, ManifestError, PayloadError, ServiceError, LayoutError) as error:
        _fail(str(error))
    except PermissionError as error:
        _fail(_permission(error, user))
    except OSError as error:
        hint = isinstance(error.errno, int) and error.errno in (1, 13, 30)
        _fail(_permission(error, user) if hint else _text(error))


def _permission(error: OSError, user: bool) -> str:
    return _text(error) + ("" if user else " (as root, or --user for yourself alone)")


def _text(error: OSError) -> str:
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return error.strerror or str(error)


def _tell(report: Report, dry_run: bool) -> None:
    for line in report.done:
        click.echo(line)
    if dry_run:
        click.echo("nothing was changed")
    elif not report.is_changed:
        click.echo("nothing had to be changed")
    _warn(report)


def _warn(report: Report) -> None:
    for line in report.warnings:
        click.echo(f"warning: {line}", err=True)
    if report.warnings:
        raise SystemExit(ExitStatus.FAILURE)


def _fail(message: str) -> NoReturn:
    click.echo(f"{click.get_current_context().command_path}: {message}", err=True)
    raise SystemExit(ExitStatus.FAILURE)
