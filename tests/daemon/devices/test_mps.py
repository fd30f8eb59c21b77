"""Whose control daemon vgpud accepts ([mps]); tests/relayed/test_mps.py has workers as its clients."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from vgpud.devices import mps


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(st_uid=os.geteuid() + 4711, st_mode=tmp_path.stat().st_mode)
    monkeypatch.setattr(mps.os, "lstat", lambda _: found)
    with pytest.raises(mps.MpsError, match=f"it belongs to user {os.geteuid() + 4711}, neither root nor"):
        mps.check(str(tmp_path))


def test_a_link_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(mps.MpsError, match="a link is not followed"):
        mps.check(str(link))
