"""`vgpu bench` as a user runs it, on a simulated GPU; and work that fails (`make build` first)."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from vgpud.bench import measure
from vgpud.bench.measure import Report, compare
from vgpud.bench.side import Side

from tests.conftest import VGPU, Run, merged

CALLS = ["launch, queued", "launch + synchronise", "a call with an answer (cuMemGetInfo)", "H2D 64 MB pageable"]


def test_on_the_simulator(native_run: Run, tmp_path: Path) -> None:
    options = ["--simulator", "h100", "--work", "calls", "--work", "first", "--rounds", "1", "--out", tmp_path]
    done = native_run([*VGPU, "bench", "--channel", "shm", "--channel", "tcp", *options], env=merged(None))
    assert done.returncode == 0, done.stderr
    assert "left out" not in done.stdout
    document = json.loads((tmp_path / "bench.json").read_text())
    rows = {row["name"]: row["times_ms"] for row in document["rows"]}
    for name in CALLS:
        assert {side: len(times) for side, times in rows[name].items()} == {"shm": 1, "tcp": 1}
        assert all(time_ms > 0 for times in rows[name].values() for time_ms in times)
    assert set(rows["dlopen until the first kernel's result"]) == {"shm", "tcp", "shm, warm"}
    assert (tmp_path / "bench.md").read_text() == done.stdout
    assert (tmp_path / "bench.svg").read_text().startswith("<svg")


def test_without_a_driver_it_says_so_and_fails(native_run: Run, tmp_path: Path) -> None:
    command = [*VGPU, "bench", "--native-only", "--work", "calls", "--libcuda", tmp_path / "libcuda.so.1"]
    done = native_run([*command, "--rounds", "1"], env={**merged(None), "LD_LIBRARY_PATH": str(tmp_path)})
    if done.returncode == 0:
        pytest.skip("this machine has a driver")
    assert done.returncode == 1
    assert "- left out: calls: native: " in done.stdout


@pytest.mark.parametrize(
    "options",
    [["--native-only", "--simulator", "h100"], ["--endpoint", "nonsense"], ["--native-only", "--channel", "shm"]],
)
def test_options_that_do_not_go_together(native_run: Run, options: list[str]) -> None:
    done = native_run([*VGPU, "bench", *options], env=merged(None))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Replace the benchmark's program of driver calls with a shell script."""
    path = tmp_path / "calls"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(measure, "CALLS", path)


def run(rounds: int = 2) -> Report:
    sides = [Side("native", {"WHO": "n"}), Side("shm", {"WHO": "s"})]
    return compare("calls", sides, rounds, say=lambda line: None)


def test_sides_take_turns_at_being_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"""echo '["a"]'; while read name; do echo $WHO >> {tmp_path}/order; echo 1.5; done"""
    program(tmp_path, monkeypatch, text)
    report = run()
    assert (tmp_path / "order").read_text().split() == ["n", "s", "s", "n"]
    assert report.rows[0].times_ms == {"native": [1.5, 1.5], "shm": [1.5, 1.5]}
    assert report.skipped == []


def test_a_side_that_cannot_start_is_left_out_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """[ $WHO = s ] && { echo "no card here" >&2; exit 1; }; echo '["a"]'; while read name; do echo 2; done"""
    program(tmp_path, monkeypatch, text)
    report = run()
    assert report.skipped == ["calls: shm: no card here"]
    assert report.rows[0].times_ms == {"native": [2.0, 2.0]}


def test_wrong_results_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        """echo '["a"]'; while read name; do echo 2; done; [ $WHO = s ] || exit 0; echo "it miscounted" >&2; exit 1"""
    )
    program(tmp_path, monkeypatch, text)
    assert run().skipped == ["calls: shm: it miscounted"]


def test_a_side_that_dies_in_a_window_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, """echo '["a"]'; read name; [ $WHO = s ] && exit 3; echo 1; read name; echo 1""")
    report = run()
    assert report.skipped == ["calls: shm: ended with 3"]
    assert report.rows[0].times_ms == {"native": [1.0]}


def test_our_library_is_not_the_native_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from vgpud.bench.side import LIBRARIES, native, remote

    monkeypatch.setenv("LD_LIBRARY_PATH", f"{LIBRARIES}:/opt/other")
    monkeypatch.setenv("VGPU_ENDPOINT", "unix:/s")
    for side in (native("libcuda.so.1"), native("/opt/driver/libcuda.so.1")):
        environment = side.of_program()
        assert str(LIBRARIES) not in environment["LD_LIBRARY_PATH"]
        assert environment["LD_LIBRARY_PATH"].endswith("/opt/other")
        assert "VGPU_ENDPOINT" not in environment
    environment = remote("shm", "unix:/t").of_program()
    assert environment["LD_LIBRARY_PATH"] == f"{LIBRARIES}:/opt/other"
    assert environment["VGPU_ENDPOINT"] == "unix:/t"
