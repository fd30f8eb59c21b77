"""Results of tests/gpu/run.py --renew as docs/real-gpu.md shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu import page
from tests.gpu.several import TASKS

LOG = "2026-11-30 09:41:11 info    session opened peer=uid:0\n"
HEAD = "| call | native us | remoted us | ratio | least-greatest |\n|---|---|---|---|---|\n"
CARD = "NVIDIA H200, 580.159.04, 0x233510DE, 143771 MiB"
RESULTS = {
    "machine.txt": f"date: 2026-11-30 09:34:54 UTC\ncommit: 5de7c10a\ncard: {CARD}\n{CARD}\nprocessors: 22\n"
    "python: 3.12.3: torch 2.11.0+cu130; jax 0.11.2\n"
    "before: 0.4 processors busy, 0 programs on the cards\nafter: 0.9 processors busy, 0 programs on the cards\n",
    "tests.txt": "collected 3 items\n==== 2 passed, 1 xfailed in 5.00s ====\n",
    "samples.txt": "| a | 0 | 1 |\n143 samples, 133 compile; end with 0 natively 130, remoted 129; 1 natively alone\n",
    "op_db.txt": "\nended after 231 s\n",
    "claim.txt": "shared memory:\n2 MiB: result 0, 1.61 ms, 2 MiB less free, 0x7f00\n.",
    "stages.txt": f"{LOG}| call | native us |\n|---|---|\n| x | 1 |\n",
    "driver.txt": f"{LOG}{HEAD}{LOG}| x | 1 | 2 | 2 | 2-2 |\n",
    "network.md": "| | native | RTT 0 us |\n|---|---|---|\n| steps | 13.754 ms | 13.021 ms (0.97), turns 1 |\n\n"
    "A step sends 276000 bytes; 20 steps and their synchronisation are 1 turns;\n50 item() are 50 turns.\n",
    "bench.md": "date: 2026-11-30\n\n| work | native ms | shm ms | shm / native | quartiles |\n|---|---|---|---|---|\n"
    "| torch item | 0.0126 | 0.0128 | 1.06 | 1.01-1.20 |\n",
    "several.txt": ".\nddp: steps a second: native 342.1, remoted 474.2, ratio 1.386\n",
}


@pytest.fixture
def results(tmp_path: Path) -> page.Results:
    for name, text in RESULTS.items():
        (tmp_path / name).write_text(text)
    return page.Results([tmp_path])


def test_the_page_has_the_tables_of_the_run(results: page.Results) -> None:
    text, kept = page.fill(page.PAGE.read_text(), results)
    assert (
        "at commit 5de7c10a (2026-11-30): 2 NVIDIA H200 (10de:2335), driver 580.159.04, torch 2.11.0, JAX 0.11.2"
        in text
    )
    assert "| `pytest -m gpu tests/gpu` | 2 passed, 1 xfailed |" in text
    assert (
        "| NVIDIA's samples | 143 samples, 133 compile; end with 0 natively 130, remoted 129; 1 natively alone |"
        in text
    )
    assert "| PyTorch's database of operators | **not ended** |" in text
    at_run = "At 5de7c10a (2026-11-30; 22 processors, nothing beside it):"
    assert text.count(at_run) == 3
    assert f"{at_run}\n\n{HEAD}| x | 1 | 2 | 2 | 2-2 |\n\n" in text
    assert "| training step, 6 layers bf16 | 13.8 | 13 (0.97) |" in text
    assert "| `tensor.item()` at 5 ms | 2 round trips | 1 round trip | network |" in text
    assert (
        f"{at_run}\n\n| work | shm / native | quartiles |\n|---|---|---|\n| torch's `item()` | 1.06 | 1.01-1.20 |\n\n"
        in text
    )
    assert kept == ["`tests/bench/driver.py --profile`", "## Two devices"], "a table of some tasks alone replaces none"


def test_a_step_that_failed_keeps_its_table_and_its_status_is_shown(tmp_path: Path) -> None:
    (tmp_path / "tests.txt").write_text("= 1 failed, 2 passed in 5.00s =\n\nended with status 1\n")
    (tmp_path / "samples.txt").write_text("Segmentation fault\n\nended with status -11\n")
    (tmp_path / "driver.txt").write_text(f"{HEAD}| x | 1 | 2 | 2 | 2-2 |\n\nended with status 2\n")
    text, kept = page.fill(page.PAGE.read_text(), page.Results([tmp_path]))
    assert "| `pytest -m gpu tests/gpu` | 1 failed, 2 passed; exit status 1 |" in text
    assert "| NVIDIA's samples | exit status -11 |" in text
    assert "| x | 1 | 2 |" not in text
    assert "### Driver calls" in kept


@pytest.mark.parametrize(
    ("before", "after", "label"),
    [
        ("0.4 processors busy, 0 programs", "0.2 processors busy, 0 programs", "nothing beside it"),
        ("0.4 processors busy, 0 programs", "7.5 processors busy, 1 programs", "beside it 7.5 processors busy and 1"),
        ("0.4 processors busy, 0 programs", "", "what ran beside it was not recorded"),
    ],
)
def test_nothing_beside_it_is_said_of_an_idle_machine_alone(before: str, after: str, label: str) -> None:
    assert page.beside({"before": before, "after": after}).startswith(label)


def test_a_step_that_ran_beside_another_is_said_to_have(results: page.Results) -> None:
    with (results.folders[0] / "machine.txt").open("a") as machine:
        machine.write("network: on 16 processors, beside it shares on the others\n")
    text, _ = page.fill(page.PAGE.read_text(), results)
    assert "At 5de7c10a (2026-11-30; 22 processors, on 16 processors, beside it shares on the others):" in text


def test_facts_name_what_differs(results: page.Results) -> None:
    said = page.facts(results)
    assert "samples: | a | 0 | 1 |" in said
    assert "network: 50 item() are 50 turns." in said
    assert "claim: 2 MiB: result 0, 1.61 ms, 2 MiB less free, 0x7f00" in said
    assert "stages: | x | 1 |" in said


def test_every_task_of_two_devices_has_a_row() -> None:
    named = {key.partition(":")[0] for key in page.RATES} | {"torch_peers", "cupy_peers"}
    assert named == {task.__name__ for task in TASKS}


def test_checks_that_were_not_begun_are_named_and_not_claimed(tmp_path: Path) -> None:
    columns = ("remoted, shm", "remoted, unix")
    counts = "\n".join(f"{column}: 3 same" for column in columns)
    said = {"ran": "jax: 25 s", "late": "jax: not begun after 190 s"}
    for name, line in said.items():
        (tmp_path / name).mkdir()
        log = "\n".join(f"{column}: {line}" for column in columns)
        (tmp_path / name / "conformance.txt").write_text(f"{log}\n\n{counts}\n")
    ran, late = (page.Results([tmp_path / name]) for name in said)
    assert ran.ended("conformance") == "remoted, shm: 3 same; remoted, unix: 3 same"
    assert late.ended("conformance") == f"{ran.ended('conformance')}; **not begun: jax**"
    assert "| JAX gradient step" in page.now(ran)
    assert "| JAX gradient step" not in page.now(late)
