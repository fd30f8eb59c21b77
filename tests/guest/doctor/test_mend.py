"""Every command that the doctor prints repairs its fault: a test plants the fault, runs the command as printed, and
finds the fault gone and nothing else changed. The guest has this system's own programs, but its `sudo` only runs
the given command, and its `systemctl` only records it, since systemd does not run. Cases GM1 to GM9.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from vgpu_guest.doctor.diagnosis import Diagnosis
from vgpu_guest.doctor.judge_endpoint import judge
from vgpu_guest.doctor.subject import of_machine
from vgpu_guest.doctor.verdict import VERDICTS

from tests.guest.doctor.tree import CUDA, LIB, MAIN
from tests.guest.elf_file import compile_c, compile_library
from tests.guest.install.guest import ROOT, Guest
from tests.guest.install.snapshot import snapshot

pytestmark = pytest.mark.timeout(600)  # each test makes a guest and runs the doctor several times
PROGRAM = "opt/app/program"
# Verdicts that need a running process or a server of the test's own have tests in test_process.py and test_endpoint.py.
# A missing device file is tested in test_binding.py, because a guest's device files are this machine's own.
ELSEWHERE = {"restart-needed", "two-drivers", "endpoint-denied", "device-file-missing"}
NVML = 'int nvmlInit_v2(void) { return 9; } const char *maker = "NVIDIA Corporation";'
SHIM = "int cuInit(unsigned f) { (void)f; return 100; }"


class Patient:
    """A guest with vgpu installed for all programs, in which a test plants a fault and runs the mend."""

    def __init__(self, guest: Guest, endpoint: str) -> None:
        self.guest, self.root, self.endpoint = guest, guest.root, endpoint
        self.environment: dict[str, str] = {}
        self.arguments = ["--", f"/{PROGRAM}"]

    def path(self, inside: str) -> Path:
        path = self.root / inside.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def write(self, inside: str, text: str, mode: int = 0o644) -> Path:
        self.path(inside).write_text(text)
        self.path(inside).chmod(mode)
        return self.path(inside)

    def library(self, inside: str, source: str = CUDA, *flags: str) -> Path:
        return compile_library(self.path(inside), *flags, source=source)

    def sh(self, command: str) -> str:
        done = self.guest.run(["/bin/sh", "-c", command], self.environment)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def unit(self, *settings: str, user: str = "") -> None:
        lines = [f"ExecStart=/{PROGRAM}", *settings, *([f"User={user}"] if user else [])]
        self.write("etc/systemd/system/gpu.service", "[Service]\n" + "".join(f"{line}\n" for line in lines))
        self.arguments = ["--service", "gpu"]

    def doctor(self, before: str = ":") -> dict[str, Any]:
        """Run the shell command `before`, then the doctor in the same shell; return the doctor's answer."""
        words = " ".join(map(shlex.quote, self.arguments))
        done = self.guest.run(["/bin/sh", "-c", f"{before}\nexec vgpu doctor --json {words}"], self.environment)
        start = done.stdout.find('{\n  "schema"')
        assert start >= 0, (before, done.stdout, done.stderr)
        answer: dict[str, Any] = json.loads(done.stdout[start:])
        return answer

    def found(self, answer: dict[str, Any]) -> set[str]:
        return {answer["verdict"], *(other["verdict"] for other in answer["others"])}


@pytest.fixture
def patient(tmp_path: Path, tcp: str) -> Patient:
    tmp_path.chmod(0o755)
    guest = Guest(tmp_path / "guest")
    code = "import sys; from vgpu_guest.cli import vgpu; sys.exit(vgpu(prog_name='vgpu'))"
    run = f'PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={ROOT}/guest exec {sys.executable} -c "{code}" "$@"'
    patient = Patient(guest, tcp)
    commands = {"vgpu": run, "sudo": 'exec "$@"', "systemctl": 'echo "$@" >>/run/systemctl.log'}
    for name, text in commands.items():
        patient.write(f"usr/local/bin/{name}", f"#!/bin/sh\n{text}\n", 0o755)
    compile_c(patient.path(PROGRAM), MAIN)
    patient.sh(f"vgpu install --endpoint {tcp}")
    return patient


def conf(patient: Patient, text: str, mode: int = 0o644) -> None:
    patient.write("etc/vgpu/guest.conf", text, mode)


def foreign_first(patient: Patient, name: str, source: str) -> None:
    patient.library(f"opt/nvidia/{name}", source)
    patient.write("etc/ld.so.conf.d/00-nvidia.conf", "/opt/nvidia\n")
    patient.sh("ldconfig")


def by_path(patient: Patient) -> None:
    patient.library("opt/nvidia/libcuda.so.1")
    patient.environment["LD_LIBRARY_PATH"] = "/opt/nvidia"


def no_include(patient: Patient) -> None:
    """GM5: vgpu's own files are intact, so another `vgpu install` finds nothing to change."""
    patient.write("etc/ld.so.conf", "/usr/lib/x86_64-linux-gnu\n")
    patient.sh("ldconfig")


def old_cache(patient: Patient) -> None:
    conf = patient.path("etc/ld.so.conf.d/000-vgpu.conf")
    text = conf.read_text()
    conf.write_text("")
    patient.sh("ldconfig")
    conf.write_text(text)


def preloaded(patient: Patient, file: str, source: str) -> None:
    patient.library(file, source)
    patient.environment["LD_PRELOAD"] = f"/{file}"


def preloaded_in_unit(patient: Patient) -> None:
    patient.library("opt/old/libshim.so", SHIM)
    patient.unit("Environment=LD_PRELOAD=/opt/old/libshim.so A=1")


def preloaded_for_all(patient: Patient) -> None:
    patient.library("opt/old/libshim.so", SHIM)
    patient.write("etc/ld.so.preload", "/opt/old/libshim.so\n")


def rpath(patient: Patient) -> None:
    patient.library("opt/nvidia/libcuda.so.1")
    compile_c(patient.path(PROGRAM), MAIN, "-Wl,--disable-new-dtags,-rpath,/opt/nvidia")


def half_zeroed(patient: Patient) -> None:
    file = patient.path("usr/lib/vgpu/libcuda.so.580.159.04")
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))


def zeroed_within(patient: Patient) -> None:
    """GD7: damage bytes that loading and initialising the library does not read."""
    file = patient.path("usr/lib/vgpu/libcuda.so.580.159.04")
    data = file.read_bytes()
    at = data.find(b"is not implemented")
    assert at > 0
    file.write_bytes(data[:at] + bytes(8) + data[at + 8 :])


def no_library(patient: Patient) -> None:
    patient.write("opt/mine/libcuda.so.1", "see other\n")
    patient.environment["LD_LIBRARY_PATH"] = "/opt/mine"


def deleted(patient: Patient) -> None:
    patient.path("usr/lib/vgpu/libcuda.so.580.159.04").unlink()


def dead_link(patient: Patient) -> None:
    uninstalled(patient)
    patient.path("opt/mine/libcuda.so.1").symlink_to("libcuda.so.550.1")
    patient.environment["LD_LIBRARY_PATH"] = "/opt/mine"


def garbage(patient: Patient) -> None:
    patient.write("etc/ld.so.preload", "hunter2\n")


def wrong_class(patient: Patient) -> None:
    elf32 = bytes.fromhex("7f454c4601010100000000000000000003000300010000000000000034000000") + bytes(64)
    patient.sh("vgpu uninstall")
    conf(patient, f"endpoint = {patient.endpoint}\n")
    patient.path("opt/lib32/libcuda.so.1").write_bytes(elf32)
    patient.environment["LD_LIBRARY_PATH"] = "/opt/lib32"


def denied(patient: Patient) -> None:
    patient.unit(user="nobody")
    patient.path("usr/lib/vgpu").chmod(0o700)


def uninstalled(patient: Patient) -> None:
    patient.sh("vgpu uninstall")
    conf(patient, f"endpoint = {patient.endpoint}\n")


def setuid(patient: Patient) -> None:
    uninstalled(patient)
    patient.environment["LD_LIBRARY_PATH"] = str(LIB)
    patient.path(PROGRAM).chmod(0o4755)


def no_runtime(patient: Patient) -> None:
    patient.sh("vgpu install --with-cudart none")
    library = patient.library("opt/link/libcudart.so.12", "int cudaGetDeviceCount(int *n) { return *n; }")
    source = "int cudaGetDeviceCount(int *); int main(void) { int n; return cudaGetDeviceCount(&n); }"
    compile_c(patient.path(PROGRAM), source, "-x", "none", str(library))


def no_endpoint_in_unit(patient: Patient) -> None:
    patient.sh("vgpu uninstall && vgpu install")
    patient.environment["VGPU_ENDPOINT"] = patient.endpoint
    patient.unit()


def machine_code(patient: Patient) -> None:
    site = "opt/venv/lib/python3.11/site-packages/cupy/__init__.py"
    patient.write(site, "")
    patient.write("opt/venv/pyvenv.cfg", "")
    compile_c(patient.path("opt/venv/bin/python3"), MAIN)
    patient.write("opt/app/program.py", "import cupy\n")
    patient.arguments = ["--", "/opt/venv/bin/python3", "/opt/app/program.py"]


def blocked_family(patient: Patient) -> None:
    patient.unit("RestrictAddressFamilies=AF_UNIX")


def no_network(patient: Patient) -> None:
    patient.unit("PrivateNetwork=yes")


def unreadable(patient: Patient, group: str) -> None:
    """GM1: the file holds a token, so its mode denies reading to users outside `group`."""
    conf(patient, f"endpoint = {patient.endpoint}\ntoken = 0123456789abcdef\n", 0o640)
    patient.sh(f"chown root:{group} /etc/vgpu/guest.conf")
    patient.unit(user="nobody")


def hidden_in_unit(patient: Patient) -> None:
    patient.unit("Environment=CUDA_VISIBLE_DEVICES= A=1")


TOKEN = "token = 0123456789abcdef\n"
REPAIRED = {"usr/lib/vgpu/libcuda.so.580.159.04", "var/lib/vgpu"}
Plant = Callable[[Patient], None]
DROP_IN = "etc/systemd/system/gpu.service.d"
CASES: list[tuple[str, str, Plant, set[str]]] = [  # name, verdict, fault, paths that may differ after the mend
    ("path", "library-foreign", by_path, set()),
    ("cache", "library-foreign", lambda p: foreign_first(p, "libcuda.so.1", CUDA), {"etc/ld.so.conf"}),
    ("GD3", "library-foreign", lambda p: foreign_first(p, "libnvidia-ml.so.1", NVML), {"etc/ld.so.conf"}),
    ("GM5", "library-missing", no_include, {"etc/ld.so.conf"}),
    ("old cache", "library-missing", old_cache, set()),
    ("not installed", "library-missing", uninstalled, {"usr/lib/vgpu", "etc/ld.so.conf.d", "var/lib/vgpu"}),
    ("GM6", "library-foreign", lambda p: preloaded(p, "opt/old/libcuda.so.1", CUDA), set()),
    ("GD2 shell", "library-interposed", lambda p: preloaded(p, "opt/old/libshim.so", SHIM), set()),
    ("GD2 unit", "library-interposed", preloaded_in_unit, {DROP_IN}),
    ("GD2 all", "library-interposed", preloaded_for_all, {"etc/ld.so.preload"}),
    ("rpath", "library-rpath", rpath, set()),
    ("GD7", "library-damaged", half_zeroed, REPAIRED),
    ("GD7 within", "library-drift", zeroed_within, REPAIRED),
    ("no library", "library-damaged", no_library, {"opt/mine/libcuda.so.1"}),
    ("dead link", "library-dead-link", dead_link, {"usr/lib/vgpu", "etc/ld.so.conf.d", "var/lib/vgpu"}),
    ("deleted", "library-drift", deleted, REPAIRED),
    ("32 bits", "library-wrong-class", wrong_class, set()),
    ("denied", "library-denied", denied, {"usr/lib/vgpu"}),
    ("setuid", "secure-execution", setuid, {"usr/lib/vgpu", "etc/ld.so.conf.d", "var/lib/vgpu"}),
    ("garbage", "preload-garbage", garbage, {"etc/ld.so.preload"}),
    ("gone", "preload-missing", lambda p: p.environment.update(LD_PRELOAD="/opt/gone.so"), set()),
    ("no runtime", "runtime-missing", no_runtime, {"usr/lib/vgpu", "etc/ld.so.conf.d", "var/lib/vgpu"}),
    ("unit", "service-environment", no_endpoint_in_unit, {DROP_IN, "var/lib/vgpu"}),
    ("hidden", "devices-hidden", lambda p: p.environment.update(CUDA_VISIBLE_DEVICES="-1"), set()),
    ("hidden in unit", "devices-hidden", hidden_in_unit, {DROP_IN}),
    ("family", "socket-family-blocked", blocked_family, {DROP_IN}),
    ("network", "socket-family-blocked", no_network, {DROP_IN}),
    ("GM1", "configuration-denied", lambda p: unreadable(p, "video"), {"etc/group", "etc/gshadow"}),
    ("GM1 root", "configuration-denied", lambda p: unreadable(p, "root"), {"etc/group", "etc/gshadow", "etc/vgpu"}),
    ("GM2 key", "configuration-invalid", lambda p: conf(p, f"{TOKEN}endpont = {p.endpoint}\n"), {"etc/vgpu"}),
    ("GM2 colon", "configuration-invalid", lambda p: conf(p, f"{TOKEN}endpoint: {p.endpoint}\n"), {"etc/vgpu"}),
    ("GM7", "endpoint-invalid", lambda p: conf(p, f"{TOKEN}endpoint = {p.endpoint[6:]}\n"), {"etc/vgpu"}),
    ("GM7 shell", "endpoint-invalid", lambda p: p.environment.update(VGPU_ENDPOINT=p.endpoint[6:]), set()),
    ("GD8", "machine-code-made", machine_code, set()),
]


@pytest.mark.parametrize(("verdict", "plant", "changes"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_the_mend_cures_and_changes_nothing_else(
    patient: Patient, verdict: str, plant: Plant, changes: set[str]
) -> None:
    plant(patient)
    ill = patient.doctor()
    assert ill["verdict"] == verdict, ill
    assert ill["mend"], ill
    before = snapshot(patient.root)
    well = patient.doctor(ill["mend"])
    assert well["verdict"] == "ok", (ill["mend"], well)
    after = snapshot(patient.root)
    differing = {path for path in before | after if before.get(path) != after.get(path)}
    noise = re.compile(r"(run|tmp|proc|dev)(/|$)|etc/(ld\.so\.cache|\.pwd\.lock|(group|gshadow|passwd)-)|var/cache/")
    folders = {str(parent) for path in changes for parent in Path(path).parents}
    unexpected = {
        path
        for path in differing
        if not noise.match(path) and path not in folders and not any(f"{path}/".startswith(f"{c}/") for c in changes)
    }
    assert not unexpected, (ill["mend"], unexpected)
    if "0123456789abcdef" in str(before.get("etc/vgpu/guest.conf", "")):
        assert "0123456789abcdef" in (patient.root / "etc/vgpu/guest.conf").read_text()


def test_every_verdict_with_a_mend_has_a_case() -> None:
    cured = {case[1] for case in CASES} | ELSEWHERE
    assert {kind for kind, verdict in VERDICTS.items() if verdict.mend} == cured


def test_what_no_command_cures_has_advice() -> None:
    assert all(bool(v.mend) != bool(v.advice) for kind, v in VERDICTS.items() if kind != "ok")


def test_GM9_a_user_whom_policy_blocks_reads_the_notice(patient: Patient) -> None:
    """No way around the administrator's decision is printed."""
    patient.write("etc/vgpu/blocked", "GPUs are reserved for the course.\n")
    patient.environment["CUDA_VISIBLE_DEVICES"] = ""
    answer = patient.doctor()
    assert answer["verdict"] == "devices-blocked", answer
    assert answer["text"] == "GPU access: GPUs are reserved for the course."
    assert answer["mend"] == ""
    assert "unset" not in json.dumps(answer)


@pytest.mark.parametrize(
    ("token", "verdict"), [("", "token-missing"), ("short", "token-short"), ("0123456789abcdef", "token-wrong")]
)
def test_GM4_a_token_that_is_missing_wrong_or_too_short(monkeypatch, token: str, verdict: str) -> None:
    from vgpu_guest.doctor.diagnosis import Diagnosis
    from vgpu_guest.doctor.judge_endpoint import judge
    from vgpu_guest.doctor.subject import of_machine

    diagnosis = Diagnosis()
    text = "vgpud refuses: a valid token is needed (CUresult 800)"
    answer = {"failure": "endpoint-refused", "text": text, "code": 800}
    found = {"url": "tcp://10.0.0.1:7070", "source": "VGPU_ENDPOINT"}
    judge(of_machine("/"), diagnosis, answer, found, token)
    assert diagnosis.finding.kind == verdict
    assert token not in diagnosis.finding.text or not token


@pytest.mark.parametrize(("path", "what"), [("/etc/passwd", "a regular file"), ("/etc", "a directory")])
def test_GM8_an_endpoint_that_is_no_socket(patient: Patient, path: str, what: str) -> None:
    patient.environment["VGPU_ENDPOINT"] = f"unix:{path}"
    answer = patient.doctor()
    assert answer["verdict"] == "endpoint-invalid", answer
    assert what in answer["text"]


@pytest.mark.parametrize("failure", ["endpoint-denied", "endpoint-stale"])
def test_GM8_it_is_told_to_who_may_not_write_there_too(failure: str) -> None:
    """connect(2) checks the permission before the kind of file."""
    diagnosis, answer = Diagnosis(), {"failure": failure, "text": "permission denied", "code": 0}
    judge(of_machine("/"), diagnosis, answer, {"url": "unix:/etc/passwd", "source": "VGPU_ENDPOINT"}, "")
    assert diagnosis.finding.kind == "endpoint-invalid"
    assert "/etc/passwd is a regular file, not a socket" in diagnosis.finding.text


def test_GM3_no_unit_that_is_not_there_is_restarted(patient: Patient) -> None:
    command = "import socket; s = socket.socket(socket.AF_UNIX); s.bind('/run/stale.sock')"
    patient.sh(f"{sys.executable} -c {shlex.quote(command)}")
    patient.environment["VGPU_ENDPOINT"] = "unix:/run/stale.sock"
    answer = patient.doctor()
    assert (answer["verdict"], answer["mend"]) == ("endpoint-stale", ""), answer
    assert "vgpud --listen unix:/run/stale.sock" in answer["advice"]
    patient.write("etc/systemd/system/vgpud.service", "[Service]\nExecStart=/usr/bin/vgpud\n")
    assert patient.doctor()["mend"] == "sudo systemctl restart vgpud.service"


def test_install_names_what_earlier_attempts_left(patient: Patient) -> None:
    """`vgpu install` names the faults GD1 and GD2 before a program fails."""
    patient.library("opt/old/libshim.so", SHIM)
    patient.path("opt/lib/program/libcuda.so.1").symlink_to("/opt/old/libshim.so")
    compile_c(patient.path("opt/bin/program"), MAIN)
    patient.write(
        "etc/systemd/system/gpu.service",
        "[Service]\nExecStart=/opt/bin/program\nEnvironment=LD_PRELOAD=/opt/old/libshim.so\n",
    )
    done = patient.guest.run(["/usr/local/bin/vgpu", "install", "--service", "gpu"])
    assert done.returncode == 1, done.stdout
    assert "sudo rm /opt/lib/program/libcuda.so.1" in done.stderr
    assert "LD_PRELOAD=/opt/old/libshim.so defines cuInit" in done.stderr
