"""`vgpu vm exec` with a fake QEMU; tests/vm boots a real QEMU with it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemon.running import ENVIRONMENT
from tests.patience import PATIENCE_S

VGPU = [sys.executable, "-c", "import sys; from vgpud.cli.main import vgpu; sys.exit(vgpu())", "vm", "exec"]
SHARED = "memory-backend-memfd,id=ram,size=64M,share=on"

# Reads the PCI ids of every stub as QEMU does.
FAKE_QEMU = """#!{python}
import re, socket, struct, sys
if sys.argv[1:] == ["--version"]:
    print("QEMU emulator version {version} (Debian)")
    sys.exit()
for text in sys.argv:
    if text.startswith("x-pci-proxy-dev"):
        sock = socket.socket(fileno=int(re.search(r"fd=(\\d+)", text)[1]))
        sock.sendall(struct.pack("<i4xQIIi", 3, 12, 0, 0, 4))
        ids = struct.unpack("<i4xQQ", sock.recv(24, socket.MSG_WAITALL))[2]
        print(re.sub(r"fd=\\d+", "fd", text), hex(ids))
"""


@pytest.fixture
def qemu(tmp_path: Path):
    def make(version: str) -> str:
        path = tmp_path / "qemu"
        path.write_text(FAKE_QEMU.format(python=sys.executable, version=version))
        path.chmod(0o755)
        return str(path)

    return make


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in ENVIRONMENT.items() if not key.startswith("VGPU_")}
    env["XDG_RUNTIME_DIR"] = "/nonexistent"
    return subprocess.run([*VGPU, *arguments], env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_each_card_gets_a_stub(qemu):
    done = run("--gpu", "h100,t4", "--slot", "6", "--", qemu("7.2.22"), "-object", SHARED)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "x-pci-proxy-dev,id=vgpu0,fd,addr=0x6 0x233110de",
        "x-pci-proxy-dev,id=vgpu1,fd,addr=0x7 0x1eb810de",
    ]


@pytest.mark.parametrize("version", ["10.0.2", "8.2.0", "6.2.0"])
def test_another_qemu_is_refused_in_one_line(qemu, version):
    done = run("--gpu", "h100", "--", qemu(version), "-object", SHARED)
    assert done.returncode == 69
    assert done.stderr.count("\n") == 1
    assert version.rsplit(".", 1)[0] in done.stderr
    assert "needs no stub" in done.stderr


def test_private_guest_memory_is_refused(qemu):
    done = run("--gpu", "h100", "--", qemu("7.2.0"), "-m", "1G")
    assert done.returncode == 2
    assert "share=on" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--gpu", "h100", "--", "/nonexistent/qemu"], 127),
        (["--gpu", "h100", "--", "/bin/true"], 2),
        (["--gpu", "what", "--", "QEMU", "-object", SHARED], 2),
        (["--gpu", "h100:40", "--", "QEMU", "-object", SHARED], 2),
        (["--endpoint", "unix:/nonexistent/s", "--", "QEMU", "-object", SHARED], 69),
    ],
)
def test_what_cannot_work_is_said(qemu, arguments, code):
    real = qemu("7.2.1")
    done = run(*(real if argument == "QEMU" else argument for argument in arguments))
    assert done.returncode == code, done.stderr
    assert done.stderr.count("\n") == 1 or code == 2
    assert "Traceback" not in done.stderr
