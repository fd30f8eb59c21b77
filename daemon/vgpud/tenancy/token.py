"""The tokens that let clients in: those of the configuration, and those that the administrator's interface issues.

An issued token lasts until it expires or is revoked; dump() and restore() carry it over restarts (state_file.py).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vgpud.config_tables import TokenConfig

_SECRET_NBYTES = 32
_ISSUED_CAP = 4096  # each client's token is compared with all of them


class TokenError(Exception):
    """The token cannot be issued or revoked; the text is one line."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token. Only a digest of its value is kept."""

    name: str
    digest: bytes = field(repr=False)
    share: str | None
    is_issued: bool
    expires_at: float | None = None  # time.monotonic()

    def is_valid(self) -> bool:
        """Whether it has not expired."""
        return self.expires_at is None or time.monotonic() < self.expires_at

    def summary(self) -> dict[str, object]:
        """What the administrator sees."""
        left = None if self.expires_at is None else max(0.0, round(self.expires_at - time.monotonic(), 3))
        source = "issued" if self.is_issued else "configuration"
        return {"name": self.name, "share": self.share, "source": source, "expires_in_s": left}


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode()).digest()


class TokenStore:
    """All tokens, by name."""

    def __init__(self, configured: Iterable[TokenConfig]) -> None:
        self._configured: dict[str, list[Token]] = {}
        self._issued: dict[str, Token] = {}
        self._was_issued = False
        self.set_configured(configured)

    def __iter__(self) -> Iterator[Token]:
        self._drop_expired()
        return iter([*(token for same in self._configured.values() for token in same), *self._issued.values()])

    @property
    def is_needed(self) -> bool:
        """Whether TCP clients need a token. True for good once one was issued, so that revoking the last one admits
        nobody.
        """
        return bool(self._configured) or self._was_issued

    def set_configured(self, configured: Iterable[TokenConfig]) -> None:
        """Replace the configuration's tokens. Two tokens with one name are the old and the new one of a client."""
        found: dict[str, list[Token]] = {}
        for token in configured:
            known = Token(token.name, _digest(token.value.get_secret_value()), token.share, is_issued=False)
            found.setdefault(token.name, []).append(known)
        self._configured = found

    def find(self, offered: str | None) -> Token | None:
        """The token whose value is `offered`.

        Every token is compared, each in constant time over digests, so timing reveals nothing about them.
        """
        digest = _digest(offered or "")
        found = None
        for token in self:
            if hmac.compare_digest(digest, token.digest) and offered is not None and token.is_valid():
                found = token
        return found

    def issue(self, name: str, share: str | None, lifetime_s: float | None) -> str:
        """Issue a token. Returns its value, which is not stored. Raises TokenError."""
        self._drop_expired()
        if not 0 < len(name) <= 64 or not name.isprintable():
            raise TokenError("a token's name has 1 to 64 printable characters")
        if name in self._configured or name in self._issued:
            raise TokenError(f"there is a token called {name!r} already")
        if len(self._issued) >= _ISSUED_CAP:
            raise TokenError(f"{_ISSUED_CAP} tokens are issued already")
        value = secrets.token_urlsafe(_SECRET_NBYTES)
        expires_at = None if lifetime_s is None else time.monotonic() + lifetime_s
        self._issued[name] = Token(name, _digest(value), share, is_issued=True, expires_at=expires_at)
        self._was_issued = True
        return value

    def revoke(self, name: str) -> None:
        """Revoke a token. Raises TokenError, and KeyError when no token has that name."""
        if name in self._configured:
            raise TokenError(f"{name!r} is in the configuration: remove it there, and reload vgpud")
        del self._issued[name]

    def dump(self) -> dict[str, Any]:
        """The issued tokens for restore(), without their values; times are wall-clock times."""
        self._drop_expired()
        tokens = [
            {
                "name": token.name,
                "digest": token.digest.hex(),
                "share": token.share,
                "expires_at": None if token.expires_at is None else time.time() + token.expires_at - time.monotonic(),
            }
            for token in self._issued.values()
        ]
        return {"issued": tokens, "were_issued": self._was_issued}

    def restore(self, document: dict[str, Any]) -> None:
        """Replace the issued tokens by those of dump(). Raises ValueError or KeyError."""
        issued = {}
        for fields in document["issued"]:
            left_s = None if fields["expires_at"] is None else fields["expires_at"] - time.time()
            expires_at = None if left_s is None else time.monotonic() + left_s
            digest = bytes.fromhex(fields["digest"])
            issued[fields["name"]] = Token(
                fields["name"], digest, fields["share"], is_issued=True, expires_at=expires_at
            )
        self._issued, self._was_issued = issued, bool(document["were_issued"])

    def _drop_expired(self) -> None:
        for token in [token for token in self._issued.values() if not token.is_valid()]:
            del self._issued[token.name]
