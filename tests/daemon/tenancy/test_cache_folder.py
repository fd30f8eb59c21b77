"""A session loads compiled kernels of its own tenant only (AT6)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from vgpud.tenancy import cache_folder
from vgpud.tenancy.cache_folder import CacheFolders
from vgpud.tenancy.tenant import Identified, Tenant

from tests.patience import PATIENCE_S


def container(inode: int) -> Identified:
    """A tenant of root in a pid namespace of its own; the descriptor stands for the namespace."""
    return Identified(Tenant("uid:0", None, inode), os.open("/dev/null", os.O_RDONLY))


async def removed(path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while path.exists():
            await asyncio.sleep(0.01)


@pytest.mark.asyncio
async def test_at6_two_containers_of_one_user_share_nothing(tmp_path: Path) -> None:
    folders = CacheFolders(tmp_path)
    a, b = container(1), container(2)
    path_a, leave_a = folders.enter(a, "uid:0")
    path_b, leave_b = folders.enter(b, "uid:0")
    host, _ = folders.enter(Identified(Tenant("uid:0", None)), "uid:0")
    assert len({path_a, path_b, host}) == 3
    assert folders.enter(a, "uid:0")[0] == path_a
    path_a.mkdir()
    leave_a()
    leave_b()
    assert folders.enter(a, "uid:0")[0] == path_a, "its next program finds what was compiled"
    for owner in (a, b):
        owner.close()


@pytest.mark.control("AT6")
@pytest.mark.asyncio
async def test_at6_control_who_is_told_apart_by_the_user_alone_shares_a_folder(tmp_path: Path) -> None:
    folders = CacheFolders(tmp_path)
    first, second = (folders.enter(Identified(Tenant("uid:0", None)), "uid:0") for _ in range(2))
    assert first[0] == second[0], "two containers' kernels, as at 09c129a"


@pytest.mark.asyncio
async def test_a_namespaces_number_is_not_given_again_while_its_folder_is_kept(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(cache_folder, "_KEPT", 2)
    folders = CacheFolders(tmp_path)
    kept = []
    for inode in range(4):
        owner = container(inode)
        path, leave = folders.enter(owner, "uid:0")
        path.mkdir()
        kept.append((path, folders._passing[owner.tenant].owner))
        owner.close()
        leave()
    for path, _owner in kept[:2]:
        await removed(path)
    for path, held in kept[2:]:
        assert path.exists()
        os.fstat(held.namespace_fd)  # still open: the kernel does not reuse the namespace's number


@pytest.mark.asyncio
async def test_a_cid_without_a_name_leaves_nothing_to_the_next_vm(tmp_path: Path) -> None:
    folders = CacheFolders(tmp_path)
    owner = Identified(Tenant("cid:7", None), is_lasting=False)
    path, leave = folders.enter(owner, "cid:7")
    same, leave_same = folders.enter(owner, "cid:7")
    assert path == same
    path.mkdir()
    leave()
    assert path.exists()
    leave_same()
    await removed(path)
    assert folders.enter(owner, "cid:7")[0] != path


@pytest.mark.asyncio
async def test_who_cannot_be_told_from_others_has_a_folder_for_one_session(tmp_path: Path) -> None:
    folders = CacheFolders(tmp_path)
    path, leave = folders.enter(None, "host:127.0.0.1")
    assert folders.enter(None, "host:127.0.0.1")[0] != path
    path.mkdir()
    leave()
    await removed(path)


def test_what_a_vgpud_before_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "passing-0123").mkdir()
    (tmp_path / "passing-0123/nvidia").mkdir()
    (tmp_path / "uid%3A0").mkdir()
    CacheFolders(tmp_path).remove_left()
    assert [path.name for path in tmp_path.iterdir()] == ["uid%3A0"]
