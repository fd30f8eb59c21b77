"""`vgpu vm snippet`: the program that reads a part accepts it. (tests/vm boots a guest from the part for QEMU.)"""

from __future__ import annotations

import json
import shlex
import xml.etree.ElementTree as ElementTree

import pytest
from click.testing import CliRunner
from vgpud.cli.main import vgpu
from vgpud.cli.status import ExitStatus
from vgpud.config import parse_config
from vgpud.vm.snippet import MONITORS, SHARE_MEMORY

WAYS = [(monitor, way) for monitor, ways in MONITORS.items() for way in ways]


def invoke(*arguments: str):
    return CliRunner().invoke(vgpu, ["vm", "snippet", *arguments])


def part(which: str, *arguments: str) -> str:
    result = invoke(*arguments, "--part", which)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(("monitor", "way"), WAYS)
def test_vgpud_takes_its_part(monitor, way):
    [vm] = parse_config(
        part("vgpud", "--for", monitor, "--vsock", way, "--cid", "7", "--name", "build1"), source="test"
    ).vm
    assert (vm.name, vm.cid) == ("build1", 7)
    assert (vm.vsock is not None, vm.hybrid is not None) == (way == "vhost-user", way == "hybrid")


@pytest.mark.parametrize(("monitor", "way"), WAYS)
def test_all_parts_are_there_and_filled_in(monitor, way):
    output = invoke("--for", monitor, "--vsock", way, "--cid", "7", "--name", "101").output
    assert "$" not in output
    assert "[[vm]]" in output
    assert "endpoint = vsock://2:7070" in output
    assert part("vm", "--for", monitor, "--vsock", way, "--cid", "7", "--name", "101") in output


@pytest.mark.parametrize("way", MONITORS["libvirt"])
def test_libvirts_part_is_a_domain(way):
    domain = ElementTree.fromstring(part("vm", "--for", "libvirt", "--vsock", way, "--cid", "7", "--name", "build1"))
    assert domain.findtext("name") == "build1"
    arguments = [e.get("value") for e in domain.iter("{http://libvirt.org/schemas/domain/qemu/1.0}arg")]
    if way == "kernel":
        assert domain.find("devices/vsock/cid").get("address") == "7"
    else:
        assert "socket,id=vgpu-vsock,path=/run/vgpu/vm/build1.sock" in arguments
        assert domain.find("memoryBacking/access").get("mode") == "shared"


def test_firecrackers_part_is_its_configuration():
    document = json.loads(part("vm", "--for", "firecracker", "--cid", "7", "--socket", "/run/fc/v.sock"))
    assert document == {"vsock": {"guest_cid": 7, "uds_path": "/run/fc/v.sock"}}


def test_qemus_part_is_arguments_for_a_shell():
    words = shlex.split(part("vm", "--for", "qemu", "--cid", "7", "--memory", "512M"), comments=True)
    assert "memory-backend-memfd,id=ram,size=512M,share=on" in words


@pytest.mark.parametrize(("monitor", "way"), [(m, way) for m in SHARE_MEMORY for way in MONITORS[m]])
def test_shared_memory_is_one_file_on_both_sides(monitor, way):
    arguments = ("--for", monitor, "--vsock", way, "--cid", "7", "--name", "build1", "--shared-mib", "256")
    [vm] = parse_config(part("vgpud", *arguments), source="test").vm
    assert (vm.ivshmem, vm.ivshmem_mib) == ("/dev/shm/vgpu-build1", 256)
    text = part("vm", *arguments)
    if monitor == "libvirt":  # libvirt puts the file into /dev/shm by its name
        memory = ElementTree.fromstring(text).find("devices/shmem")
        assert (memory.get("name"), memory.findtext("size")) == ("vgpu-build1", "256")
    else:
        assert "mem-path=/dev/shm/vgpu-build1,size=256M,share=on" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--for", "firecracker", "--cid", "7", "--vsock", "kernel"],
            "firecracker has no kernel vsock here, but hybrid",
        ),
        (["--for", "qemu", "--cid", "7", "--name", "a b"], "vgpud.toml:3: vm.0.name: "),
        (["--for", "qemu", "--cid", "7", "--name", 'x"\ncid = 3'], "vgpud.toml:"),
        (["--for", "qemu", "--cid", "7", "--socket", "/" + "x" * 200], "vgpud.toml:"),
        (["--for", "qemu", "--cid", "7", "--memory", "4"], "a size is written 512M or 4G"),
        (["--for", "qemu", "--cid", "7", "--shared-mib", "100"], "not a power of two"),
        (["--for", "incus", "--cid", "7", "--shared-mib", "64"], "incus has no ivshmem device"),
        (["--for", "qemu", "--cid", "2"], "2 is not in the range"),
        (["--for", "hyperv", "--cid", "7"], "is not one of"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, said):
    result = invoke(*arguments)
    assert result.exit_code == ExitStatus.USAGE
    assert said in result.output
