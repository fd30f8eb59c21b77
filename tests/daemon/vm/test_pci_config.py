"""The stub's registers, as a guest's kernel reads them."""

import pytest
from vgpud.devices.inventory import load_inventory
from vgpud.vm import gpu_identity
from vgpud.vm.pci_config import CONFIG_NBYTES, REGISTERS_NBYTES, ConfigSpace, PciIdentity

H100 = PciIdentity(0x10DE, 0x2331, 0x10DE, 0x1626, link=(5, 16))


def test_the_header_is_the_cards():
    space = ConfigSpace(H100)
    assert (space.read(0x00, 4), space.read(0x2C, 4)) == (0x233110DE, 0x162610DE)
    assert space.read(0x08, 4) == 0x030200A1
    assert space.read(0x0E, 1) == 0  # one function
    assert space.read(0x3D, 1) == 0  # no interrupt


def test_the_capability_list_ends_and_nothing_in_it_overlaps():
    space, at, found = ConfigSpace(H100), 0x34, {}
    at = space.read(0x34, 1)
    while at:
        found[space.read(at, 1)] = at
        at = space.read(at + 1, 1)
    assert found == {0x10: 0x60, 0x09: 0xA0}
    assert space.read(0x60 + 0x12, 2) & 0x3FF == 16 << 4 | 5  # the link runs at its maximum
    assert space.read(0x60 + 0x2C, 4) == 0b111110
    assert space.read(0xA0 + 2, 1) == 12


def test_a_bar_tells_its_size_and_keeps_an_address():
    space = ConfigSpace(H100)
    for bar in range(0x10, 0x2C, 4):
        space.write(bar, 4, 0xFFFFFFFF)
        expected = 2**32 - REGISTERS_NBYTES if bar == 0x10 else 0
        assert space.read(bar, 4) == expected
    space.write(0x30, 4, 0xFFFFFFFF)
    assert space.read(0x30, 4) == 0  # no ROM
    space.write(0x10, 4, 0xFC000000)
    assert space.read(0x10, 4) == 0xFC000000
    space.reset()
    assert space.read(0x10, 4) == 0


def test_identity_cannot_be_written():
    space = ConfigSpace(H100)
    before = [space.read(at, 4) for at in range(0, CONFIG_NBYTES, 4)]
    for at in range(0, CONFIG_NBYTES, 4):
        space.write(at, 4, 0xFFFFFFFF)
    assert space.read(0, 4) == 0x233110DE
    assert space.read(0x2C, 4) == 0x162610DE
    space.reset()
    assert [space.read(at, 4) for at in range(0, CONFIG_NBYTES, 4)] == before


@pytest.mark.parametrize("wrong", [{"vendor": 0x10000}, {"device": -1}, {"revision": 256}, {"link": (7, 16)}])
def test_an_identity_that_does_not_fit_is_refused(wrong):
    fields = {"vendor": 1, "device": 1, "subsystem_vendor": 1, "subsystem_device": 1} | wrong
    with pytest.raises(ValueError, match="PCI"):
        PciIdentity(**fields)


def test_every_profile_has_an_identity():
    inventory = load_inventory("simulator", "h100,h200,a100,a100-80gb,l4,rtx4090,t4,v100", "")
    cards = gpu_identity.of_profiles(inventory)
    assert cards[0] == H100
    assert {card.vendor for card in cards} == {0x10DE}
    assert len({card.device for card in cards}) == 8
    assert cards[6].link == (3, 16)
