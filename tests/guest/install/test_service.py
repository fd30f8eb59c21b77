"""The parts of a unit that a drop-in depends on, read as systemd reads them; and the resulting drop-in."""

from __future__ import annotations

from pathlib import Path

import pytest
from vgpu_guest.layout import drop_in
from vgpu_guest.service import Service, ServiceError, environment_files, read_service
from vgpu_guest.tree import Tree

from tests.guest.elf_file import compile_library
from tests.guest.install.conftest import Vgpu


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def unit(root: Path, text: str, name: str = "app.service") -> None:
    write(
        root, f"etc/systemd/system/{name}", f"[Unit]\nDescription=x\n[Service]\n{text}\n[Install]\nEnvironment=A=no\n"
    )


def read(root: Path, name: str = "app") -> Service:
    with Tree(root) as tree:
        return read_service(tree, name)


def test_the_last_assignment_counts(root: Path) -> None:
    unit(root, 'Environment=A=1 "B=two words"\nEnvironment=A=2\n# Environment=A=3\nExecStart=-/bin/app --x')
    service = read(root)
    assert (service.variable("A"), service.variable("B"), service.variable("C")) == ("2", "two words", "")
    assert service.program() == "/bin/app"


def test_an_empty_assignment_begins_anew(root: Path) -> None:
    unit(root, "Environment=A=1\nEnvironment=\nExecStart=/a\nExecStart=\nExecStart=/b")
    assert read(root).variable("A") == ""
    assert read(root).program() == "/b"


def test_drop_ins_by_name_over_all_folders(root: Path) -> None:
    unit(root, "Environment=A=unit")
    write(root, "usr/lib/systemd/system/app.service.d/10.conf", "[Service]\nEnvironment=A=hidden\n")
    write(root, "etc/systemd/system/app.service.d/10.conf", "[Service]\nEnvironment=A=ten\n")
    write(root, "etc/systemd/system/service.d/05.conf", "[Service]\nEnvironment=A=all B=all\n")
    write(root, "run/systemd/system/app.service.d/20.conf", "[Service]\nEnvironment=C=run\n")
    (root / "etc/systemd/system/app.service.d/20.conf").symlink_to("/dev/null")
    write(root, drop_in("app"), "[Service]\nEnvironment=A=ours\n")
    service = read(root)
    assert [service.variable(name) for name in "ABC"] == ["ten", "all", ""]


def test_an_instance_has_its_templates_and_its_own(root: Path) -> None:
    unit(root, "Environment=A=template", "app@.service")
    write(root, "etc/systemd/system/app@.service.d/a.conf", "[Service]\nEnvironment=B=template\n")
    write(root, "etc/systemd/system/app@x.service.d/a.conf", "[Service]\nEnvironment=B=instance\n")
    assert [read(root, "app@x").variable(name) for name in "AB"] == ["template", "instance"]


def test_an_alias_is_followed_within_the_root(root: Path) -> None:
    unit(root, "Environment=A=1", "real.service")
    (root / "etc/systemd/system/alias.service").symlink_to("/etc/systemd/system/real.service")
    assert read(root, "alias").variable("A") == "1"


def test_a_link_out_of_the_root_stays_in_it(root: Path, tmp_path: Path) -> None:
    write(tmp_path, "outside.service", "[Service]\nEnvironment=A=outside\n")
    (root / "etc/systemd/system").mkdir(parents=True)
    (root / "etc/systemd/system/app.service").symlink_to("../../../../outside.service")
    with pytest.raises(ServiceError, match="there is no service"):
        read(root)


def test_links_in_a_circle(root: Path) -> None:
    (root / "etc/systemd/system").mkdir(parents=True)
    (root / "etc/systemd/system/app.service").symlink_to("app.service")
    with pytest.raises(ServiceError, match="there is no service"):
        read(root)


def test_a_masked_unit(root: Path, run: Vgpu, payload: Path) -> None:
    (root / "etc/systemd/system").mkdir(parents=True)
    (root / "etc/systemd/system/llama.service").symlink_to("/dev/null")
    assert "is masked" in run("install", "--root", root, "--from", payload, "--service", "llama", code=1).output


def test_environment_files(root: Path) -> None:
    unit(root, "EnvironmentFile=/etc/default/app\nEnvironmentFile=-/etc/default/none")
    write(root, "etc/default/app", "# LD_PRELOAD=x\nLD_LIBRARY_PATH=/theirs\n")
    with Tree(root) as tree:
        assert environment_files(tree, read_service(tree, "app")) == {"LD_LIBRARY_PATH": "/etc/default/app"}


def made(run: Vgpu, root: Path, payload: Path, *options: str, code: int = 0) -> tuple[list[str], str]:
    """Install for the service; return the drop-in's lines without comments, and the command's output."""
    result = run("install", "--root", root, "--from", payload, "--service", "app", *options, code=code)
    lines = (root / drop_in("app")).read_text().splitlines()
    return [line for line in lines if not line.startswith("#")], result.output


def test_a_drop_in(root: Path, run: Vgpu, payload: Path) -> None:
    unit(root, "ExecStart=/bin/app")
    lines, _ = made(run, root, payload, "--endpoint", "tcp://10.0.0.1:7070")
    assert lines == [
        "[Service]",
        'Environment="LD_LIBRARY_PATH=/usr/lib/vgpu"',
        'Environment="VGPU_ENDPOINT=tcp://10.0.0.1:7070"',
    ]


def test_the_units_own_path_comes_after_ours(root: Path, run: Vgpu, payload: Path) -> None:
    unit(root, "Environment=LD_LIBRARY_PATH=/opt/a:%h/lib")
    lines, _ = made(run, root, payload)
    assert lines[1] == 'Environment="LD_LIBRARY_PATH=/usr/lib/vgpu:/opt/a:%h/lib"'
    unit(root, "Environment=LD_LIBRARY_PATH=/opt/b")
    assert "changed since" in run("repair", "--root", root, "--from", payload).output
    assert "/usr/lib/vgpu:/opt/b" in (root / drop_in("app")).read_text()


def test_a_foreign_preload_is_named_until_a_drop_in_takes_it_away(root: Path, run: Vgpu, payload: Path) -> None:
    """The doctor's mend for the case GD2 is a drop-in that unsets LD_PRELOAD."""
    unit(root, "Environment=LD_PRELOAD=/opt/old/libshim.so")
    write(root, "etc/systemd/system/app.service.d/other.conf", "[Service]\nNice=1\n")
    compile_library(root / "opt/old/libshim.so", source="int cuInit(unsigned f) { return f ? 1 : 100; }")
    _, output = made(run, root, payload, code=1)
    assert "LD_PRELOAD=/opt/old/libshim.so defines cuInit" in output
    assert "take it out of /etc/systemd/system/app.service\n" in output
    write(root, "etc/systemd/system/app.service.d/zzz.conf", "[Service]\nUnsetEnvironment=LD_PRELOAD\n")
    _, output = made(run, root, payload)
    assert "LD_PRELOAD" not in output


def test_an_environment_file_that_wins_is_said(root: Path, run: Vgpu, payload: Path) -> None:
    unit(root, "EnvironmentFile=/etc/default/app")
    write(root, "etc/default/app", "LD_LIBRARY_PATH=/theirs\n")
    _, output = made(run, root, payload, code=1)
    assert "app.service: /etc/default/app sets LD_LIBRARY_PATH and wins: add /usr/lib/vgpu there" in output


@pytest.mark.parametrize(
    ("endpoint", "family"),
    [
        ("unix:/run/x.sock", "AF_UNIX"),
        ("tcp://10.0.0.1:1", None),
        ("tcp://[::1]:1", "AF_INET6"),
        ("vsock://2:1", "AF_VSOCK"),
    ],
)
def test_a_unit_that_lists_its_sockets(root: Path, run: Vgpu, payload: Path, endpoint: str, family: str | None) -> None:
    unit(root, "RestrictAddressFamilies=AF_INET")
    lines, output = made(run, root, payload, "--endpoint", endpoint)
    assert [line for line in lines if "Restrict" in line] == ([f"RestrictAddressFamilies={family}"] if family else [])
    assert (f"may use {family} sockets now" in output) == bool(family)


@pytest.mark.parametrize(
    ("text", "says"),
    [("RestrictAddressFamilies=~AF_UNIX", "forbids kinds of sockets"), ("PrivateNetwork=yes", "has no network")],
)
def test_what_a_drop_in_cannot_mend_is_said(root: Path, run: Vgpu, payload: Path, text: str, says: str) -> None:
    unit(root, text)
    _, output = made(run, root, payload, "--endpoint", "tcp://10.0.0.1:7070", code=1)
    assert says in output


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("app", "RootDirectory=/srv/app", "a root of its own, /srv/app"),
        ("snap.ollama.listener", "ExecStart=/usr/bin/snap run ollama.listener", "is a snap"),
        ("app", "ExecStart=/snap/ollama/current/bin/ollama", "is a snap"),
        ("other", "", "there is no service other.service"),
    ],
)
def test_I07_a_service_that_cannot_be_helped_is_refused(
    root: Path, run: Vgpu, payload: Path, name: str, text: str, says: str
) -> None:
    if text:
        unit(root, text, f"{name}.service")
    assert says in run("install", "--root", root, "--from", payload, "--service", name, code=1).output
    assert not (root / "usr/lib/vgpu").exists()


def test_a_unit_that_has_gone_since_is_said(root: Path, run: Vgpu, payload: Path) -> None:
    unit(root, "ExecStart=/bin/app")
    made(run, root, payload)
    (root / "etc/systemd/system/app.service").unlink()
    output = run("repair", "--root", root, "--from", payload, code=1).output
    assert "app.service is not there any more: vgpu uninstall --service app.service" in output


def test_services_are_taken_back_one_by_one(root: Path, run: Vgpu, payload: Path) -> None:
    unit(root, "ExecStart=/bin/app")
    arguments = ["--root", root]
    run("install", *arguments, "--from", payload, "--service", "app", "--service", "llama")
    run("uninstall", *arguments, "--service", "app")
    assert not (root / drop_in("app")).exists()
    assert (root / drop_in("llama")).exists()
    assert "nothing is installed for app.service" in run("uninstall", *arguments, "--service", "app", code=1).output
    run("uninstall", *arguments, "--service", "llama")
    assert not (root / "usr/lib/vgpu").exists()
