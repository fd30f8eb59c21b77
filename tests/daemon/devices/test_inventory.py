"""An inventory is checked before it is announced to any client."""

from __future__ import annotations

import pytest
from vgpud.devices import inventory as module
from vgpud.devices.host_gpu import HostGpuError
from vgpud.devices.inventory import InventoryError, check_inventory, host_seed, load_inventory
from vgpusim.profiles.attribute import DeviceAttribute


def good() -> dict:
    return load_inventory("simulator", "h100,t4", "").fields


def test_simulated():
    inventory = load_inventory("simulator", "h100:2,t4", "")
    assert inventory.device_count == 3
    assert inventory.fields["backend"] == "simulator"
    again = load_inventory("simulator", "h100:2,t4", "")
    assert again == inventory  # UUIDs are stable
    assert host_seed() == again.host_seed


@pytest.mark.parametrize("gpus", ["", "nonesuch", "h100:0", "h100:1000", "h100:x", ",", "../h100"])
def test_bad_profiles(gpus):
    with pytest.raises(InventoryError, match="gpus = "):
        load_inventory("simulator", gpus, "")


def test_no_real_driver(monkeypatch):
    def probe(_path):
        raise HostGpuError("cannot open shared object file")

    monkeypatch.setattr(module.host_gpu, "probe", probe)
    with pytest.raises(InventoryError, match=r"libcuda = '/x': cannot open"):
        load_inventory("cuda", "h100", "/x")


def test_a_card_promises_only_what_reaches_the_client():
    class Driver:
        def result(self, _name, value, attribute, _device):
            value._obj.value = 1
            return 1 if attribute == 160 else 0

    attributes = module.host_gpu._attributes(Driver(), 0)
    assert attributes[160] == module.host_gpu.INVALID_ATTRIBUTE
    assert attributes[DeviceAttribute.DMA_BUF_SUPPORTED] == attributes[DeviceAttribute.MULTICAST_SUPPORTED] == 0
    assert attributes[DeviceAttribute.COOPERATIVE_LAUNCH] == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", b"x"),
        ("uuid", b"x" * 15),
        ("attributes", b"x" * 7),
        ("limits", b"x" * 12),
        ("memory_nbytes", "1"),
        ("priorities", [0]),
        ("granularity", [1, "2"]),
        ("pci", None),
    ],
)
def test_a_malformed_device(key, value):
    fields = good()
    fields["devices"] = [dict(fields["devices"][0]), dict(fields["devices"][1]) | {key: value}]
    with pytest.raises(InventoryError, match="device 1: "):
        check_inventory(fields)


@pytest.mark.parametrize(
    "change", [{"devices": []}, {"devices": None}, {"devices": [3]}, {"backend": "x"}, {"driver_version": "13"}]
)
def test_a_malformed_inventory(change):
    with pytest.raises(InventoryError):
        check_inventory(good() | change)
