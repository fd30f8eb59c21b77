"""The administrator's orders (tokens, quarantine) survive a restart of vgpud."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from vgpud.cli.client import RefusedError
from vgpud.tenancy.state_file import StateError, StateFile
from vgpud.tenancy.token import TokenStore

SHARES = "[[shares]]\nname = 'small'\nmemory_mib = 64\n"


def test_a_file_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = StateFile(tmp_path / "state")
    assert state.load() == {}
    state.save({"a": 1})
    assert state.load() == {"version": 1, "a": 1}
    [file] = (tmp_path / "state").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        state.save({"a": 2})
    assert state.load()["a"] == 1
    assert [*(tmp_path / "state").iterdir()] == [file]


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 2}', "\x00"])
def test_a_damaged_file_is_not_taken_for_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(StateError, match=f"{tmp_path}/state.json"):
        StateFile(tmp_path).load()


def test_without_a_directory_nothing_lasts() -> None:
    state = StateFile(None)
    state.save({"a": 1})
    assert state.load() == {}
    assert not state.lasts


def test_tokens_keep_their_time_and_not_their_values() -> None:
    store = TokenStore([])
    lasting, passing = store.issue("lasting", None, None), store.issue("passing", "small", 100.0)
    document = json.loads(json.dumps(store.dump()))
    assert lasting not in json.dumps(document)
    after = TokenStore([])
    after.restore(document)
    assert {token.name for token in after} == {"lasting", "passing"}
    found = after.find(passing)
    assert found is not None
    assert 90 < found.summary()["expires_in_s"] <= 100  # type: ignore[operator]
    document["issued"][0]["expires_at"] = 1.0
    after.restore(document)
    assert after.find(lasting) is None
    after.restore({"issued": [], "were_issued": True})
    assert after.is_needed


def test_tokens_and_quarantine_outlive_vgpud(start, tmp_path: Path) -> None:
    extra = f"state_dir = '{tmp_path}/state'\n{SHARES}"
    listen = ["tcp://127.0.0.1:0", f"unix:{tmp_path}/vgpud.sock"]
    first = start(extra=extra, listen=listen)
    order = {"name": "job", "share": "small"}
    value = first.admin.request("POST", "tokens", document=order)["value"]
    gone = first.admin.request("POST", "tokens", document={"name": "gone"})["value"]
    first.admin.request("DELETE", "tokens", "gone")
    first.admin.request("PUT", "quarantine", f"uid:{os.getuid()}")
    first.end()
    second = start(extra=extra, listen=listen)
    with second.client(token=value) as client:
        assert client.hello().inventory["devices"][0]["memory_nbytes"] == 64 << 20
    for refused in (gone, None):
        with second.client(token=refused) as client, pytest.raises(RefusedError, match="a valid token is needed"):
            client.hello()
    assert second.admin.get("quarantine") == {"tenants": [f"uid:{os.getuid()}"]}
    second.end()
    third = start(extra=f"state_dir = '{tmp_path}/state'\n", listen=listen)
    with third.client(token=value) as client, pytest.raises(RefusedError, match="share 'small' of this token is not"):
        client.hello()


def test_a_vgpud_does_not_start_without_its_state(start, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(AssertionError, match=r"state\.json.*mend it"):
        start(extra=f"state_dir = '{tmp_path}'\n")


def test_an_order_that_cannot_be_kept_is_not_taken_for_one(start, tmp_path: Path) -> None:
    running = start(extra=f"state_dir = '{tmp_path}/file'\n")
    (tmp_path / "file").write_text("")  # in the place of the state directory
    with pytest.raises(Exception, match="not issued, as it cannot be kept"):
        running.admin.request("POST", "tokens", document={"name": "job"})
    assert running.admin.get("tokens") == {"tokens": []}
    with pytest.raises(Exception, match="done, but lost at the next restart"):
        running.admin.request("PUT", "quarantine", "uid:12345")
    assert running.admin.get("quarantine") == {"tenants": ["uid:12345"]}
