"""`vgpu smi` in a guest, called as scripts call nvidia-smi."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from xml.etree import ElementTree

import pytest

from tests.conftest import VGPU
from tests.nvml.conftest import clean_environment
from tests.patience import PATIENCE_S

Smi = Callable[..., CompletedProcess[str]]


@pytest.fixture
def smi(endpoint: str) -> Smi:
    def run(*arguments: str, **more: str) -> CompletedProcess[str]:
        environment = clean_environment(VGPU_ENDPOINT=endpoint) | more
        command = [*VGPU, "smi", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

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


def test_detail_in_parts(smi: Smi) -> None:
    result = smi("-q", "-d", "memory,PIDS", "-i", "0")
    assert re.findall(r"^ {4}([A-Z][^:]*?)(?: *:.*)?$", result.stdout, re.MULTILINE) == [
        *("FB Memory Usage", "BAR1 Memory Usage", "Conf Compute Protected Memory Usage"),
        "Processes",
    ]
    refused = smi("-q", "-d", "VOLTAGE")
    assert refused.returncode == 2
    assert "'VOLTAGE': there are ACCOUNTING, CLOCK, COMPUTE, ECC" in refused.stderr


def test_xml_as_its_readers_look_for_it(smi: Smi) -> None:
    log = ElementTree.fromstring(smi("-q", "-x").stdout)
    assert log.tag == "nvidia_smi_log"
    assert [log.findtext(name) for name in ("driver_version", "cuda_version", "attached_gpus")] == [
        "580.159.04",
        "13.0",
        "2",
    ]
    gpu = log.findall("gpu")[0]
    assert gpu.get("id") == "00000000:01:00.0"
    expected = {
        "product_name": "NVIDIA H100 PCIe",
        "fb_memory_usage/total": "81008 MiB",
        "pci/pci_bus_id": "00000000:01:00.0",
        "utilization/gpu_util": "N/A",
        "temperature/gpu_temp": "N/A",
    }
    assert {path: gpu.findtext(path) for path in expected} == expected
    assert gpu.find("processes") is not None


def of_nvidia_smi(kind: str) -> list[str]:
    """The elements, keys or columns of nvidia-smi 580, in the order of its output."""
    rows = (line.split("\t") for line in Path(__file__).with_name("nvidia-smi-580.tsv").read_text().splitlines())
    return [row[1] for row in rows if row[0] == kind]


def test_every_field_of_nvidia_smi_is_shown_in_its_place(smi: Smi) -> None:
    def paths(element: ElementTree.Element) -> Iterator[str]:
        for child in element:
            yield from (f"{child.tag}/{path}" for path in paths(child)) if len(child) else (child.tag,)

    gpu = ElementTree.fromstring(smi("-q", "-x").stdout).findall("gpu")[0]
    own = {"compute_capability", "supported_clocks"}
    assert [path for path in paths(gpu) if path not in own] == of_nvidia_smi("element")
    text = smi("-q", "-i", "1").stdout
    assert re.findall(r"^ +(\S.*?) +: ", text, re.MULTILINE) == [
        "Compute Capability" if key is None else key.split("/")[-1] for key in with_capability(of_nvidia_smi("key"))
    ]
    assert {line.index(" : ") for line in text.splitlines() if " : " in line} == {54}
    columns = of_nvidia_smi("column")
    asked = smi("--query-gpu=" + ",".join(column.split(" [")[0] for column in columns), "--format=csv")
    assert asked.stdout.splitlines()[0].split(", ") == columns


def with_capability(keys: list[str]) -> list[str | None]:
    """`keys` with None for the line that only vgpu prints, after the addressing mode."""
    at = keys.index("Addressing Mode") + 1
    return [*keys[:at], None, *keys[at:]]


def test_elements_have_values(smi: Smi) -> None:
    gpu = ElementTree.fromstring(smi("-q", "-x").stdout).findall("gpu")[0]
    pci = {name: gpu.findtext(f"pci/{name}") for name in ("pci_bus", "pci_domain", "pci_device_id")}
    assert pci == {"pci_bus": "01", "pci_domain": "0000", "pci_device_id": "233110DE"}
    assert gpu.findtext("pci/pci_gpu_link_info/link_widths/max_link_width") == "16x"
    text = smi("-q", "-i", "0").stdout
    assert re.search(r"^ {8}GPU Link Info\n {12}PCIe Generation\n {16}Max +: 5\n {16}Current +: N/A\n", text, re.M)
    assert re.search(r"^ {12}Link Width\n {16}Max +: 16x\n", text, re.M)


def test_json_has_every_field(smi: Smi) -> None:
    document = json.loads(smi("--json").stdout)
    assert [gpu["name"] for gpu in document["gpus"]] == ["NVIDIA H100 PCIe", "Tesla T4"]
    assert document["gpus"][0]["memory.total"] == 81008
    assert document["gpus"][0]["temperature.gpu"] is None
    assert document["gpus"][0]["processes"] == []


def test_names_that_nvidia_smi_has_had(smi: Smi) -> None:
    result = smi(
        "--query-gpu=clocks_throttle_reasons.active,clocks.mem,inforom.img,clocks_event_reasons.sw_power_cap",
        *("--format=csv", "-i", "0"),
    )
    header, values = result.stdout.splitlines()
    assert header.split(", ")[0] == "clocks_event_reasons.active"
    assert values == "[N/A], [N/A], [N/A], [N/A]"


def test_monitor(smi: Smi) -> None:
    lines = smi("dmon", "-c", "2", "-lms", "100").stdout.splitlines()
    assert " ".join(lines[0].split()) == "# gpu pwr gtemp mtemp sm mem enc dec jpg ofa mclk pclk"
    assert " ".join(lines[1].split()) == "# Idx W C C % % % % % % MHz MHz"
    assert [line.split() for line in lines[2:]] == [["0", *"-" * 11], ["1", *"-" * 11]] * 2
    memory = smi("dmon", "-s", "m", "-c", "1", "-i", "1").stdout.splitlines()
    assert memory[0].split() == ["#", "gpu", "fb", "bar1", "ccpm"]
    assert memory[2].split()[:2] == ["1", "0"]


def test_topology(smi: Smi) -> None:
    lines = smi("topo", "-m").stdout.splitlines()
    assert lines[0].split("\t") == ["", "GPU0", "GPU1", "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]
    assert lines[1].split("\t") == ["GPU0", " X ", "N/A", "N/A", "N/A", "", "N/A"]


def test_into_a_file(smi: Smi, tmp_path: Path) -> None:
    result = smi("-L", "-f", str(tmp_path / "list"))
    assert (result.returncode, result.stdout) == (0, "")
    assert (tmp_path / "list").read_text() == smi("-L").stdout


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
        ("-x",),
        ("-d", "MEMORY"),
        ("topo",),
        ("dmon", "-s", "z"),
        ("dmon", "-d", "0"),
        ("pmon", "-s", "u"),
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
    why = next(line.split() for line in lines if line.startswith("nvmlDeviceSetPersistenceMode "))
    assert why[1:4] == ["none", "It", "changes"]
    assert not [line for line in lines if line.split()[1:] == ["none"]]
