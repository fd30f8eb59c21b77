"""What tests/gpu/run.py runs beside what, and for how long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemon.running import process_exists, wait_until
from tests.gpu import page, run

CHOSEN = run.steps("libcuda.so.1", Path("/out"), 3, "/samples", renewed=True)


@pytest.mark.parametrize("part", run.PARTS)
def test_nothing_runs_beside_tests_that_fill_a_cards_memory(part: str) -> None:
    for names, _ in run.PARTS[part]:
        assert set(names) <= set(CHOSEN)
        filling = [name for name in names if set(run.FILLING) & set(CHOSEN[name])]
        assert not filling or len(names) == 1
    alone = {run.CLAIM, *run.FILLING}
    assert {f"--ignore={name}" for name in alone} <= set(CHOSEN["tests"])
    assert all((run.ROOT / name).exists() for name in alone)


@pytest.mark.parametrize(("cards", "count", "at_once"), [(1, 32, False), (2, 16, False), (2, 32, True)])
def test_measurements_run_alone_or_on_processors_and_cards_of_their_own(cards: int, count: int, at_once: bool) -> None:
    placed = run.groups("measurements", CHOSEN, cards, range(count))
    assert {name for names, _ in placed for name in names} == {name for group, _ in run.MEASUREMENTS for name in group}
    for names, _ in placed:
        if len(names) == 1:
            assert not any(names.values())
            continue
        used = [processor for processors in names.values() for processor in processors]
        assert len(used) == len(set(used)) == count
        assert len(set(names) & run.SECOND) == 1
    assert any(len(names) > 1 for names, _ in placed) == at_once
    assert run.groups("measurements", ["network"], cards, range(count)) == [({"network": ()}, run.ALONE_S["network"])]


@pytest.mark.parametrize("part", ["checks", "measurements"])
def test_a_part_needs_no_more_time_than_it_has(part: str) -> None:
    assert sum(share for _, share in run.groups(part, CHOSEN, 2, range(32))) <= 570 - (45 if part == "checks" else 0)


def test_a_step_is_told_when_to_begin_nothing_more(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    command = ["-c", "import sys; print(sys.argv[1:])", "--limit-s", f"{run.LIMIT}20", "LIMIT-"]
    assert run.run_step(tmp_path, dict(os.environ), "x", command, tmp_path, 60)
    assert (tmp_path / "x.txt").read_text() == "['--limit-s', '40', 'LIMIT-']\n"


def test_how_a_step_failed_is_written_for_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tree").mkdir()
    command = ["-c", "print('its summary', flush=True); raise SystemExit(3)"]
    assert not run.run_step(tmp_path, dict(os.environ), "x", command, tmp_path, 60)
    assert page.Results([tmp_path]).status("x") == 3
    assert capsys.readouterr().out.endswith(": its summary\n")


def test_the_page_reads_what_runs_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "said", lambda *_: "4711\n4712")
    assert page.beside(dict.fromkeys(("before", "after"), run.beside())).endswith(" and 2 programs on the cards")


def test_a_step_runs_on_its_processors(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    processor = max(os.sched_getaffinity(0))
    command = ["-c", "import os; print(os.sched_getaffinity(0))"]
    assert run.run_step(tmp_path, dict(os.environ), "x", command, tmp_path, 60, [processor])
    assert (tmp_path / "x.txt").read_text() == f"{{{processor}}}\n"


def test_a_program_ends_with_all_that_it_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "END_S", 0.2)
    code = (
        "import signal, subprocess; signal.signal(signal.SIGINT, signal.SIG_IGN); p = subprocess.Popen(['cat']); "
        "print(p.pid, flush=True); p.wait()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as program:
        assert program.stdout is not None
        child = int(program.stdout.readline())
        run.end(program)
        assert program.returncode == -signal.SIGKILL
    wait_until(lambda: not process_exists(child))
