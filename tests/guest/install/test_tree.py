"""Path lookup that follows no symbolic link, and writes that are complete or not made at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from vgpu_guest.tree import SUFFIX, Tree, TreeError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root/etc").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("theirs")
    return tmp_path / "root"


def content(text: str) -> list[bytes]:
    return [text.encode()]


@pytest.mark.parametrize("target", ["../outside", "/etc", "."])
def test_a_link_in_the_way_is_an_error_for_every_operation(root: Path, target: str) -> None:
    (root / "way").symlink_to(target)
    with Tree(root) as tree:
        for operation in (
            lambda: tree.read("way/file", 100),
            lambda: tree.status("way/file"),
            lambda: tree.names("way"),
            lambda: tree.make_folder("way/folder", 0o755),
            lambda: tree.write("way/file", iter(content("x")), 0o644, replace=True),
            lambda: tree.link("way/link", "x", replace=True),
            lambda: tree.remove("way/file"),
            lambda: tree.remove_folder("way/file"),
            lambda: tree.remove_unfinished("way/file"),
        ):
            with pytest.raises(TreeError, match="way: is a link, which is not followed"):
                operation()
    assert (root.parent / "outside/file").read_text() == "theirs"
    assert [path.name for path in (root.parent / "outside").iterdir()] == ["file"]


def test_a_link_at_the_end_is_not_read_through(root: Path) -> None:
    (root / "file").symlink_to("../outside/file")
    with Tree(root) as tree:
        with pytest.raises(TreeError, match="file: is a link"):
            tree.read("file", 100)
        tree.write("file", iter(content("ours")), 0o644, replace=True)
    assert (root / "file").read_text() == "ours"
    assert (root.parent / "outside/file").read_text() == "theirs"


@pytest.mark.parametrize("path", ["", "..", "../outside/file", "etc/../../outside/file", "etc//x", "./x", "etc/."])
def test_a_path_that_is_none_is_refused(root: Path, path: str) -> None:
    with Tree(root) as tree, pytest.raises(TreeError, match="is not a path in a tree"):
        tree.read(path, 100)


def test_what_is_not_a_regular_file_is_not_read(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with Tree(root) as tree, pytest.raises(TreeError, match="not a regular file"):
        tree.read("pipe", 100)


def test_a_file_longer_than_the_cap_is_refused(root: Path) -> None:
    (root / "file").write_bytes(b"x" * 101)
    with Tree(root) as tree:
        with pytest.raises(ValueError, match="longer than 100"):
            tree.read("file", 100)
        assert tree.read("file", 101) == b"x" * 101


def test_nothing_is_replaced_unless_it_is_said(root: Path) -> None:
    (root / "file").write_text("theirs")
    with Tree(root) as tree:
        with pytest.raises(TreeError) as caught:
            tree.write("file", iter(content("ours")), 0o644, replace=False)
        assert caught.value.errno == errno.EEXIST
        with pytest.raises(TreeError):
            tree.link("file", "x", replace=False)
    assert (root / "file").read_text() == "theirs"
    assert sorted(path.name for path in root.iterdir()) == ["etc", "file"]


def test_a_file_system_without_hard_links(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.link", link)
    (root / "theirs").write_text("theirs")
    with Tree(root) as tree:
        tree.write("file", iter(content("ours")), 0o644, replace=False)
        with pytest.raises(TreeError) as caught:
            tree.write("theirs", iter(content("ours")), 0o644, replace=False)
    assert caught.value.errno == errno.EEXIST
    assert [(path.name, path.read_text()) for path in sorted(root.glob("*")) if path.is_file()] == [
        ("file", "ours"),
        ("theirs", "theirs"),
    ]


def test_what_a_killed_write_left_is_written_over_and_removed(root: Path) -> None:
    (root / f".file{SUFFIX}").write_text("half")
    with Tree(root) as tree:
        tree.write("file", iter(content("whole")), 0o640, replace=False)
        assert not (root / f".file{SUFFIX}").exists()
        (root / f".file{SUFFIX}").write_text("half")
        tree.remove_unfinished("file")
    assert sorted(path.name for path in root.iterdir()) == ["etc", "file"]
    assert (root / "file").stat().st_mode & 0o7777 == 0o640


def test_a_folder_with_something_in_it_stays(root: Path) -> None:
    with Tree(root) as tree:
        tree.make_folder("etc/vgpu", 0o755)
        assert not tree.remove_folder("etc")
        assert tree.remove_folder("etc/vgpu")
    assert (root / "etc").is_dir()


def test_a_missing_root_is_named(tmp_path: Path) -> None:
    with pytest.raises(TreeError, match="nowhere: No such file"):
        Tree(tmp_path / "nowhere")
