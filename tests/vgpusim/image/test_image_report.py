"""`python -m vgpusim.image`."""

import os
import subprocess
import sys

import pytest
from vgpusim.image import link
from vgpusim.image import report as image_report

from .test_image import DATA, PTX, container, entry, read


def run(capsys, *arguments):
    status = image_report.main([str(argument) for argument in arguments])
    return status, capsys.readouterr().out.splitlines()


def test_fatbin(capsys):
    status, lines = run(capsys, DATA / "specific.fatbin")
    assert status == 0
    assert lines[0].startswith("0x0: PTX sm_90a (zstd, ")
    assert lines[0].endswith(" of 840 bytes) -> sm_90a")
    assert lines[1:] == [
        "PTX sm_90 x1; PTX sm_90a x1; PTX sm_100f x1; PTX sm_100a x1",
        "1 of 1 containers have PTX for compute capability 9.0",
    ]


def test_compute_capability_option(capsys):
    status, lines = run(capsys, DATA / "size.fatbin", "--cc", "7.0")
    assert status == 1
    assert lines[0].endswith("-> none")
    with pytest.raises(SystemExit):
        run(capsys, DATA / "size.fatbin", "--cc", "90")


def test_object(capsys):
    status, lines = run(capsys, DATA / "relocatable.obj")
    assert status == 0
    assert lines[-1] == "1 of 1 containers have PTX for compute capability 9.0"


@pytest.mark.parametrize(
    ("data", "status", "line"),
    [
        (PTX, 0, "PTX text for sm_70"),
        (link.link([PTX], (9, 0)), 0, "linked image of 1 PTX texts"),
        (b"", 1, None),
        (b"garbage", 1, "error 200: neither PTX"),
        (read("sm_90.cubin"), 1, "error 209: ELF sm_90; no PTX that runs on sm_90"),
        (read("relocatable.obj").replace(b"\x50\xed\x55\xba", b"\x51\xed\x55\xba"), 1, "no device code"),
        (b"junk" + container(entry(PTX)) + b"junk", 0, "0x4: PTX sm_75 (80 bytes) -> sm_75"),
    ],
)
def test_other_files(data, status, line, capsys, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(data)
    told, lines = run(capsys, path)
    assert told == status
    assert lines[0].startswith(line or f"{path}: empty")


def test_damaged_container_in_a_section(capsys, tmp_path):
    path = tmp_path / "damaged.o"
    data = read("relocatable.obj")
    start = data.index(b"\x50\xed\x55\xba")
    path.write_bytes(data[: start + 8] + b"\xff" * 8 + data[start + 16 :])
    status, lines = run(capsys, path)
    assert status == 1
    assert lines[0].startswith(f"{start:#x}: damaged: fatbin: truncated")
    assert lines[-1] == "0 of 1 containers have PTX for compute capability 9.0, 1 damaged"


def test_missing_file(capsys):
    assert image_report.main(["/nonexistent"]) == 2
    assert capsys.readouterr().err == "/nonexistent: No such file or directory\n"


def test_as_a_command():
    told = subprocess.run(
        [sys.executable, "-m", "vgpusim.image", DATA / "lto.fatbin"],
        capture_output=True, text=True, timeout=60, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert told.returncode == 1
    assert told.stdout.splitlines()[1] == "LTO-IR sm_90 x1"
