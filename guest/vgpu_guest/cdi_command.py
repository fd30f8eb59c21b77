"""`vgpu cdi generate`. Exit codes: 0 written, 1 not (one line says why), 2 wrong usage."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn

import click

from . import cdi as interface
from .cdi import KIND, NVIDIA, USUAL_PATH, CdiError, Choices, is_ours, make_spec, names_kind, to_json, to_yaml
from .endpoint_url import EndpointError, check_endpoint, socket_path
from .exit_status import ExitStatus
from .installation import configured_endpoint
from .layout import PROFILERS, RUNTIMES, SYSTEM
from .payload import PayloadError, find_payload
from .system_kind import user_writable
from .tree import Tree

FOLDERS = (Path("/etc/cdi"), Path("/run/cdi"))  # folders that container runtimes read; /var/run is a link to /run
_DEFAULT_ENDPOINT = "unix:/run/vgpu/vgpud.sock"
_FILE_CAP = 1 << 20
_FILES_CAP = 256
_COUNT_CAP = 64


@click.group()
def cdi() -> None:
    """Containers: the libraries and the endpoint as a device that podman, docker and containerd know."""


@cdi.command()
@click.option("--output", metavar="FILE", help="Where to write; - is standard output.  [default: /etc/cdi/vgpu.json]")
@click.option("--format", "form", type=click.Choice(["json", "yaml"]), help="Default: by the file's name.")
@click.option("--as-nvidia", is_flag=True, help=f"Answer for {NVIDIA}, which compose files and charts ask for.")
@click.option("--endpoint", metavar="URL", help="Where vgpud listens.  [default: guest.conf's, else the local socket]")
@click.option(
    "--library-dir",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="The libraries' folder.  [default: /usr/lib/vgpu, else those that came with vgpu]",
)
@click.option(
    "--find-by",
    type=click.Choice(["variable", "mount"]),
    default="variable",
    show_default=True,
    help="LD_LIBRARY_PATH, which replaces the image's; or mounts where the loader looks anyway.",
)
@click.option("--library-path", metavar="DIR", multiple=True, help="A folder of the image's to keep behind vgpu's.")
@click.option("--with-cudart", "runtimes", type=click.Choice(list(RUNTIMES)), multiple=True, help="For images without.")
@click.option(
    "--with-cupti",
    "profilers",
    type=click.Choice(list(PROFILERS)),
    multiple=True,
    help="Preload vgpu's libcupti, for torch.profiler and others that find NVIDIA's by an RPATH.",
)
@click.option("--count", type=click.IntRange(0, _COUNT_CAP), default=0, help="Also devices 0 to N-1, one GPU each.")
@click.option("--share-socket-folder", is_flag=True, help="Mount the socket's folder: survives a restart of vgpud.")
def generate(
    output: str | None,
    form: str | None,
    as_nvidia: bool,
    endpoint: str | None,
    library_dir: Path | None,
    find_by: str,
    library_path: tuple[str, ...],
    runtimes: tuple[str, ...],
    profilers: tuple[str, ...],
    count: int,
    share_socket_folder: bool,
) -> None:
    """Write a spec, so that `--device vgpu.dev/gpu=all` gives a container the GPUs."""
    kind = NVIDIA if as_nvidia else KIND
    for folder in library_path:
        if not folder.startswith("/") or ":" in folder or not folder.isprintable():
            raise click.UsageError(f"{folder!r} is not an absolute path that LD_LIBRARY_PATH can hold")
    try:
        url, configuration = _endpoint(endpoint)
        choices = Choices(
            libraries=library_dir or _libraries(),
            endpoint=url,
            kind=kind,
            path=(*library_path, *USUAL_PATH) if find_by == "variable" else None,
            runtimes=tuple(sorted(set(runtimes))),
            profilers=tuple(sorted(set(profilers))),
            count=count,
            shares_folder=share_socket_folder,
            configuration=configuration,
        )
        spec = make_spec(choices)
        if output == "-":
            click.echo(_text(spec, form or "json"), nl=False)
            return
        path = Path(output) if output else FOLDERS[0] / ("vgpu-nvidia" if as_nvidia else "vgpu")
        path = path if output else path.with_suffix(f".{form or 'json'}")
        _write(
            path, _text(spec, form or ("yaml" if path.suffix in (".yaml", ".yml") else "json")), kind, output is None
        )
    except (CdiError, PayloadError) as error:
        _fail(str(error))
    except EndpointError as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        _fail(error.strerror or str(error))
    click.echo(f"wrote {path}: podman run --device {kind}=all ..., docker run --device {kind}=all ...")
    if writer := user_writable(str(choices.libraries)):
        click.echo(f"note: {writer} can be changed by a user, and containers load libraries from it", err=True)
    for line in _advice(choices):
        click.echo(f"note: {line}", err=True)


def _endpoint(wanted: str | None) -> tuple[str, Path | None]:
    """The endpoint, and the guest.conf to mount if that has a token."""
    if wanted:
        return check_endpoint(wanted), None
    configuration = Path("/", SYSTEM.endpoint)
    try:
        content = configuration.read_bytes()[:_FILE_CAP]
    except OSError:
        return _DEFAULT_ENDPOINT, None
    url = configured_endpoint(content)
    has_token = any(line.partition("=")[0].strip() == "token" for line in content.decode(errors="replace").splitlines())
    return (check_endpoint(url) if url else _DEFAULT_ENDPOINT), configuration if has_token else None


def _libraries() -> Path:
    installed = Path(interface.INSIDE)
    if (installed / "libcuda.so.1").is_file():
        return installed
    return next(file.parent for name, file in find_payload().items() if name.startswith("libcuda"))


def _text(spec: dict[str, Any], form: str) -> str:
    return to_yaml(spec) if form == "yaml" else to_json(spec)


def _write(path: Path, text: str, kind: str, is_default: bool) -> None:
    """Write the spec atomically. Files of other programs are not replaced; links on the way to a default folder are not
    followed.
    """
    others = [other for folder in FOLDERS for other in _specs(folder) if other.resolve() != path.resolve()]
    if path.parent.resolve() in FOLDERS:
        for other in others:
            if names_kind(_read(other), kind):
                raise CdiError(f"{other} gives {kind} already: two of a kind are none to a runtime; remove one")
    root = Path("/") if is_default else path.parent.resolve()
    name = str(path)[1:] if is_default else path.name
    with Tree(root) as tree:
        if is_default and tree.status("etc/cdi") is None:
            tree.make_folder("etc/cdi", 0o755)
        there = tree.status(name) is not None
        if there:
            try:
                before = tree.read(name, _FILE_CAP).decode(errors="replace")
            except ValueError as error:
                raise CdiError(str(error)) from error
            if not is_ours(before, kind):
                raise CdiError(f"{path} is there and not of vgpu cdi generate: remove it, or name another --output")
        tree.write(name, iter([text.encode()]), 0o644, replace=there)


def _specs(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))[:_FILES_CAP]
    except OSError:
        return []
    return [folder / name for name in names if name.endswith((".json", ".yaml"))]


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_FILE_CAP).decode(errors="replace")
    except OSError:
        return ""


def _advice(choices: Choices) -> list[str]:
    socket = socket_path(choices.endpoint)
    notes = []
    if socket is not None and not Path(socket).is_socket():
        notes.append(f"there is no socket {socket}: containers start once vgpud listens there")
    elif socket is not None and not choices.shares_folder:
        notes.append("when vgpud restarts, restart the containers: they hold the old socket")
    if choices.endpoint.startswith(("tcp://127.", "tcp://localhost", "tcp://[::1]")):
        notes.append(f"{choices.endpoint} is the container itself, unless it runs with --network=host")
    if choices.endpoint.startswith("vsock:"):
        notes.append("Docker's seccomp profile refuses vsock sockets: use vgpud's unix socket, or another profile")
    if choices.shares_folder and socket is not None and (Path(socket).parent / "admin.sock").exists():
        notes.append(f"{Path(socket).parent} holds vgpud's admin socket, too: give the other one a folder of its own")
    return notes


def _fail(message: str) -> NoReturn:
    click.echo(f"{click.get_current_context().command_path}: {message}", err=True)
    raise SystemExit(ExitStatus.FAILURE)
