"""Tokens: which of them admit a client."""

from __future__ import annotations

import pytest
from vgpud.config_tables import TokenConfig
from vgpud.tenancy import token as token_module
from vgpud.tenancy.token import TokenError, TokenStore

A, B = "0123456789abcdef", "fedcba9876543210"


def configured(*pairs: tuple[str, str]) -> list[TokenConfig]:
    return [TokenConfig.model_validate({"name": name, "value": value}) for name, value in pairs]


def name_of(store: TokenStore, offered: str | None) -> str | None:
    found = store.find(offered)
    return None if found is None else found.name


def test_the_configurations():
    store = TokenStore(configured(("a", A), ("b", B)))
    assert name_of(store, A) == "a"
    assert name_of(store, B) == "b"
    for wrong in (None, "", A[:-1] + "F", A + " "):
        assert name_of(store, wrong) is None
    store.set_configured(configured(("a", B), ("a", A)))  # one client's old and new token
    assert name_of(store, A) == name_of(store, B) == "a"
    with pytest.raises(TokenError, match="is in the configuration"):
        store.revoke("a")


def test_issued_until_revoked():
    store = TokenStore([])
    assert not store.is_needed
    value = store.issue("job", "small", None)
    assert store.is_needed
    assert name_of(store, value) == "job"
    assert value not in repr(list(store))
    with pytest.raises(TokenError, match="already"):
        store.issue("job", None, None)
    for wrong in ("", "x" * 65, "a\n"):
        with pytest.raises(TokenError, match="1 to 64 printable"):
            store.issue(wrong, None, None)
    store.revoke("job")
    assert name_of(store, value) is None
    with pytest.raises(KeyError):
        store.revoke("job")
    assert store.is_needed, "the last revocation opened the door to everybody"


def test_issued_until_it_expires(monkeypatch):
    now = 100.0
    monkeypatch.setattr(token_module.time, "monotonic", lambda: now)
    store = TokenStore([])
    value = store.issue("job", None, 10.0)
    assert [token.summary()["expires_in_s"] for token in store] == [10.0]
    now = 109.9
    assert name_of(store, value) == "job"
    now = 110.0
    assert name_of(store, value) is None
    assert list(store) == []
    assert store.issue("job", None, None) != value
