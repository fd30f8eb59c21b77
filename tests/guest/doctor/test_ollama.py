"""Ollama as users install it: as a unit, a snap or both; after an update; and with another program on its port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guest.doctor.tree import MAIN, Tree
from tests.guest.elf_file import compile_c

SERVE = r"""
#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
int main(int argc, char **argv) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr = {htonl(0x7f000001)}};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 4) || write(1, "x", 1) != 1)
    return 1;
  sleep(600);
  return argc;
}
"""


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def ollama(tree: Tree, port: int, tmp_path: Path) -> Tree:
    """A tree with /usr/local/bin/ollama, its bundled libraries and its unit."""
    tree.program = "/usr/local/bin/ollama"
    compile_c(tree.path(tree.program), SERVE)
    script = tmp_path / "map"
    script.write_text("libcudart.so.12 { global: *; };")
    bundle = "usr/local/lib/ollama/cuda_v12"
    runtime = tree.library(
        f"{bundle}/libcudart.so.12",
        f"-Wl,--version-script={script}",
        source="int cudaGetDeviceCount(int *n) { return *n; }",
    )
    source = "int cudaGetDeviceCount(int *); int use(int *n) { return cudaGetDeviceCount(n); }"
    tree.library(f"{bundle}/libggml-cuda.so", "-x", "none", str(runtime), source=source)
    endpoint = tree.environment["VGPU_ENDPOINT"]
    tree.unit(
        f"[Service]\nExecStart={tree.program} {port}\n"
        f'Environment="OLLAMA_HOST=127.0.0.1:{port}" LD_LIBRARY_PATH=/usr/lib/vgpu VGPU_ENDPOINT={endpoint}\n',
        "ollama.service",
    )
    return tree


@pytest.fixture
def start(ollama: Tree, port: int) -> Iterator[object]:
    started: list[subprocess.Popen[bytes]] = []

    def start_one(program: str | None = None) -> int:
        environment = {
            "OLLAMA_HOST": f"127.0.0.1:{port}",
            "LD_LIBRARY_PATH": "/usr/lib/vgpu",
            "VGPU_ENDPOINT": ollama.environment["VGPU_ENDPOINT"],
        }
        process = subprocess.Popen(
            [program or ollama.program, str(port)],
            env=environment,
            preexec_fn=lambda: os.chroot(ollama.root),
            cwd="/",
            stdout=subprocess.PIPE,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.read(1) == b"x"
        return process.pid

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


def test_a_sound_ollama_is_ok(ollama: Tree) -> None:
    told = ollama.doctor("--service", "ollama")
    assert told.verdict == "ok", told.everything
    assert [(i["kind"], i["name"]) for i in told.answer["ollama"]] == [
        ("binary", "/usr/local/bin/ollama"),
        ("unit", "ollama.service"),
    ]


def test_I01_an_update_deletes_the_bundle(ollama: Tree) -> None:
    shutil.rmtree(ollama.path("usr/local/lib/ollama"))
    told = ollama.doctor("--service", "ollama")
    assert (told.code, told.verdict) == (10, "bundle-missing"), told.everything
    assert "/usr/local/lib/ollama is not there" in told.answer["text"]


def test_I01_an_update_leaves_a_half_old_tree(ollama: Tree) -> None:
    ollama.path("usr/local/lib/ollama/cuda_v12/libcudart.so.12").unlink()
    told = ollama.doctor("--service", "ollama")
    assert told.verdict == "runtime-missing", told.everything


def test_L02_a_replaced_libcudart_in_the_bundle(ollama: Tree) -> None:
    ollama.library(
        "usr/local/lib/ollama/cuda_v12/libcudart.so.12", source="int cudaGetDeviceCount(int *n) { return *n; }"
    )
    told = ollama.doctor("--service", "ollama")
    assert told.verdict == "symbol-version", told.everything
    assert "ollama.com/install.sh" in told.answer["advice"]


def test_I06_the_listener_is_named_with_what_it_has(ollama: Tree, start) -> None:
    pid = start()
    told = ollama.doctor("--service", "ollama")
    assert told.verdict == "ok", told.everything
    listener = next(i for i in told.answer["ollama"] if i["kind"] == "listener")
    assert (listener["pid"], told.answer["subject"]["pids"]) == (pid, [pid])


def test_I06_another_process_owns_the_port(ollama: Tree, start) -> None:
    """Two services: the process that answers on the port is not the repaired service."""
    compile_c(ollama.path("/home/u/ollama"), SERVE)
    pid = start("/home/u/ollama")
    told = ollama.doctor("--service", "ollama")
    assert (told.code, told.verdict) == (60, "port-owned-by-other"), told.everything
    assert told.answer["advice"] == f"vgpu doctor --pid {pid}"


def test_I07_the_snap_is_recognised_and_not_pretended_to_work(ollama: Tree) -> None:
    compile_c(ollama.path("/snap/ollama/105/bin/ollama"), MAIN)
    ollama.path("/snap/ollama/current").symlink_to("105")
    ollama.write("snap/ollama/105/meta/snap.yaml", "name: ollama\nconfinement: strict\n")
    unit = "[Service]\nExecStart=/snap/ollama/current/bin/ollama serve\nEnvironment=LD_LIBRARY_PATH=/usr/lib/vgpu\n"
    ollama.unit(unit, "snap.ollama.listener.service")
    told = ollama.doctor("--service", "snap.ollama.listener")
    assert (told.code, told.verdict) == (30, "snap-confined"), told.everything
    assert {"kind": "snap", "name": "ollama", "confinement": "strict"} in told.answer["ollama"]
    assert "not supported" in told.answer["meaning"]
