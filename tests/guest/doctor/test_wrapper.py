"""Commands that start another command, and bundles: the doctor examines the started command in its environment."""

from __future__ import annotations

import shlex

import pytest
from vgpu_guest.doctor.wrapper import unfollowed, unwrap

from tests.guest.doctor.tree import Tree

OUTER = {"VGPU_ENDPOINT": "unix:/e", "LC_ALL": "C", "LD_PRELOAD": "/l.so", "PATH": "/p"}
# The command that each line starts, and the variables in its environment where they differ from OUTER's.
FOUND = {
    "env -i A=b -C /x ./p x": ("./p x", "A"),
    "env -u VGPU_ENDPOINT --unset=LC_ALL ./p": ("./p", "LD_PRELOAD PATH"),
    "env -S './p x' y": ("./p x y", ""),
    "sudo ./p": ("./p", "LC_ALL PATH"),
    "sudo -u bob --preserve-env=VGPU_ENDPOINT -- ./p": ("./p", "LC_ALL PATH VGPU_ENDPOINT"),
    "sudo -E ./p": ("./p", "LC_ALL PATH VGPU_ENDPOINT"),  # sudo is setuid: the loader drops LD_PRELOAD
    "sudo LD_PRELOAD=/x ./p": ("./p", "LC_ALL LD_PRELOAD PATH"),
    "nohup nice -n 5 ionice -c 3 timeout -s KILL 5 taskset 1 ./p": ("./p", ""),
    "strace -f -o /dev/null ./p -o x": ("./p -o x", ""),
    "setarch x86_64 -R ./p": ("./p", ""),
    "setarch -R ./p": ("./p", ""),
    "flock /tmp/l ./p": ("./p", ""),
    "unshare -r setpriv --reuid 5 ./p": ("./p", ""),
    "gdb -ex run --args ./p": ("./p", ""),
    "/lib64/ld-linux-x86-64.so.2 --library-path /x ./p": (
        "./p",
        "LC_ALL LD_LIBRARY_PATH LD_PRELOAD PATH VGPU_ENDPOINT",
    ),
    "bash -c 'exec ./p a'": ("./p a", ""),
    'fish -c "VGPU_LOG=info ./p"': ("./p", "LC_ALL LD_PRELOAD PATH VGPU_ENDPOINT VGPU_LOG"),
    "busybox sh -c 'timeout 5 ./p'": ("./p", ""),
    "script -qc ./p": ("./p", ""),
    "su bob -c './p x'": ("./p x", ""),
    "runuser -u bob -- ./p": ("./p", ""),
    "env env env ./p": ("./p", ""),
    **{
        line: (line, "")
        for line in ("bash -c './p; ./q'", "bash -c './p $X'", "bash -c", "bash ./x.sh", "env", "busybox")
    },
    "python3 -c 'import x'": ("python3 -c 'import x'", ""),
}


@pytest.mark.parametrize("line", FOUND)
def test_the_innermost_command_and_its_environment(line: str) -> None:
    command, names = FOUND[line]
    environment = dict(OUTER)
    assert unwrap(shlex.split(line), environment).words == shlex.split(command)
    assert sorted(environment) == (names.split() or sorted(OUTER))


def test_what_is_not_known_is_said() -> None:
    assert "LC_ALL PATH" in unwrap(["sudo", "./p"], dict(OUTER)).notes[0]
    assert "profile" in unwrap(["bash", "-lc", "./p"], dict(OUTER)).notes[0]
    assert "another user" in unwrap(["su", "bob", "-c", "./p"], dict(OUTER)).notes[0]
    assert unwrap(["bash", "-c", "./p"], dict(OUTER)).notes == []
    assert "not what its script starts" in unfollowed("/usr/bin/fish", ["-c", "a; b"])[0]
    assert "if it starts /bin/sh" in unfollowed("/usr/bin/watch", ["-n1", "/bin/sh"])[0]
    assert unfollowed("/usr/bin/python3.12", ["/bin/sh"]) == []
    assert unfollowed("/usr/bin/ls", ["/etc/passwd"]) == []


def carry(tree: Tree, cookie: bytes, offset: int | None = None) -> None:
    """Make the tree's program look like a bundle, which carries another program: write `cookie` into its file."""
    file = tree.path(tree.program)
    data = bytearray(file.read_bytes())
    if offset is None:
        data += cookie + bytes(80)
    else:
        data[offset : offset + len(cookie)] = cookie
    file.write_bytes(data)


def test_the_libcuda_of_a_bundle_is_found_and_its_mend_cures(tree: Tree) -> None:
    """PyInstaller's boot loader puts the bundle's folder before the entries of LD_LIBRARY_PATH."""
    carry(tree, b"MEI\014\013\012\013\016")
    folder = tree.path(tree.program).parent / "_internal"
    folder.mkdir()
    assert tree.doctor().verdict == "ok"
    foreign = tree.library(str((folder / "libcuda.so.1").relative_to(tree.root)))
    told = tree.doctor()
    assert (told.code, told.verdict) == (10, "library-foreign"), told.everything
    assert "the bundle brings it" in told.answer["text"]
    assert told.answer["mend"] == f"sudo rm /{foreign.relative_to(tree.root)}"
    foreign.unlink()
    assert tree.doctor().verdict == "ok"


@pytest.mark.parametrize(("cookie", "offset"), [(b"MEI\014\013\012\013\016", None), (b"AI\x02", 8)])
def test_a_bundle_of_one_file_is_said_to_be_unseen(tree: Tree, cookie: bytes, offset: int | None) -> None:
    carry(tree, cookie, offset)
    told = tree.doctor()
    assert told.verdict == "ok", told.everything
    assert "was not looked into" in told.everything
