"""Install, repair, uninstall: what they create, what they leave alone, and that uninstall restores everything."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from vgpu_guest.layout import RELEASE, SYSTEM

from tests.guest.elf_file import compile_library
from tests.guest.install.conftest import Vgpu, ldconfig
from tests.guest.install.snapshot import LOADER_CACHES, snapshot
from tests.patience import PATIENCE_S

LIBRARY = f"usr/lib/vgpu/libcuda.so.{RELEASE}"
DROP_IN = "etc/systemd/system/llama.service.d/zz-vgpu.conf"


def first(root: Path, soname: str) -> str:
    lines = [line.split(" => ")[1] for line in ldconfig(root, "-p").splitlines() if f"\t{soname} " in line]
    return lines[0] if lines else ""


def plant(root: Path, path: str, text: str = "theirs") -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_D14_L16_names_and_links(root: Path, payload: Path, run: Vgpu) -> None:
    run("install", "--root", root, "--from", payload)
    for stem in ("libcuda", "libnvidia-ml"):
        assert os.readlink(root / f"usr/lib/vgpu/{stem}.so.1") == f"{stem}.so.{RELEASE}"
        assert os.readlink(root / f"usr/lib/vgpu/{stem}.so") == f"{stem}.so.{RELEASE}"
        assert (root / f"usr/lib/vgpu/{stem}.so.{RELEASE}").read_bytes() == (
            payload / f"{stem}.so.{RELEASE}"
        ).read_bytes()
        assert first(root, f"{stem}.so.1") == f"/usr/lib/vgpu/{stem}.so.1"
    assert first(root, "libcudart.so.12") == "/usr/lib/vgpu/cudart/12/libcudart.so.12"


def test_the_libraries_of_a_wheel_which_holds_no_links(root: Path, payload: Path, run: Vgpu, tmp_path: Path) -> None:
    wheel = tmp_path / "_lib"
    shutil.copytree(payload, wheel)
    for stem in ("libcuda", "libnvidia-ml"):
        (wheel / f"{stem}.so.{RELEASE}").rename(wheel / f"{stem}.so.1")
        compile_library(wheel / f"{stem}.so")
    run("install", "--root", root, "--from", wheel)
    assert (root / LIBRARY).read_bytes() == (payload / f"libcuda.so.{RELEASE}").read_bytes()
    assert os.readlink(root / "usr/lib/vgpu/libcuda.so") == f"libcuda.so.{RELEASE}"


def test_repair_takes_in_a_newer_release(
    root: Path, payload: Path, run: Vgpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(root)
    run("install", "--root", root, "--from", payload)
    newer = tmp_path / "newer"
    shutil.copytree(payload, newer)
    for stem in ("libcuda", "libnvidia-ml"):
        (newer / f"{stem}.so.{RELEASE}").rename(newer / f"{stem}.so.581.1.2")
    for module in ("payload", "plan", "installation"):
        monkeypatch.setattr(f"vgpu_guest.{module}.RELEASE", "581.1.2")
    assert (
        f"are of release {RELEASE}, this vgpu brings 581.1.2" in run("repair", "--root", root, "--from", newer).output
    )
    names = {path.name for path in (root / "usr/lib/vgpu").glob("libcuda.so*")}
    assert names == {"libcuda.so", "libcuda.so.1", "libcuda.so.581.1.2"}
    run("uninstall", "--root", root)
    assert snapshot(root) == before


def test_the_doctors_probe_can_be_run(root: Path, payload: Path, run: Vgpu) -> None:
    run("install", "--root", root, "--from", payload)
    assert subprocess.run([root / "usr/lib/vgpu/vgpu-probe"], timeout=PATIENCE_S).returncode == 0


def test_I10_the_way_back_is_complete(root: Path, payload: Path, run: Vgpu) -> None:
    before = snapshot(root)
    run("install", "--root", root, "--from", payload, "--endpoint", "tcp://10.0.0.1:7070")
    run("install", "--root", root, "--from", payload, "--service", "llama")
    made = snapshot(root).keys() - before.keys()
    assert DROP_IN in made
    assert not [path for path in made if "preload" in path or path.startswith("dev") or "modprobe" in path]
    assert all(snapshot(root)[path] == before[path] for path in before if path not in LOADER_CACHES)
    run("uninstall", "--root", root)
    assert snapshot(root) == before


def test_a_tree_without_a_loaders_cache_has_none_afterwards(root: Path, payload: Path, run: Vgpu) -> None:
    (root / "etc/ld.so.cache").unlink()
    shutil.rmtree(root / "var/cache/ldconfig")
    before = snapshot(root)
    run("install", "--root", root, "--from", payload)
    assert (root / "etc/ld.so.cache").exists()
    run("uninstall", "--root", root)
    assert snapshot(root) == before


def test_an_empty_tree_is_empty_again(tmp_path: Path, payload: Path, run: Vgpu) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    result = run("install", "--root", bare, "--from", payload, code=1)
    assert "does not include /etc/ld.so.conf.d" in result.output
    run("uninstall", "--root", bare)
    assert snapshot(bare) == {}


def test_again_changes_nothing(root: Path, payload: Path, run: Vgpu) -> None:
    run("install", "--root", root, "--from", payload, "--service", "llama")
    before = snapshot(root)
    assert "nothing had to be changed" in run("install", "--service", "llama", "--root", root, "--from", payload).output
    assert snapshot(root) == before
    for arguments, output in (
        ([], "nothing was missing or changed\n"),
        (["--dry-run"], "nothing was missing or changed\nnothing was changed\n"),
    ):
        assert run("repair", *arguments, "--root", root, "--from", payload).output == output
        assert snapshot(root) == before


def test_a_dry_run_changes_nothing(root: Path, payload: Path, run: Vgpu) -> None:
    before = snapshot(root)
    output = run("install", "--root", root, "--from", payload, "--dry-run", "--service", "llama").output
    assert f"would make {root}/{LIBRARY}\n" in output
    assert f"would make {root}/{DROP_IN}\n" in output
    assert snapshot(root) == before
    run("install", "--root", root, "--from", payload, "--service", "llama")
    before = snapshot(root)
    assert f"would remove {root}/{LIBRARY}\n" in run("uninstall", "--root", root, "--dry-run").output
    (root / LIBRARY).unlink()
    before = snapshot(root)
    output = run("repair", "--root", root, "--from", payload, "--dry-run").output
    assert f"found: /{LIBRARY} is missing\nwould make {root}/{LIBRARY}\nnothing was changed\n" == output
    assert snapshot(root) == before


@pytest.mark.parametrize(
    "path",
    [
        LIBRARY,
        "usr/lib/vgpu/libcuda.so.1",
        "etc/ld.so.conf.d/000-vgpu.conf",
        DROP_IN,
        "usr/lib/vgpu",  # a file in place of the folder
    ],
)
def test_what_is_of_somebody_else_stays(root: Path, payload: Path, run: Vgpu, path: str) -> None:
    plant(root, path)
    before = snapshot(root)
    result = (
        run("install", "--root", root, "--from", payload, "--service", "llama", code=1)
        if path == DROP_IN
        else run("install", "--root", root, "--from", payload, code=1)
    )
    assert result.output.count("\n") == 1
    assert path in result.output
    assert snapshot(root) == before


@pytest.mark.parametrize(
    "way", ["usr/lib/vgpu", "usr/lib", "etc", "etc/ld.so.conf.d", "var/lib", "var/lib/vgpu", "etc/vgpu", "etc/systemd"]
)
@pytest.mark.parametrize("target", ["absolute", "relative"])
def test_a_planted_link_is_an_error_and_no_escape(
    root: Path, payload: Path, run: Vgpu, tmp_path: Path, way: str, target: str
) -> None:
    outside = tmp_path / "outside"
    if (root / way).exists():
        (root / way).rename(outside)
    else:
        outside.mkdir()
    (root / way).symlink_to(outside if target == "absolute" else os.path.relpath(outside, (root / way).parent))
    before = snapshot(tmp_path)
    arguments = ["--root", root, "--from", payload, "--endpoint", "unix:/run/vgpu/vgpud.sock"]
    assert (
        "link" in run("install", *arguments, *(["--service", "llama"] if way == "etc/systemd" else []), code=1).output
    )
    assert snapshot(tmp_path) == before


def test_a_link_planted_before_uninstall_is_no_escape(root: Path, payload: Path, run: Vgpu, tmp_path: Path) -> None:
    run("install", "--root", root, "--from", payload)
    (root / "usr/lib/vgpu").rename(tmp_path / "outside")
    (root / "usr/lib/vgpu").symlink_to(tmp_path / "outside")
    before = snapshot(tmp_path / "outside")
    assert "link" in run("uninstall", "--root", root, code=1).output
    assert snapshot(tmp_path / "outside") == before


def test_a_link_in_place_of_our_file_is_replaced_and_not_followed(
    root: Path, payload: Path, run: Vgpu, tmp_path: Path
) -> None:
    run("install", "--root", root, "--from", payload)
    victim = plant(tmp_path, "victim")
    (root / LIBRARY).unlink()
    (root / LIBRARY).symlink_to(victim)
    assert "is not a file any more" in run("repair", "--root", root, "--from", payload).output
    assert victim.read_text() == "theirs"
    assert (root / LIBRARY).read_bytes() == (payload / f"libcuda.so.{RELEASE}").read_bytes()


def test_I01_I04_repair_puts_back_what_an_update_took(root: Path, payload: Path, run: Vgpu) -> None:
    run("install", "--root", root, "--from", payload, "--service", "llama", "--endpoint", "tcp://10.0.0.1:7070")
    run("install", "--root", root, "--from", payload)
    before = snapshot(root)
    (root / LIBRARY).unlink()
    plant(root, "usr/lib/vgpu/cudart/12/libcudart.so.12")
    (root / "usr/lib/vgpu/libnvidia-ml.so.1").unlink()
    (root / "usr/lib/vgpu/libnvidia-ml.so.1").symlink_to("/usr/lib/nvidia/libnvidia-ml.so.535")
    shutil.rmtree(root / "etc/systemd/system/llama.service.d")
    (root / "etc/ld.so.conf.d/000-vgpu.conf").unlink()
    ldconfig(root)
    *found, last = run("repair", "--root", root, "--from", payload).output.splitlines()
    assert last == "everything is as it was installed"
    assert set(found) == {
        f"found: /{LIBRARY} is missing",
        "found: /usr/lib/vgpu/cudart/12/libcudart.so.12 was changed",
        "found: /usr/lib/vgpu/libnvidia-ml.so.1 is a link to /usr/lib/nvidia/libnvidia-ml.so.535",
        "found: /etc/systemd/system/llama.service.d is missing",
        f"found: /{DROP_IN} is missing",
        "found: /etc/ld.so.conf.d/000-vgpu.conf is missing",
    }
    assert {k: v[:4] for k, v in snapshot(root).items()} == {k: v[:4] for k, v in before.items()}
    assert first(root, "libcuda.so.1") == "/usr/lib/vgpu/libcuda.so.1"
    assert "nothing was missing" in run("repair", "--root", root, "--from", payload).output


def test_repair_where_nothing_is_installed(root: Path, run: Vgpu) -> None:
    assert "nothing is installed" in run("repair", "--root", root, code=1).output


def test_uninstall_where_nothing_is_installed(root: Path, run: Vgpu) -> None:
    before = snapshot(root)
    assert "nothing is installed" in run("uninstall", "--root", root).output
    assert snapshot(root) == before


def test_what_was_changed_since_is_kept_until_purged(root: Path, payload: Path, run: Vgpu) -> None:
    before = snapshot(root)
    run("install", "--root", root, "--from", payload, "--endpoint", "tcp://10.0.0.1:7070")
    conf = root / SYSTEM.endpoint
    conf.write_text(conf.read_text() + "token = abc\n")
    assert "was changed since: " in run("uninstall", "--root", root, code=1).output
    assert "token = abc" in conf.read_text()
    assert not (root / "usr/lib/vgpu").exists()
    run("uninstall", "--root", root, "--purge")
    assert snapshot(root) == before


def test_a_configuration_of_the_administrators_is_respected(root: Path, payload: Path, run: Vgpu) -> None:
    arguments = ["--root", root, "--from", payload]
    run("install", *arguments, "--endpoint", "tcp://10.0.0.1:7070")
    conf = root / SYSTEM.endpoint
    conf.write_text("endpoint = tcp://10.0.0.2:7070\n")
    run("repair", *arguments)
    assert "10.0.0.2" in conf.read_text()
    assert "changed by hand" in run("install", *arguments, "--endpoint", "tcp://10.0.0.3:7070", code=1).output
    conf.unlink()
    run("repair", *arguments)
    assert "endpoint = tcp://10.0.0.1:7070" in conf.read_text()


def test_a_configuration_from_before_is_left(root: Path, payload: Path, run: Vgpu) -> None:
    conf = plant(root, SYSTEM.endpoint, "endpoint = tcp://10.0.0.2:7070\n")
    before = snapshot(root)
    arguments = ["install", "--root", root, "--from", payload, "--endpoint"]
    assert "says tcp://10.0.0.2:7070: change it there" in run(*arguments, "tcp://10.0.0.1:7070", code=1).output
    assert snapshot(root) == before
    run(*arguments, "tcp://10.0.0.2:7070")
    run("uninstall", "--root", root)
    assert conf.exists()
    assert snapshot(root) == before


def test_folders_with_other_peoples_files_stay(root: Path, payload: Path, run: Vgpu) -> None:
    run("install", "--root", root, "--from", payload, "--service", "llama")
    theirs = [plant(root, path) for path in ("var/lib/vgpu/theirs", "etc/systemd/system/llama.service.d/a.conf")]
    run("uninstall", "--root", root)
    assert all(path.read_text() == "theirs" for path in theirs)
    assert not (root / SYSTEM.manifest).exists()
    assert not (root / "usr/lib/vgpu").exists()


@pytest.mark.parametrize("cudart", [("none",), ("12",), ("11", "13")])
def test_which_runtimes(root: Path, payload: Path, run: Vgpu, cudart: tuple[str, ...]) -> None:
    before = snapshot(root)
    run("install", "--root", root, "--from", payload, *(f"--with-cudart={major}" for major in cudart))
    folder = root / "usr/lib/vgpu/cudart"
    assert {path.name for path in folder.glob("*")} == set(cudart) - {"none"}
    run("install", "--root", root, "--from", payload, "--with-cudart", "auto")
    assert {path.name for path in folder.glob("*")} == {"11", "12", "13"}
    run("install", "--root", root, "--from", payload, "--with-cudart", "none")
    assert not folder.exists()
    assert not (root / SYSTEM.loader_runtimes).exists()
    run("uninstall", "--root", root)
    assert snapshot(root) == before


def test_a_runtime_of_ours_is_the_last_resort_and_libcuda_the_first(root: Path, payload: Path, run: Vgpu) -> None:
    for name in ("libcuda.so.1", "libcudart.so.12"):
        compile_library(root / "usr/lib/x86_64-linux-gnu" / name)
    output = run("install", "--root", root, "--from", payload).output
    assert "programs get /usr/lib/vgpu/libcuda.so.1" in output
    assert "/usr/lib/x86_64-linux-gnu/libcuda.so.1 comes after it" in output
    assert first(root, "libcuda.so.1") == "/usr/lib/vgpu/libcuda.so.1"
    assert first(root, "libcudart.so.12") == "/usr/lib/x86_64-linux-gnu/libcudart.so.12"


def test_L06_a_folder_that_is_searched_earlier_is_named(root: Path, payload: Path, run: Vgpu) -> None:
    compile_library(root / "opt/nvidia/libcuda.so.1")
    (root / "etc/ld.so.conf.d/00-nvidia.conf").write_text("/opt/nvidia\n")  # before 000-vgpu.conf: '-' sorts before '0'
    result = run("install", "--root", root, "--from", payload, code=1)
    expected = "/opt/nvidia/libcuda.so.1 comes first, for /etc/ld.so.conf.d/00-nvidia.conf is read before"
    assert expected in result.output
    assert first(root, "libcuda.so.1") == "/opt/nvidia/libcuda.so.1"


def test_a_service_alone_leaves_other_programs_what_they_had(root: Path, payload: Path, run: Vgpu) -> None:
    compile_library(root / "usr/lib/x86_64-linux-gnu/libcuda.so.1")
    output = run("install", "--root", root, "--from", payload, "--service", "llama").output
    assert "all other programs go on getting /usr/lib/x86_64-linux-gnu/libcuda.so.1" in output
    assert first(root, "libcuda.so.1") == "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
    assert "LD_LIBRARY_PATH=/usr/lib/vgpu" in (root / DROP_IN).read_text()


def test_a_users_own(tmp_path: Path, payload: Path, run: Vgpu, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    run("install", "--user", "--from", payload, "--endpoint", "tcp://10.0.0.1:7070", "--with-cudart", "12")
    session = (home / ".config/environment.d/50-vgpu.conf").read_text()
    assert "VGPU_ENDPOINT=tcp://10.0.0.1:7070\n" in session
    command = f". {home}/.local/lib/vgpu/env.sh; . {home}/.local/lib/vgpu/env.sh; echo $LD_LIBRARY_PATH; env"
    library = f"{home}/.local/lib/vgpu"
    shell = ["sh", "-eu", "-c", command]
    environment = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": "/theirs"}
    said = subprocess.run(shell, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
    assert said.splitlines()[0] == f"{library}:{library}/cudart/12:/theirs"  # I08: no duplicates after env.sh ran twice
    assert "VGPU_ENDPOINT=tcp://10.0.0.1:7070" in said.splitlines()
    run("repair", "--user", "--from", payload)
    run("uninstall", "--user")
    assert snapshot(home) == {}


def test_D17_an_nvidia_smi_that_is_there_stays_the_only_one(root: Path, payload: Path, run: Vgpu) -> None:
    plant(root, "usr/bin/nvidia-smi")
    before = snapshot(root)
    arguments = ["install", "--root", root, "--from", payload, "--with-smi"]
    assert "usr/bin/nvidia-smi is there already" in run(*arguments, code=1).output
    assert snapshot(root) == before
    (root / "usr/bin/nvidia-smi").unlink()
    theirs = plant(root, "usr/local/bin/nvidia-smi")
    assert "is there and not of vgpu install" in run(*arguments, code=1).output
    theirs.unlink()
    run(*arguments)
    assert theirs.read_text().splitlines()[-1] == 'exec vgpu smi "$@"'
    run("repair", "--root", root, "--from", payload)
    assert theirs.exists()


GENERATOR = Path("/usr/lib/systemd/user-environment-generators/30-systemd-environment-d-generator")


@pytest.mark.skipif(not GENERATOR.exists(), reason="systemd, whose reader of environment.d this asks, is not installed")
def test_systemd_reads_a_users_environment(
    tmp_path: Path, payload: Path, run: Vgpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    run("install", "--user", "--from", payload, "--with-cudart", "12")
    library = f"{tmp_path}/.local/lib/vgpu"
    for before, after in (({}, ""), ({"LD_LIBRARY_PATH": "/theirs"}, ":/theirs")):
        environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", **before}
        result = subprocess.run(
            [GENERATOR], env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
        assert f"LD_LIBRARY_PATH={library}:{library}/cudart/12{after}" in result.stdout.splitlines()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--user", "--service", "x"], "goes without"),
        (["--service", "../x"], "not the name of a service"),
        (["--endpoint", "tcp://gpu host:7070"], "the host is not a name"),
        (["--endpoint", "http://1.2.3.4"], "none of"),
        (["--with-cudart", "none", "--with-cudart", "12"], "go alone"),
        (["--with-cudart", "9"], "is not one of"),
    ],
)
def test_wrong_usage(root: Path, payload: Path, run: Vgpu, arguments: list[str], says: str) -> None:
    before = snapshot(root)
    where = [] if "--user" in arguments else ["--root", root]
    assert says in run("install", *where, "--from", payload, *arguments, code=2).output
    assert snapshot(root) == before


def test_a_damaged_manifest_is_an_error_of_one_line(root: Path, payload: Path, run: Vgpu) -> None:
    run("install", "--root", root, "--from", payload)
    manifest = root / SYSTEM.manifest
    document = json.loads(manifest.read_text())
    document["entries"].append({"path": "etc/passwd", "kind": "file", "mode": 0, "sha256": "0" * 64, "nbytes": 0})
    manifest.write_text(json.dumps(document))
    for command in ("install", "uninstall"):
        output = run(command, "--root", root, code=1).output
        assert "claims etc/passwd" in output
        assert "`vgpu repair` makes it anew" in output
        assert output.count("\n") == 1


@pytest.mark.parametrize("fault", ["damaged", "lost", "claims too much"])
def test_GM11_a_manifest_that_is_lost_or_damaged_has_a_way_out(
    root: Path, payload: Path, run: Vgpu, fault: str
) -> None:
    """repair adopts the existing files, completes them, and uninstall removes all of them."""
    before = snapshot(root)
    run("install", "--root", root, "--from", payload, "--endpoint", "unix:/run/x.sock", "--service", "llama")
    run("install", "--root", root, "--from", payload, "--endpoint", "tcp://10.0.0.1:7070")
    whole = snapshot(root)
    manifest = root / SYSTEM.manifest
    document = json.loads(manifest.read_text())
    request = document["request"]
    if fault == "lost":
        manifest.unlink()
    elif fault == "damaged":
        manifest.write_text(manifest.read_text()[:100])
    else:
        document["entries"].append({"path": "etc/passwd", "kind": "file", "mode": 0, "sha256": "0" * 64, "nbytes": 0})
        manifest.write_text(json.dumps(document))
    (root / SYSTEM.libraries / f"libcuda.so.{RELEASE}").write_bytes(b"")
    run("repair", "--root", root, "--from", payload)
    assert json.loads(manifest.read_text())["request"] == request

    def files(state: dict[str, object]) -> dict[str, object]:
        kept = {path: what for path, what in state.items() if "manifest" not in path and "cache" not in path}
        replaced = f"{SYSTEM.libraries}/libcuda.so.{RELEASE}"  # repaired, so with another modification time
        return {path: what[4][0] if path == replaced else what for path, what in kept.items()}  # type: ignore[index]

    assert files(snapshot(root)) == files(whole)
    run("uninstall", "--root", root)
    left = {path for path in set(snapshot(root)) - set(before) if "cache" not in path}
    assert left <= {"etc/systemd", "etc/systemd/system"}  # the record of who created these is lost


@pytest.mark.parametrize("fault", ["absent", "text"])
def test_a_payload_that_is_none(root: Path, payload: Path, run: Vgpu, tmp_path: Path, fault: str) -> None:
    folder = tmp_path / "payload"
    shutil.copytree(payload, folder)
    library = folder / f"libnvidia-ml.so.{RELEASE}"
    library.unlink() if fault == "absent" else library.write_text("no library")
    before = snapshot(root)
    assert "libnvidia-ml" in run("install", "--root", root, "--from", folder, code=1).output
    assert snapshot(root) == before
