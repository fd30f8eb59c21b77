"""The cuda backend passes images to the driver as the program's compiler made them, and reads no more than was sent."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from tests.daemon.running import ROOT
from tests.guest.elf_file import compile_library
from tests.patience import PATIENCE_S

HERE = Path(__file__).parent
INCLUDES = [f"-I{ROOT / folder}" for folder in ("daemon/executor", "protocol/c", "build/gen")]
MODULE_AND_LIBRARY = 2
INVALID_IMAGE = 200


def container(payload: bytes, header_nbytes: int = 16, nbytes: int | None = None) -> bytes:
    head = struct.pack("<IHHQ", 0xBA55ED50, 1, header_nbytes, len(payload) if nbytes is None else nbytes)
    return head.ljust(16, b"\0") + payload


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory):
    """`load(image)` loads the image as a module and as a library, and returns (result, handle) of each."""
    folder = tmp_path_factory.mktemp("cuda")
    driver = compile_library(folder / "libcuda.so.1", source=(HERE / "vgt_driver.c").read_text())
    program = folder / "load_images"
    backend = sorted((ROOT / "daemon/executor").glob("vgx_cuda*.c"))
    sources = [HERE / "vgt_load_images.c", *backend]
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-g"]
    subprocess.run(["cc", *flags, *INCLUDES, "-o", program, *sources, "-ldl"], check=True, timeout=120)

    def run(image: bytes) -> list[tuple[int, int]]:
        done = subprocess.run([program, driver], input=image, capture_output=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr.decode()
        words = [int(word) for word in done.stdout.split()]
        return [(words[0], words[1]), (words[2], words[3])]

    return run


def test_one_container_goes_as_it_is(load):
    assert load(container(bytes(40))) == [(0, 1)] * MODULE_AND_LIBRARY


def test_the_containers_of_several_units_go_as_their_compiler_wrapped_them(load):
    image = container(b"") + container(bytes(24)) + container(bytes(8)) + container(bytes(48))
    assert load(image) == [(0, 103)] * MODULE_AND_LIBRARY


def test_text_goes_as_it_is(load):
    assert load(b".version 8.0\n.target sm_75\n") == [(0, 1)] * MODULE_AND_LIBRARY


@pytest.mark.parametrize(
    "image",
    [
        container(bytes(8), nbytes=9),
        container(bytes(8), nbytes=2**64 - 1),
        container(bytes(8), header_nbytes=0),
        container(bytes(8), header_nbytes=65535),
        struct.pack("<I", 0xBA55ED50),
    ],
)
def test_a_container_that_measures_more_than_was_sent_is_refused(load, image):
    assert load(image) == [(INVALID_IMAGE, 0)] * MODULE_AND_LIBRARY


def test_of_several_containers_a_false_one_is_not_read(load):
    """The driver gets the first container only, whose header gives its length."""
    image = container(bytes(8)) + container(bytes(8), nbytes=64)
    assert load(image) == [(0, 1)] * MODULE_AND_LIBRARY
