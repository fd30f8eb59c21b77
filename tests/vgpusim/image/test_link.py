"""cuLink's output: an ELF file to clients, PTX texts to the simulator."""

import shutil
import struct
import subprocess

import pytest
from vgpusim.image import elf, image, link
from vgpusim.image.error import ImageError

from .test_image import DATA, PTX, ptx_for, read, target_of

USER = b".version 7.0\n.target sm_70\n.address_size 64\n.extern .func (.param .b32 r) scale(.param .b32 x);\n"


def refused(inputs):
    with pytest.raises(ImageError) as caught:
        link.link(inputs, (9, 0))
    return caught.value


def test_texts_come_back_unchanged_and_in_order():
    linked = link.link([USER, PTX + b"\0"], (9, 0))
    assert image.load(linked, (9, 0)).texts == (USER.decode(), PTX.decode())
    assert image.load(linked, (9, 0)).origin == "linked image of 2 PTX texts"


def test_linked_images_and_fatbins_can_be_inputs():
    linked = link.link([link.link([PTX], (9, 0)), read("size.fatbin")], (9, 0))
    assert [target_of(text) for text in image.load(linked, (9, 0)).texts] == ["sm_70", "sm_90"]


def test_object_with_relocatable_device_code():
    (text,) = image.load(link.link([read("relocatable.obj")], (9, 0)), (9, 0)).texts
    assert ".extern .func" in text
    assert ".entry use(" in text


def test_clients_find_the_size_from_the_tables():
    linked = link.link([PTX], (9, 0))
    assert linked[:4] == b"\x7fELF"
    (machine,) = struct.unpack_from("<H", linked, 18)
    phoff, shoff = struct.unpack_from("<QQ", linked, 32)
    phentsize, phnum, shentsize, shnum = struct.unpack_from("<HHHH", linked, 54)
    assert machine == 190
    assert max(shoff + shnum * shentsize, phoff + phnum * phentsize) == len(linked)
    file = elf.read(memoryview(linked))
    assert file.sm == 90
    assert [section.name for section in file.sections] == [".vgpu.ptx", ".shstrtab"]


@pytest.mark.skipif(shutil.which("readelf") is None, reason="no readelf (binutils)")
def test_readelf_agrees(tmp_path):
    path = tmp_path / "linked.cubin"
    path.write_bytes(link.link([PTX], (9, 0)))
    told = subprocess.run(["readelf", "-W", "-h", "-S", path], capture_output=True, text=True, check=True)
    assert "NVIDIA CUDA" in told.stdout
    assert ".vgpu.ptx" in told.stdout
    assert told.stderr == ""


@pytest.mark.parametrize(
    ("data", "result"),
    [
        (b"junk\0", 200),
        (ptx_for("sm_120"), 218),
        (read("sm_90.cubin"), 209),
        (read("nothing.fatbin"), 209),
        (read("lto.fatbin"), 801),
        (b"\xed\x43\x4e\x7f rest", 801),
        (b"!<arch>\nmember", 801),
        (b".version 7.0\n", 218),
    ],
)
def test_refused_inputs(data, result):
    assert refused([PTX, data]).result == result


def test_nothing_to_link():
    assert refused([]).result == 1


def test_host_object_without_device_code():
    plain = bytearray(read("relocatable.obj"))
    plain = plain.replace(b"__nv_relfatbin\0", b"__nv_notfatbin\0")
    assert refused([bytes(plain)]).result == 200


def test_data_is_all_used():
    tested = {"none", "speed", "size", "specific", "nothing", "lto", "sm_90", "relocatable", "kernel", "build"}
    assert {file.stem for file in DATA.iterdir()} == tested


@pytest.mark.parametrize(("place", "value"), [(24, 1 << 40), (32, 1 << 40), (32, 2**64 - 1), (32, 3), (32, 0)])
def test_section_that_lies(place, value):
    """The offset (24) or size (32) of .vgpu.ptx lies outside the file, or cuts off the end of a text."""
    linked = bytearray(link.link([PTX], (9, 0)))
    (table,) = struct.unpack_from("<Q", linked, 40)
    struct.pack_into("<Q", linked, table + 64 + place, value)
    with pytest.raises(ImageError) as caught:
        image.load(bytes(linked), (9, 0))
    assert caught.value.result == 200
