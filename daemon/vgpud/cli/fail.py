"""How a command ends when it cannot do its work: one line on standard error and a code."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import click

from ..endpoint import Endpoint, EndpointError
from ..proto import RemoteProtocolError
from .client import RefusedError
from .status import ExitStatus

if TYPE_CHECKING:
    from collections.abc import Iterator


def say(message: str) -> None:
    """Print a line on standard error, prefixed with the command that was typed."""
    context = click.get_current_context(silent=True)
    click.echo(f"{context.command_path if context is not None else 'vgpu'}: {message}", err=True)


def fail(message: str, status: ExitStatus) -> NoReturn:
    """Say why and exit."""
    say(message)
    raise SystemExit(int(status))


@contextmanager
def reported(endpoint: Endpoint) -> Iterator[None]:
    """Turn errors of a connection into fail()."""
    try:
        yield
    except RefusedError as error:
        fail(f"{endpoint}: refused: {error}", ExitStatus.UNAVAILABLE)
    except RemoteProtocolError as error:
        fail(f"{endpoint}: not a vgpud: {error}", ExitStatus.UNAVAILABLE)
    except EndpointError as error:
        fail(str(error), ExitStatus.UNAVAILABLE)  # a name that does not resolve; its form was checked before
    except TimeoutError:
        fail(f"{endpoint}: no answer", ExitStatus.UNAVAILABLE)
    except (FileNotFoundError, ConnectionRefusedError) as error:
        fail(f"{endpoint}: no vgpud listens there: {error.strerror}", ExitStatus.UNAVAILABLE)
    except OSError as error:
        fail(f"{endpoint}: {error.strerror or error}", ExitStatus.UNAVAILABLE)
