"""Planted faults in what the dynamic loader finds: each gets its own verdict."""

from __future__ import annotations

import subprocess

import pytest

from tests.guest.doctor.tree import CUDA, MAIN, NOBODY, Tree
from tests.guest.elf_file import compile_c
from tests.patience import PATIENCE_S

THIRTY_TWO_BIT = bytes.fromhex("7f454c4601010100000000000000000003000300010000000000000034000000") + bytes(64)


def test_a_sound_system_is_ok(tree: Tree) -> None:
    told = tree.doctor()
    assert (told.code, told.verdict) == (0, "ok"), told.everything
    assert told.answer["mend"] == ""
    assert told.answer["libs"]["libcuda.so.1"]["resolved"] == "/usr/lib/vgpu/libcuda.so.1"
    assert told.answer["probe"]["cuda"]["count"] == 1
    assert told.answer["endpoint"]["channel"] == "plain socket"


def test_L04_preloaded_counts_as_found(tree: Tree) -> None:
    """A library that is preloaded is reused for every later dlopen of its soname."""
    tree.environment |= {"LD_LIBRARY_PATH": "", "LD_PRELOAD": "/usr/lib/vgpu/libcuda.so.1"}
    told = tree.doctor()
    assert told.verdict == "ok", told.everything
    assert told.answer["libs"]["libcuda.so.1"]["why"] == "preloaded"


def test_L06_an_earlier_directory(tree: Tree) -> None:
    tree.library("usr/local/lib/libcuda.so.535.104.05", "-Wl,-soname,libcuda.so.1")
    tree.path("usr/local/lib/libcuda.so.1").symlink_to("libcuda.so.535.104.05")
    tree.environment["LD_LIBRARY_PATH"] = "/usr/local/lib:/usr/lib/vgpu"
    told = tree.doctor()
    assert (told.code, told.verdict) == (10, "library-foreign"), told.everything
    driver = told.answer["libs"]["libcuda.so.1"]
    assert driver["resolved"] == "/usr/local/lib/libcuda.so.1"
    assert "535.104.05" in told.answer["text"]
    assert [loser["file"] for loser in driver["losers"]] == ["/usr/lib/vgpu/libcuda.so.1"]
    assert told.answer["mend"] == "export LD_LIBRARY_PATH=/usr/lib/vgpu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"


def test_L06_a_foreign_driver_in_the_loader_cache(tree: Tree) -> None:
    """LD_LIBRARY_PATH is not set, so the system's driver wins, as after a package update (D17)."""
    tree.library("usr/lib/x86_64-linux-gnu/libcuda.so.1")
    tree.ldconfig()
    del tree.environment["LD_LIBRARY_PATH"]
    told = tree.doctor()
    assert told.verdict == "library-foreign", told.everything
    assert "cache" in told.answer["libs"]["libcuda.so.1"]["why"]
    assert told.answer["mend"] == "sudo vgpu install"


def test_nothing_says_where_it_is(tree: Tree) -> None:
    del tree.environment["LD_LIBRARY_PATH"]
    told = tree.doctor()
    assert told.verdict == "library-missing", told.everything
    assert "it is in /usr/lib/vgpu" in told.answer["text"]


def test_a_dead_link(tree: Tree) -> None:
    tree.path("usr/lib/vgpu/libcuda.so.580.159.04").unlink()
    told = tree.doctor()
    assert told.verdict == "library-dead-link", told.everything
    assert "libcuda.so.580.159.04" in told.answer["text"]


def test_L16_a_32_bit_library_first(tree: Tree) -> None:
    tree.path("opt/lib32").mkdir(parents=True)
    tree.path("opt/lib32/libcuda.so.1").write_bytes(THIRTY_TWO_BIT)
    del tree.environment["LD_LIBRARY_PATH"]
    tree.environment["LD_LIBRARY_PATH"] = "/opt/lib32"
    told = tree.doctor()
    assert told.verdict == "library-wrong-class", told.everything
    assert "32-bit" in told.answer["text"]


def test_L16_a_32_bit_library_that_is_passed_over_is_only_a_loser(tree: Tree) -> None:
    tree.path("opt/lib32").mkdir(parents=True)
    tree.path("opt/lib32/libcuda.so.1").write_bytes(THIRTY_TWO_BIT)
    tree.environment["LD_LIBRARY_PATH"] = "/opt/lib32:/usr/lib/vgpu"
    told = tree.doctor()
    assert told.verdict == "ok", told.everything
    losers = told.answer["libs"]["libcuda.so.1"]["losers"]
    assert [(loser["file"], loser["kind"]) for loser in losers] == [("/opt/lib32/libcuda.so.1", "wrong-class")]


def test_a_file_that_is_no_library(tree: Tree) -> None:
    tree.write("opt/libcuda.so.1", "see other\n")
    tree.environment["LD_LIBRARY_PATH"] = "/opt:/usr/lib/vgpu"
    told = tree.doctor()
    assert told.verdict == "library-damaged", told.everything


def test_an_rpath_wins(tree: Tree) -> None:
    tree.library("opt/theirs/libcuda.so.1")
    compile_c(tree.path(tree.program), MAIN, "-Wl,--disable-new-dtags,-rpath,/opt/theirs")
    told = tree.doctor()
    assert told.verdict == "library-rpath", told.everything
    assert told.answer["libs"]["libcuda.so.1"]["resolved"] == "/opt/theirs/libcuda.so.1"
    assert "LD_PRELOAD=/usr/lib/vgpu/libcuda.so.1" in told.answer["mend"]
    tree.environment["LD_PRELOAD"] = "/usr/lib/vgpu/libcuda.so.1"
    assert tree.doctor().verdict == "ok"


def test_a_runpath_does_not_win(tree: Tree) -> None:
    tree.library("opt/theirs/libcuda.so.1")
    compile_c(tree.path(tree.program), MAIN, "-Wl,--enable-new-dtags,-rpath,/opt/theirs")
    told = tree.doctor()
    assert told.verdict == "ok", told.everything
    assert "/opt/theirs/libcuda.so.1" in [loser["file"] for loser in told.answer["libs"]["libcuda.so.1"]["losers"]]


def test_a_runpath_is_followed_where_nothing_else_leads(tree: Tree) -> None:
    compile_c(tree.path(tree.program), MAIN, "-Wl,--enable-new-dtags,-rpath,$ORIGIN/../lib/vgpu")
    del tree.environment["LD_LIBRARY_PATH"]
    told = tree.doctor()
    assert told.verdict == "ok", told.everything


def test_I07_a_directory_that_keeps_the_user_out(tree: Tree) -> None:
    """Mode bits have the effect of an AppArmor profile: the file exists and the loader reports that it does not."""
    tree.path("usr/lib/vgpu").chmod(0o700)
    tree.write("etc/passwd", f"nobody:x:{NOBODY}:{NOBODY}:::\n")
    tree.unit(
        f"[Service]\nUser=nobody\nExecStart={tree.program}\n"
        f"Environment=LD_LIBRARY_PATH=/usr/lib/vgpu VGPU_ENDPOINT={tree.environment['VGPU_ENDPOINT']}\n"
    )
    told = tree.doctor("--service", "gpu")
    assert (told.code, told.verdict) == (30, "library-denied"), told.everything
    assert "/usr/lib/vgpu (mode 0700)" in told.answer["text"]
    tree.path("usr/lib/vgpu").chmod(0o755)
    assert tree.doctor("--service", "gpu").verdict == "ok"


@pytest.mark.parametrize("place", ["environment", "file"])
def test_I04_a_preload_entry_that_is_not_there(tree: Tree, place: str) -> None:
    if place == "environment":
        tree.environment["LD_PRELOAD"] = "/usr/local/lib/libgone.so"
    else:
        tree.write("etc/ld.so.preload", "/usr/local/lib/libgone.so\n")
    told = tree.doctor()
    assert (told.code, told.verdict) == (10, "preload-missing"), told.everything
    assert "/usr/local/lib/libgone.so" in told.answer["text"]


@pytest.mark.parametrize("line", ["hunter2-secret", "libcuda.so.1", "/etc/hostname"])
def test_I03_garbage_in_the_preload_file(tree: Tree, line: str) -> None:
    tree.write("etc/hostname", "box\n")
    tree.write("etc/ld.so.preload", f"# comment\n{line}\n")
    told = tree.doctor()
    assert (told.code, told.verdict) == (10, "preload-garbage"), told.everything
    assert told.answer["mend"] == ": >/etc/ld.so.preload"


def test_I03_the_mending_command_takes_out_only_the_garbage(tree: Tree) -> None:
    good = "/usr/lib/vgpu/libcuda.so.1"
    file = tree.write("etc/ld.so.preload", f"{good}\nit's garbage\n# kept\n")
    told = tree.doctor()
    assert told.verdict == "preload-garbage", told.everything
    mend = told.answer["mend"].replace("/etc/ld.so.preload", str(file))
    subprocess.run(["/bin/sh", "-c", mend], check=True, timeout=PATIENCE_S, env={"PATH": "/nonexistent"})
    assert file.read_text() == f"{good}\n# kept\n"
    assert tree.doctor().verdict == "ok"


@pytest.mark.parametrize("flag", ["-static", "-static-pie"])
def test_a_static_program(tree: Tree, flag: str) -> None:
    compile_c(tree.path(tree.program), MAIN, flag)
    told = tree.doctor()
    assert (told.code, told.verdict) == (50, "program-static"), told.everything


def test_a_32_bit_program(tree: Tree) -> None:
    tree.path(tree.program).write_bytes(THIRTY_TWO_BIT)
    assert tree.doctor().verdict == "program-wrong-class"


def test_two_drivers_of_one_name_are_told_apart_by_the_mark(tree: Tree) -> None:
    """A libcuda without vgpu's mark is foreign, even under vgpu's file name and in vgpu's directory."""
    tree.library("usr/lib/vgpu/libcuda.so.580.159.04", "-Wl,-soname,libcuda.so.1", source=CUDA)
    told = tree.doctor()
    assert told.verdict == "library-foreign", told.everything
