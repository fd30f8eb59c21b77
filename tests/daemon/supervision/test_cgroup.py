"""Weights and bounds of workers: what is written to control groups, and nice values where there are none.

tests/vm/test_debian.py tests that systemd delegates a subtree and that the kernel accepts what is written.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from vgpud.supervision import cgroup as cgroup_module
from vgpud.supervision.cgroup import CgroupError, Cgroups, nice_of

from tests.daemon.running import only, start_client, vgpud_with_real_workers


class Tree:
    """A folder that looks like a cgroup2 mount with one delegated group."""

    def __init__(self, folder: Path, controllers: str = "cpu memory pids") -> None:
        self.mount = folder / "mount"
        self.group = self.mount / "system.slice/vgpud.service"
        self.group.mkdir(parents=True)
        (self.group / "cgroup.controllers").write_text(controllers)
        (self.group / "cgroup.procs").write_text("")
        self.process = folder / "cgroup"
        self.process.write_text("0::/system.slice/vgpud.service\n")

    def open(self) -> Cgroups:
        return Cgroups.open(self.mount, self.process)


@pytest.fixture
def delegated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup_module, "_is_delegated", lambda _group: True)


@pytest.mark.usefixtures("delegated")
def test_a_worker_has_a_group_below_its_tenants(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    groups = tree.open()
    assert (tree.group / "vgpud/cgroup.procs").read_text() == str(os.getpid())
    assert (tree.group / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    group = groups.enter(4711, 5, "uid:1000", 300, 1 << 30)
    assert group is not None
    assert (group / "cgroup.procs").read_text() == "4711"
    assert (group / "memory.max").read_text() == str(1 << 30)
    assert (group.parent / "cpu.weight").read_text() == "300"
    assert group.parent.parent == tree.group
    other = groups.enter(4712, 6, "uid:1000", 300, None)
    assert other is not None
    assert other.parent == group.parent
    stranger = groups.enter(4713, 7, "../uid:1001", None, None)
    assert stranger is not None
    assert stranger.parent != group.parent
    assert stranger.parent.parent == tree.group
    assert (stranger.parent / "cpu.weight").read_text() == "100"
    groups.leave(group)
    assert (group / "cgroup.kill").read_text() == "1"


@pytest.mark.usefixtures("delegated")
def test_after_a_crash_bounds_are_written_again_and_others_end(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    before = tree.open()
    adopted, other = before.enter(4711, 5, "uid:1000", 300, None), before.enter(4712, 6, "uid:1001", None, None)
    assert adopted is not None
    assert other is not None
    for file in (adopted.parent / "cpu.weight", adopted / "pids.max", adopted.parent / "cgroup.subtree_control"):
        file.write_text("")  # as the unit's ExecStopPost= has left them
    groups = tree.open()
    groups.adopt(adopted, 300, 1 << 30)
    groups.end_others()
    assert (adopted.parent / "cpu.weight").read_text() == "300"
    assert (adopted.parent / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert (adopted / "pids.max").read_text() == "4096"
    assert (adopted / "memory.max").read_text() == str(1 << 30)
    assert not (adopted / "cgroup.kill").exists()
    assert (other / "cgroup.kill").read_text() == "1"


@pytest.mark.usefixtures("delegated")
def test_without_the_controllers_nothing_is_divided(tmp_path: Path) -> None:
    with pytest.raises(CgroupError, match="no control of memory, pids in"):
        Tree(tmp_path, "cpu").open()


def test_what_is_not_delegated_is_left_alone(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    with pytest.raises(CgroupError, match="is not delegated to vgpud"):
        tree.open()
    assert not (tree.group / "vgpud").exists()
    tree.process.write_text("4:cpu:/\n")
    with pytest.raises(CgroupError, match="none is mounted"):
        tree.open()


@pytest.mark.parametrize(
    ("weight", "weights", "nice"), [(None, [], 0), (100, [300], 5), (300, [300], 0), (None, [200], 3), (1, [9999], 19)]
)
def test_nice_values_keep_weights(weight: int | None, weights: list[int], nice: int) -> None:
    """By the kernel's table of weights: 1024 at nice value 0, 526 at 3, 335 at 5."""
    assert nice_of(weight, weights) == nice


@pytest.fixture(scope="module")
def two_shares(tmp_path_factory: pytest.TempPathFactory):
    shares = "default_share = 'low'\n[[shares]]\nname = 'low'\nweight = 100\n[[shares]]\nname = 'high'\nweight = 300\n"
    yield from vgpud_with_real_workers(tmp_path_factory.mktemp("shares"), shares)


def test_a_workers_threads_have_its_weight(two_shares) -> None:
    client = start_client(two_shares)
    session = only(lambda: two_shares.admin.get("sessions")["sessions"])
    missing = two_shares.status()["isolation_missing"]
    pid = session["worker_pid"]
    if "control group" in missing:
        nices = {os.getpriority(os.PRIO_PROCESS, int(task.name)) for task in Path(f"/proc/{pid}/task").iterdir()}
        assert nices == {5}
    else:
        assert f"/session-{session['session']}\n" in Path(f"/proc/{pid}/cgroup").read_text()
    client.communicate()
