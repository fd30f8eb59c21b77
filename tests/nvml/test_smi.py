"""`vgpu smi` in a guest, as scripts call nvidia-smi."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from tests.conftest import VGPU
from tests.nvml.conftest import clean_environment

Smi = Callable[..., CompletedProcess[str]]


@pytest.fixture
def smi(endpoint: str) -> Smi:
    def run(*arguments: str, **more: str) -> CompletedProcess[str]:
        environment = clean_environment(VGPU_ENDPOINT=endpoint) | more
        command = [*VGPU, "smi", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)

    return run


def test_table(smi: Smi) -> None:
    result = smi()
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()[1:]
    assert {len(line) for line in lines} <= {0, 91}
    assert "Driver Version: 580.159.04" in lines[1]
    assert "CUDA Version: 13.0" in lines[1]
    assert any(re.match(r"\|   0  NVIDIA H100 PCIe .*\|   00000000:01:00\.0 Off \| +N/A \|", line) for line in lines)
    assert any(
        re.match(r"\| N/A +N/A +N/A +N/A / +N/A \| +0MiB / +81008MiB \| +N/A +Default \|", line) for line in lines
    )
    assert "|  No running processes found" in result.stdout


def test_list(smi: Smi) -> None:
    lines = smi("-L").stdout.splitlines()
    assert len(lines) == 2
    assert re.fullmatch(r"GPU 0: NVIDIA H100 PCIe \(UUID: GPU-[0-9a-f-]{36}\)", lines[0])
    assert lines[1].startswith("GPU 1: Tesla T4 ")


@pytest.mark.parametrize(
    ("csv_format", "expected"),
    [
        (
            "csv",
            "name, memory.total [MiB], utilization.gpu [%], temperature.gpu\nTesla T4, 15096 MiB, [N/A], [N/A]\n",
        ),
        ("csv,noheader", "Tesla T4, 15096 MiB, [N/A], [N/A]\n"),
        ("csv,noheader,nounits", "Tesla T4, 15096, [N/A], [N/A]\n"),
    ],
)
def test_query(smi: Smi, csv_format: str, expected: str) -> None:
    result = smi(
        "--query-gpu=gpu_name,memory.total,utilization.gpu,temperature.gpu", f"--format={csv_format}", "-i", "1"
    )
    assert (result.stdout, result.stderr) == (expected, "")


def test_every_field_can_be_asked(smi: Smi) -> None:
    names = smi("--help-query-gpu").stdout.split()
    assert len(names) > 50
    result = smi(f"--query-gpu={','.join(names)}", "--format=csv,noheader", "-i", "0")
    assert result.returncode == 0, result.stderr
    values = dict(zip(names, result.stdout.rstrip("\n").split(", "), strict=True))
    assert values["compute_cap"] == "9.0"
    assert values["pci.bus_id"] == "00000000:01:00.0"
    sensors = [name for name in names if name.startswith(("power.", "temperature.", "fan.", "clocks.current."))]
    assert {values[name] for name in sensors} == {"[N/A]"}


@pytest.mark.parametrize("wanted", ["1", "0000:02:00.0", "00000000:02:00.0"])
def test_one_device(smi: Smi, wanted: str) -> None:
    assert smi("-L", "-i", wanted).stdout.startswith("GPU 1: Tesla T4")


def test_detail(smi: Smi) -> None:
    result = smi("-q", "-i", "0")
    assert result.returncode == 0, result.stderr
    assert re.search(r"^Attached GPUs +: 2$", result.stdout, re.MULTILINE)
    assert re.search(r"^ {8}Total +: 81008 MiB$", result.stdout, re.MULTILINE)
    assert re.search(r"^ {4}Processes +: None$", result.stdout, re.MULTILINE)


def test_loop_and_processes(smi: Smi) -> None:
    result = smi("pmon", "-c", "2", "-l", "0.1")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("# gpu         pid   type")
    assert [line.split()[:3] for line in lines[2:]] == [["0", "-", "-"], ["1", "-", "-"]] * 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("--query-gpu=nonsense", "--format=csv"),
        ("--query-gpu=name",),
        ("--query-gpu=name", "--format=xml"),
        ("--format=csv",),
        ("-L", "-q"),
    ],
)
def test_misuse(smi: Smi, arguments: tuple[str, ...]) -> None:
    result = smi(*arguments)
    assert (result.returncode, result.stdout) == (2, "")


def test_no_such_device(smi: Smi) -> None:
    assert smi("-i", "7").returncode == 1


def test_nobody_answers(smi: Smi, tmp_path: object) -> None:
    result = smi(VGPU_ENDPOINT=f"unix:{tmp_path}/nobody.sock")
    assert result.returncode == 69
    assert result.stdout == ""
    assert "Driver Not Loaded" in result.stderr


def test_coverage_table() -> None:
    environment = clean_environment()
    result = subprocess.run([*VGPU, "api", "--nvml"], env=environment, capture_output=True, text=True, check=True)
    lines = result.stdout.splitlines()
    assert lines[-1].startswith("404 functions: ")
    assert ["nvmlDeviceGetName", "snapshot"] in [line.split() for line in lines]
    assert ["nvmlDeviceSetPersistenceMode", "none"] in [line.split() for line in lines]
