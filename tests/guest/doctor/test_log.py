"""Case I11: known log lines, each with its cause; and arbitrary log contents."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vgpu_guest.doctor.command import read_log
from vgpu_guest.doctor.log_line import PATTERNS
from vgpu_guest.doctor.verdict import VERDICTS

from tests.guest.doctor.tree import DOCTOR, LIB, doctor
from tests.patience import PATIENCE_S

SAMPLES = [
    (
        "library-wrong-class",
        'msg="unable to load cuda" library=/usr/lib/libcuda.so.1 error="wrong ELF class: ELFCLASS32"',
    ),
    ("library-foreign", 'msg="no nvidia devices detected by library /usr/lib/libcuda.so.535.104.05"'),
    ("library-foreign", "cuda driver library init failure: 999"),
    ("library-foreign", "cuda driver library init failure: 205"),
    ("endpoint-unreachable", "cuda driver library init failure: 802"),
    ("library-missing", "libcuda.so.1: cannot open shared object file: No such file or directory"),
    ("runtime-missing", "OSError: libcudart.so.12: cannot open shared object file: No such file or directory"),
    ("symbol-version", "Inconsistency detected by ld.so: dl-lookup.c: 107: check_match: Assertion failed!"),
    ("symbol-version", "undefined symbol: cudaMemcpy3DPeerAsync, version libcudart.so.12"),
    ("preload-missing", "ERROR: ld.so: object '/x.so' from LD_PRELOAD cannot be preloaded (cannot open): ignored."),
    ("preload-garbage", "ERROR: ld.so: object 'pw' from /etc/ld.so.preload cannot be preloaded (x): ignored."),
    ("endpoint-mute", 'msg="failure during GPU discovery" error="failed to finish discovery before timeout"'),
    (
        "library-missing",
        "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
    ),
    ("runtime-too-new", "CUDA driver version is insufficient for CUDA runtime version"),
    ("no-device-code", "RuntimeError: CUDA error: no kernel image is available for execution on the device"),
    (
        "library-denied",
        'audit: apparmor="DENIED" operation="open" profile="/usr/bin/x" name="/usr/lib/vgpu/libcuda.so.1"',
    ),
    ("snap-confined", 'audit: apparmor="DENIED" operation="open" profile="snap.ollama.listener" name="/usr/lib/x"'),
    ("restart-needed", "Failed to initialize NVML: Unknown Error"),
    ("service-environment", 'msg="inference compute" id=0 library=cpu compute=""'),
]


@pytest.mark.parametrize(("verdict", "line"), SAMPLES)
def test_I11_a_known_line_tells_its_cause(verdict: str, line: str) -> None:
    told = read_log(io.BytesIO(b"2026-11-28 starting\n" + line.encode() + b"\n"))
    assert told.finding.kind == verdict
    assert "line 2" in told.finding.text


def test_what_our_libraries_say_is_known(tmp_path: Path) -> None:
    """The lines come from the library itself, so that a change of its wording fails this test."""
    code = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"
    cases = {
        "endpoint-unreachable": {"VGPU_ENDPOINT": f"unix:{tmp_path}/absent"},
        "endpoint-invalid": {"VGPU_ENDPOINT": "http://x"},
        "endpoint-none": {},
        "devices-hidden": {"CUDA_VISIBLE_DEVICES": ""},
    }
    for verdict, environment in cases.items():
        base = {"LD_LIBRARY_PATH": str(LIB), "VGPU_LOG": "info", "VGPU_GUEST_CONF": f"{tmp_path}/none"}
        said = subprocess.run(
            [sys.executable, "-c", code], env=base | environment, capture_output=True, timeout=PATIENCE_S
        )
        assert read_log(io.BytesIO(said.stderr)).finding.kind == verdict, said.stderr


def test_the_earliest_cause_is_the_verdict_and_others_are_told(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("library=cpu\nlibcuda.so.1: cannot open shared object file\nlibrary=cpu\n")
    told = doctor("--log", log)
    assert (told.code, told.verdict) == (10, "library-missing")
    assert [other["verdict"] for other in told.answer["others"]] == ["service-environment"]


def test_standard_input() -> None:
    result = subprocess.run(
        [*DOCTOR, "--log", "-"],
        input=b"\x1b[31mFailed to initialize NVML: Unknown Error\n",
        capture_output=True,
        timeout=PATIENCE_S,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert result.returncode == 20
    assert b"\x1b" not in result.stdout


def test_an_unknown_log_is_no_ok() -> None:
    assert read_log(io.BytesIO(b"all is well\n")).verdict.exit_code == 1


def test_every_pattern_leads_to_a_verdict() -> None:
    assert {pattern.kind for pattern in PATTERNS} <= set(VERDICTS)


@given(st.binary(max_size=4096))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_read(data: bytes) -> None:
    read_log(io.BytesIO(data))
