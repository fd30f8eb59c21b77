"""The table of verdicts, and that the documentation shows it."""

from __future__ import annotations

import re
from pathlib import Path

from vgpu_guest.doctor.diagnosis import Diagnosis
from vgpu_guest.doctor.verdict import CLASSES, VERDICTS

from tests.conftest import ROOT
from tests.guest.doctor.tree import Tree, doctor
from tests.guest.elf_file import compile_library
from tests.patience import PATIENCE_S

PAGE = ROOT / "docs/doctor.md"
KEYS = {"schema", "verdict", "exit_code", "text", "meaning", "mend", "subject", "others", "warnings", "evidence"}
KEYS |= {"advice", "libs", "endpoint", "probe", "need", "ollama"}


def test_the_page_shows_every_verdict_with_its_code_and_meaning() -> None:
    shown = re.findall(r"^\| `([\w-]+)` \| (\d+) \| (.*?) \| ", PAGE.read_text(), re.MULTILINE)
    assert shown == [(kind, str(v.exit_code), v.meaning) for kind, v in VERDICTS.items()]


def test_the_page_shows_every_class() -> None:
    shown = re.findall(r"^\| (\d+) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert shown == [(str(code), text) for code, text in CLASSES.items()]


def test_only_ok_has_exit_code_0() -> None:
    assert [kind for kind, verdict in VERDICTS.items() if verdict.exit_code == 0] == ["ok"]


def test_without_a_proof_it_is_never_ok() -> None:
    assert Diagnosis().finding.kind == "unknown"


def test_the_first_cause_of_the_table_wins() -> None:
    diagnosis = Diagnosis(proven=True)
    diagnosis.add("endpoint-none", "later")
    diagnosis.add("library-missing", "earlier")
    assert diagnosis.finding.text == "earlier"
    assert [finding.text for finding in diagnosis.others] == ["later"]


def test_the_json_has_the_documented_keys_whatever_happened(tree: Tree) -> None:
    assert set(tree.doctor().answer) == KEYS
    assert set(doctor("--service", "no-such-service").answer) == KEYS


def test_a_library_in_the_working_directory_is_a_file_and_no_command(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(compile_library(tmp_path / "libmine.so").parent)
    assert doctor("libmine.so").answer["subject"]["kind"] == "file"
    told = doctor("no-such-command")
    assert (told.code, told.answer["advice"]) == (60, "command -v no-such-command")


def test_wrong_use_is_2() -> None:
    import subprocess

    from tests.conftest import merged
    from tests.guest.doctor.tree import DOCTOR

    for arguments in (["--pid", "1", "--service", "x"], ["--watch"], ["--root", "/nonexistent-tree"]):
        assert (
            subprocess.run([*DOCTOR, *arguments], capture_output=True, env=merged(None), timeout=PATIENCE_S).returncode
            == 2
        )
