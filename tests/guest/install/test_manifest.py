"""A manifest may come from anybody's tree, so its contents are bounded and checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from vgpu_guest.layout import RELEASE, SYSTEM, USER, LayoutError, drop_in, unit_name
from vgpu_guest.manifest import INSTALLED, Entry, Manifest, ManifestError, Request, decode, load_manifest
from vgpu_guest.tree import Tree, TreeError

ROOT = Path(__file__).resolve().parents[3]
SHA = "0" * 64
LIBRARY = f"usr/lib/vgpu/libcuda.so.{RELEASE}"
MANIFEST = Manifest(
    INSTALLED,
    RELEASE,
    Request(True, {"ollama.service": "tcp://10.0.0.1:7070"}, ("12",), "unix:/run/vgpu/vgpud.sock"),
    (
        Entry("usr/lib/vgpu", "directory"),
        Entry("usr/lib/vgpu/cudart/12", "directory"),
        Entry(LIBRARY, "file", 0o644, SHA, 10),
        Entry("usr/lib/vgpu/libcuda.so.1", "link", 0o777, target=f"libcuda.so.{RELEASE}"),
        Entry("etc/vgpu/guest.conf", "configuration", 0o644, SHA, 10),
        Entry("etc/systemd/system/ollama.service.d", "directory"),
        Entry("etc/systemd/system/ollama.service.d/zz-vgpu.conf", "file", 0o644, SHA, 10),
        Entry("etc/ld.so.conf.d", "directory"),
        Entry("var", "directory"),
    ),
    ("etc/ld.so.cache",),
)


def test_the_release_is_the_one_that_the_libraries_are_built_as() -> None:
    assert f'RELEASE = "{RELEASE}"' in (ROOT / "shim/build.py").read_text()


def test_it_reads_what_it_writes() -> None:
    assert decode(MANIFEST.encode(), SYSTEM) == MANIFEST


def test_there_may_be_none(tmp_path: Path) -> None:
    with Tree(tmp_path) as tree:
        assert load_manifest(tree) is None


def damaged(change: Callable[[dict[str, Any]], object]) -> bytes:
    document = json.loads(MANIFEST.encode())
    change(document)
    return json.dumps(document).encode()


def entry(**changes: object) -> bytes:
    return damaged(lambda document: document["entries"][2].update(changes))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "damaged"),
        (b"[]", "is not an object"),
        (b"\xff", "damaged"),
        (b"[" * 100_000, "damaged"),
        (damaged(lambda d: d.update(format=2)), "format 2"),
        (damaged(lambda d: d.update(state="x")), "unknown state"),
        (damaged(lambda d: d.pop("request")), "damaged"),
        (damaged(lambda d: d["request"].update(services=[])), "damaged"),
        (damaged(lambda d: d["request"].update(services={"../x": ""})), "not the name of a service"),
        (damaged(lambda d: d["request"].update(runtimes=["9"])), "unknown CUDA runtime"),
        (damaged(lambda d: d["request"].update(endpoint="a\nb")), "control characters"),
        (damaged(lambda d: d["request"].update(endpoint="http://x")), "none of unix"),
        (damaged(lambda d: d["request"]["services"].update(a='unix:/x" B=1')), "no blanks or quotes"),
        (damaged(lambda d: d["request"].update(smi="vgpu; rm -rf /")), "impossible vgpu"),
        (damaged(lambda d: d.update(caches=["etc/passwd"])), "unknown cache"),
        (damaged(lambda d: d["entries"].extend(d["entries"])), "twice"),
        (damaged(lambda d: d["entries"].extend([{}] * 2000)), "too long"),
        (entry(path="etc/passwd"), "claims etc/passwd"),
        (entry(path="usr/lib/vgpu/../x"), "claims"),
        (entry(path="/usr/lib/vgpu/x"), "claims"),
        (entry(path="etc/systemd/system/ollama.service.d/other.conf"), "claims"),
        (entry(path="etc/systemd/system/x.socket.d/zz-vgpu.conf"), "claims"),
        (entry(path="etc/systemd/system/ollama.service"), "claims"),
        (entry(path="etc/cron.d", kind="directory"), "claims"),
        (entry(kind="device"), "unknown kind"),
        (entry(kind="link", target="../../x"), "out of its folder"),
        (entry(mode=0o4755), "impossible mode"),
        (entry(sha256="x"), "bad hash"),
        (entry(nbytes=-1), "bad hash or size"),
    ],
)
def test_a_damaged_one_is_refused(content: bytes, says: str) -> None:
    with pytest.raises(ManifestError, match=says):
        decode(content, SYSTEM)


def test_a_users_holds_no_units() -> None:
    with pytest.raises(ManifestError, match="claims"):
        decode(MANIFEST.encode(), USER)


def test_a_large_one_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / SYSTEM.manifest
    path.parent.mkdir(parents=True)
    path.write_bytes(b" " * (2 << 20))
    with Tree(tmp_path) as tree, pytest.raises(ManifestError, match="longer than"):
        load_manifest(tree)


def test_a_link_to_one_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / SYSTEM.manifest
    path.parent.mkdir(parents=True)
    path.symlink_to("/etc/passwd")
    with Tree(tmp_path) as tree, pytest.raises(TreeError, match="link"):
        load_manifest(tree)


@pytest.mark.parametrize("name", ["ollama", "ollama.service", "a@b", "foo-bar@.service", "a:b_c.d"])
def test_names_of_units(name: str) -> None:
    assert unit_name(name).endswith(".service")
    assert drop_in(name).startswith("etc/systemd/system/")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".service", "x y", "a\n", "x" * 300, "a@b@c"])
def test_what_is_no_name_of_a_unit(name: str) -> None:
    with pytest.raises(LayoutError):
        unit_name(name)
