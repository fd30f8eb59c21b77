"""The files and scripts of deploy/notice for an administrator (cases I08, I10)."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.shim.notice.conftest import ROOT, Installed, Machine
from tests.shim.notice.test_side_effects import need_strace, traced

NOTICE = ROOT / "deploy/notice"
FOLDER = "/usr/lib/vgpu/notice"
Loader = Callable[[str], list[str | Path]]


def variables(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))


@pytest.mark.parametrize("shell", [["sh"], ["bash", "--norc"], ["bash", "--posix", "-eu"], ["sh", "-eu"]])
def test_i08_profile_adds_the_folder_once(tmp_path: Path, shell: list[str]) -> None:
    """The profile, with only its folder changed, is sourced twice by a shell and again by a shell inside it."""
    folder = tmp_path / "notice"
    folder.mkdir()
    (folder / "libcuda.so.1").touch()
    script = tmp_path / "profile.sh"
    script.write_text((NOTICE / "profile.sh").read_text().replace(FOLDER, str(folder)))
    shown = f'. {script}; echo "<${{LD_LIBRARY_PATH-unset}}>"'

    def path_in(program: str, **env: str) -> str:
        base = {"PATH": os.environ["PATH"]}
        command = [*shell, "-c", program]
        return subprocess.run(
            command, env=base | env, capture_output=True, text=True, check=True, timeout=PATIENCE_S
        ).stdout

    nested = f". {script}; . {script}; exec {' '.join(shell)} -c '{shown}'"
    assert path_in(nested, CUDA_VISIBLE_DEVICES="") == f"<{folder}>\n"
    assert path_in(nested, CUDA_VISIBLE_DEVICES="", LD_LIBRARY_PATH="/a:/b") == f"<{folder}:/a:/b>\n"
    for env in ({}, {"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "-1"}):
        assert path_in(nested, **env) == "<unset>\n"
    (folder / "libcuda.so.1").unlink()
    assert path_in(nested, CUDA_VISIBLE_DEVICES="") == "<unset>\n"


def test_environment_file_is_what_the_profile_does() -> None:
    assert variables((NOTICE / "notice.env").read_text()) == {"CUDA_VISIBLE_DEVICES": "", "LD_LIBRARY_PATH": FOLDER}
    assert FOLDER in (NOTICE / "profile.sh").read_text()


class _Conversation(ctypes.Structure):
    _fields_ = (("talk", ctypes.c_void_p), ("data", ctypes.c_void_p))


@pytest.mark.parametrize(("group", "is_given"), [("nogroup", True), ("root", False)])
def test_pam_gives_the_environment_file_to_whom_it_should(tmp_path: Path, group: str, is_given: bool) -> None:
    """The two PAM lines of docs/notice.md, applied by libpam to root, who is in the group root, in a service for the
    test. sshd, cron, su and login do the same with further session modules.
    """
    try:
        pam = ctypes.CDLL("libpam.so.0")
    except OSError as error:
        pytest.skip(f"{error}: apt-get install libpam0g")
    page = (ROOT / "docs/notice.md").read_text()
    lines = "".join(f"{line}\n" for line in page.splitlines() if line.startswith("session "))
    assert lines.count("\n") == 2
    lines = lines.replace("gpu\n", f"{group}\n").replace(
        "/etc/vgpu/notice.env", f"{NOTICE / 'notice.env'} conffile=/dev/null"
    )
    (tmp_path / "vgpu-test").write_text(f"{lines}session required pam_permit.so\n")
    talk = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
        lambda *_: 19
    )
    conversation = _Conversation(ctypes.cast(talk, ctypes.c_void_p), None)
    handle = ctypes.c_void_p()
    pam.pam_getenvlist.restype = ctypes.POINTER(ctypes.c_char_p)
    names = (b"vgpu-test", b"root", ctypes.byref(conversation), str(tmp_path).encode())
    assert pam.pam_start_confdir(*names, ctypes.byref(handle)) == 0
    assert pam.pam_open_session(handle, 0) == 0
    listed = pam.pam_getenvlist(handle)
    entries = []
    while listed[len(entries)] is not None:
        entries.append(listed[len(entries)].decode())
    pam.pam_end(handle, 0)
    given = variables((NOTICE / "notice.env").read_text()) if is_given else {}
    assert dict(entry.split("=", 1) for entry in entries) == given


def test_conf_says_the_defaults(installed: Installed, loader: Loader, machine: Machine) -> None:
    """Uncommenting each key of the shipped file but `exempt` changes nothing: the keys show the default values."""
    text = (NOTICE / "notice.conf").read_text()
    (machine.home / "notice.conf").write_text(text)
    machine.marker.write_text("")
    as_shipped = machine.run(loader("local"), installed.folder, VGT_RESULT="100").stderr
    keys = [
        f"{line[2:]}\n" for line in text.splitlines() if line.startswith(("# marker =", "# message =", "# exempt ="))
    ]
    assert len(keys) == 3
    (machine.home / "notice.conf").write_text("".join(key for key in keys if not key.startswith("exempt")))
    (machine.home / "vgpu-notice").unlink(missing_ok=True)
    assert machine.run(loader("local"), installed.folder, VGT_RESULT="100").stderr == as_shipped != ""
    assert "marker = /etc/vgpu/blocked\n" in keys


def tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def test_i10_set_up_and_remove_leave_the_tree_as_it_was(driver: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "usr/lib/x86").mkdir(parents=True)
    (root / "usr/lib/x86/libcuda.so.1").write_bytes(driver.read_bytes())
    (root / "etc/ld.so.conf.d").mkdir(parents=True)
    before = tree(root)
    command = [str(NOTICE / "set-up"), "--root", str(root), "--driver", "/usr/lib/x86/libcuda.so.1"]
    for _ in range(2):
        subprocess.run(command, check=True, timeout=PATIENCE_S)
    folder = root / FOLDER[1:]
    assert tree(root) - before == {"usr/lib/vgpu", "usr/lib/vgpu/notice"} | {
        f"usr/lib/vgpu/notice/{name}"
        for name in ("libvgpu-notice.so", "libvgpu-next.so", "libcuda.so.1", "libcuda.so", "next", "next/libcuda.so.1")
    }
    assert os.readlink(folder / "next/libcuda.so.1") == "/usr/lib/x86/libcuda.so.1"
    assert (folder / "libcuda.so").resolve() == folder / "libvgpu-notice.so"
    subprocess.run([str(NOTICE / "set-up"), "--remove", "--root", str(root)], check=True, timeout=PATIENCE_S)
    assert tree(root) == before


@pytest.mark.parametrize(
    "options", [["--driver", "/none"], ["--root", "/none"], ["--bogus"], ["--driver"], ["--library", "/none"]]
)
def test_set_up_refuses_in_one_line(tmp_path: Path, options: list[str]) -> None:
    root = [] if "--root" in options else ["--root", str(tmp_path)]
    done = subprocess.run([str(NOTICE / "set-up"), *root, *options], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert done.stderr.startswith("set-up: ")
    assert done.stderr.count("\n") == 1
    assert tree(tmp_path) == set()


def test_set_up_for_a_whole_machine(driver: Path, loader: Loader, machine: Machine, tmp_path: Path) -> None:
    """In a chroot whose loader configuration names the notice, a program finds the notice without any environment, even
    with a setuid bit, and a program that never asks for a GPU makes no additional system call.
    """
    if os.geteuid() != 0:
        pytest.skip("chroot is root's")
    need_strace()
    root = tmp_path / "root"
    program = Path(loader("local")[0])
    listing = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    for file in [word for word in listing.split() if word.startswith("/")] + ["/bin/true"]:
        (root / file[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, root / file[1:])
    shutil.copy(program, root / "load")
    (root / "load").chmod(0o4755)
    for folder in ("driver", "tmp", "etc/vgpu"):
        (root / folder).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    shutil.copy(driver, root / "driver/libcuda.so.1")
    (root / "etc/vgpu/blocked").write_text("Not today.\n")
    (root / "etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n/driver\n")
    subprocess.run(["ldconfig", "-r", str(root)], check=True, timeout=PATIENCE_S)
    set_up = [str(NOTICE / "set-up"), "--root", str(root)]
    chroot = [shutil.which("chroot") or "/usr/sbin/chroot"]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        env = {"CUDA_VISIBLE_DEVICES": "", "VGT_RESULT": "100"}
        return subprocess.run(
            [*chroot, *words], env=env, capture_output=True, text=True, timeout=PATIENCE_S, start_new_session=True
        )

    native = run(str(root), "/load", "proc_v2")
    without = traced(machine, [*chroot, str(root), "/bin/true"], tmp_path / "without")
    subprocess.run([*set_up, "--driver", "/driver/libcuda.so.1", "--loader"], check=True, timeout=PATIENCE_S)
    assert traced(machine, [*chroot, str(root), "/bin/true"], tmp_path / "with") == without
    told = run(str(root), "/load", "proc_v2")
    assert (native.returncode, native.stderr) == (0, "")
    assert (told.returncode, told.stdout, told.stderr) == (0, native.stdout, "GPU access: Not today.\n")
    as_nobody = run("--userspec", "65534:65534", str(root), "/load", "local")
    assert (as_nobody.returncode, as_nobody.stderr) == (0, "GPU access: Not today.\n")
    subprocess.run([*set_up, "--remove"], check=True, timeout=PATIENCE_S)
    after = run(str(root), "/load", "proc_v2")
    assert (after.returncode, after.stdout, after.stderr) == (0, native.stdout, "")


def test_GP11_check_names_what_counts_for_nothing(tmp_path: Path) -> None:
    for name, text in (("passwd", "root:x:0:0::/root:/bin/sh\n"), ("group", "gpu:x:44:\n")):
        (tmp_path / "etc").mkdir(exist_ok=True)
        (tmp_path / "etc" / name).write_text(text)
    conf = tmp_path / "etc/vgpu/notice.conf"
    conf.parent.mkdir()
    command = [str(NOTICE / "set-up"), "--check", "--root", str(tmp_path)]
    conf.write_text("# fine\n exempt = root, 1001 @gpu\nmessage = Not now.\n")
    good = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (good.returncode, good.stderr) == (0, ""), good
    assert "no notice is shown: there is no file" in good.stdout
    conf.write_text("exmpt = root\nexempt = rooot, @gqu\nmarker: /etc/x\n")
    bad = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert bad.returncode == 1
    for words in ("unknown key exmpt", "rooot", "@gqu", "line 3: no `key = value`"):
        assert words in bad.stderr, bad.stderr
