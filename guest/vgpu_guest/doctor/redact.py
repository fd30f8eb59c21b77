"""Redacts a report for publication: it removes names of users and hosts, addresses, tokens and home directories.

Secrets are recognised heuristically, by their form. The doctor does not read other secrets: a report contains only
those environment variables that matter to the doctor.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import pwd
import re
import socket
from typing import Any

_HOME = re.compile(r"/(?:home|Users|var/home)/[^/\s:;,'\"]+|/root(?=[/\s:;,'\"]|$)")
_ASSIGNMENT = re.compile(
    r"(?i)\b(\w*(?:token|secret|passw(?:or)?d|passwd|api[-_]?key|access[-_]?key|credential)\w*)(\s*[=:]\s*)(?!<)\S+"
)
_USER_INFO = re.compile(r"(\w+://)[^/\s@]+@")
_TCP_HOST = re.compile(r"(tcp://)(?!<)(\[[^\]]*\]|[^:/\s'\"]+)")
_MAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+")
_MAC = re.compile(r"\b[0-9a-f]{2}(?::[0-9a-f]{2}){5}\b", re.IGNORECASE)
_FOUR = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\d)")
_SIX = re.compile(r"(?<![\w:.])[0-9a-f:]*:[0-9a-f:]*:[0-9a-f:.]*(?:%\w+)?", re.IGNORECASE)
# The form of a key: long, with letters and digits, and no path, version or UUID of a private table.
_KEY = re.compile(r"(?<![\w/.+-])(?=[\w+-]*[0-9])(?=[\w+-]*[A-Za-z])[\w+=-]{20,}(?![\w/.-])")
_HASH_NBYTES = 32  # hex digits of a private table's UUID


class Redactor:
    """Replaces names and addresses that identify somebody. The same name always gets the same replacement, so that a
    report stays readable.
    """

    def __init__(self, secrets: tuple[str, ...] = ()) -> None:
        self._words: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        for secret in secrets:
            if secret:
                self._words[secret] = "<secret>"
        for name in (socket.gethostname(), socket.gethostname().partition(".")[0], *_hosts()):
            self._learn(name, "<host>")
        for name in _users():
            self._learn(name, "<user>")

    def _learn(self, word: str, replacement: str) -> None:
        if len(word) > 1 and word not in ("localhost", "root", "nobody"):
            self._words.setdefault(word, replacement)

    def text(self, text: str) -> str:
        """Redact a string."""
        text = _USER_INFO.sub(r"\1<secret>@", text)
        text = _ASSIGNMENT.sub(r"\1\2<secret>", text)
        text = _HOME.sub("<home>", text)
        text = _MAIL.sub("<mail>", text)
        text = _MAC.sub("<mac>", text)
        text = _TCP_HOST.sub(lambda found: found[1] + self._numbered("host", found[2]), text)
        text = _FOUR.sub(self._address, text)
        text = _SIX.sub(self._address, text)
        for word in sorted(self._words, key=len, reverse=True):
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", self._words[word], text)
        return _KEY.sub(self._key, text)

    def value(self, value: Any) -> Any:
        """Redact all strings of a JSON value, including keys."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(key)): self.value(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        return value

    def _address(self, found: re.Match[str]) -> str:
        text = found[0]
        try:
            ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            return text
        return self._numbered("ip", text)

    def _key(self, found: re.Match[str]) -> str:
        text = found[0]
        known = re.fullmatch(rf"[0-9a-f]{{{_HASH_NBYTES}}}", text) or re.match(
            r"(cu|cuda|nvml|CUDA|lib)[A-Za-z_]", text
        )
        return text if known or "<" in text else "<secret>"

    def _numbered(self, kind: str, text: str) -> str:
        number = self._numbers.setdefault(f"{kind} {text}", sum(k.startswith(f"{kind} ") for k in self._numbers) + 1)
        return f"<{kind}-{number}>"


def _users() -> set[str]:
    names = {os.environ.get(key, "") for key in ("USER", "LOGNAME", "SUDO_USER", "USERNAME")}
    for entry in pwd.getpwall():
        if entry.pw_uid >= 1000 and entry.pw_name != "nobody":
            names.add(entry.pw_name)
    with contextlib.suppress(OSError):
        names |= set(os.listdir("/home"))
    return names


def _hosts() -> set[str]:
    """Names in /etc/hosts, without those that are the same on every machine."""
    found: set[str] = set()
    try:
        with open("/etc/hosts", encoding="utf-8", errors="replace") as file:
            for line in file.read(1 << 20).splitlines():
                found |= set(line.partition("#")[0].split()[1:])
    except OSError:
        pass
    return {name for name in found if not name.startswith(("localhost", "ip6-"))}
