"""Turns an endpoint's failure into one finding, with a command or advice to correct it."""

from __future__ import annotations

import os
import re
import shlex
import stat
from typing import TYPE_CHECKING, Any

from ..endpoint import EndpointError, parse_endpoint
from ..service import FOLDERS
from . import mend
from .check_configuration import access
from .place import ask

if TYPE_CHECKING:
    from .diagnosis import Diagnosis
    from .subject import Subject

PORT = 7070  # port in all examples of vgpu's documentation
_TOKEN_NBYTES_MIN = 16  # daemon/vgpud/config.py
_NOT_PERMITTED = 800


def judge(subject: Subject, diagnosis: Diagnosis, answer: dict[str, Any], found: dict[str, Any], token: str) -> None:
    """Adds one of the endpoint-... and token-... findings."""
    kind, text = answer["failure"], f"{answer['text']} (from {found['source']})"
    path = found["url"][5:] if found["url"].startswith("unix:") else ""
    # Is the path no socket? For a file that the user may not write, connect(2) reports "permission denied" instead.
    if kind in ("endpoint-denied", "endpoint-stale") and path and (what := ask(subject.place, _what_is, path)):
        advice = "name vgpud's socket: its configuration has it under `listen`"
        diagnosis.add("endpoint-invalid", f"{found['url']}: {path} is {what}, not a socket", advice=advice)
    elif kind in ("endpoint-denied", "endpoint-blocked"):
        _add_denied(subject, diagnosis, text, path)
    elif kind == "endpoint-invalid":
        _add_invalid(subject, diagnosis, text, found)
    elif kind in ("endpoint-stale", "endpoint-unreachable"):
        command, advice = _start(subject, found["url"], path)
        diagnosis.add(kind, text, command, advice)
    elif kind == "endpoint-refused" and answer["code"] == _NOT_PERMITTED and "token" in answer["text"]:
        _add_token(diagnosis, found, token)
    elif kind == "endpoint-foreign":
        diagnosis.add(kind, text, advice=f"ss -lpn  # on its host: what listens there; the endpoint is {found['url']}")
    else:
        diagnosis.add(kind, text)


def _add_token(diagnosis: Diagnosis, found: dict[str, Any], token: str) -> None:
    url = found["url"]
    if not token:
        diagnosis.add("token-missing", f"vgpud at {url} wants a token, and none is configured here")
    elif len(token) < _TOKEN_NBYTES_MIN:
        text = f"the token for {url} has {len(token)} characters: vgpud's have at least {_TOKEN_NBYTES_MIN}"
        diagnosis.add("token-short", text)
    else:
        diagnosis.add("token-wrong", f"vgpud at {url} does not know the token that is configured here")


def _what_is(path: str) -> str:
    """Runs in the program's place: the kind of file at a path, "" for a socket or a missing file."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return ""
    kinds = ((stat.S_ISSOCK, ""), (stat.S_ISREG, "a regular file"), (stat.S_ISDIR, "a directory"))
    return next((name for test, name in kinds if test(mode)), "a device or pipe")


def _start(subject: Subject, url: str, path: str) -> tuple[str, str]:
    """Command and advice to start vgpud: by its unit if the endpoint is a local socket and a unit exists."""
    if path and not subject.place.is_foreign:
        units = [
            name for name in ("vgpud.socket", "vgpud.service") if ask(subject.place.as_administrator(), _has, name)
        ]
        if units:
            return f"sudo systemctl restart {' '.join(units)}", ""
    where = "here" if path else "on its host"
    return "", f"start vgpud {where}: sudo systemctl start vgpud where systemd has it, else vgpud --listen {url}"


def _has(name: str) -> bool:
    return any(os.path.exists(f"/{folder}/{name}") for folder in FOLDERS)


def _add_denied(subject: Subject, diagnosis: Diagnosis, text: str, path: str) -> None:
    if not path:
        diagnosis.add("endpoint-denied", text, advice="a sandbox or LSM forbids this kind of socket here")
        return
    uid = subject.place.user.uid if subject.place.user is not None else os.geteuid()
    facts = ask(subject.place.as_administrator(), access, path, uid)
    if facts["group"]:
        command = f"sudo usermod -aG {shlex.quote(facts['group'])} {shlex.quote(facts['user'])}"
        after = f" && {mend.restart(subject.unit.name)}" if subject.unit is not None else "  # counts at the next login"
        diagnosis.add("endpoint-denied", text, command + after)
        return
    advice = f"{path} is {facts['mode']}: let vgpud's configuration say mode and group under [socket]"
    diagnosis.add("endpoint-denied", text, advice=advice)


def _add_invalid(subject: Subject, diagnosis: Diagnosis, text: str, found: dict[str, Any]) -> None:
    url = guess(found["url"])
    if not url:
        diagnosis.add(
            "endpoint-invalid", text, advice=f"correct {found['source']}: unix:/PATH, tcp://ADDRESS:PORT, ..."
        )
        return
    text += f"; {url} is meant"
    if found["source"] == "VGPU_ENDPOINT":
        diagnosis.add("endpoint-invalid", text, mend.set_variable(subject, "VGPU_ENDPOINT", url))
        return
    expression = rf"s|^\([[:space:]]*endpoint[[:space:]]*=[[:space:]]*\).*|\1{url}|"
    diagnosis.add("endpoint-invalid", text, f"sudo sed -i {shlex.quote(expression)} {shlex.quote(found['source'])}")


def guess(url: str) -> str:
    """The endpoint that was probably meant by an invalid text, such as a path without scheme or an address without
    port; "" if none.
    """
    guesses: list[str] = []
    url = url.strip()
    if not url.isprintable() or not url.isascii():
        return ""
    if re.match(r"(tcp|vsock):/?[^/]", url):
        guesses.append(re.sub(r":/?", "://", url, count=1))
    elif "://" in url:
        guesses.append(url)  # without the spaces around it
    if url.startswith("/"):
        guesses.append(f"unix:{url}")
    if re.fullmatch(r"unix://+[^/].*", url):
        guesses.append("unix:/" + url[5:].lstrip("/"))
    if url.startswith(("tcp://", "vsock://")):
        guesses.append(f"{url.rstrip(':/')}:{PORT}")
    if "://" not in url and ":" in url and not url.startswith(("unix:", "hybrid-vsock:")):
        guesses.append(f"tcp://{url}")
    for candidate in guesses:
        if re.search(r"[|\\&\s'\"]", candidate):
            continue
        try:
            parse_endpoint(candidate)
        except EndpointError:
            continue
        return candidate
    return ""
