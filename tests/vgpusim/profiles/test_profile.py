"""Device profiles: every value exists, is in range, and has the place that wire.md gives it."""

import dataclasses
import struct
from pathlib import Path

import pytest
from vgpusim.profiles import profile
from vgpusim.profiles.attribute import ContextLimit, DeviceAttribute
from vgpusim.profiles.profile import ProfileError

DATA = Path(__file__).parent / "data"

# Name, memory within 3 %, compute capability, SMs, PCI id: from the data sheets.
CARDS = {
    "t4": ("Tesla T4", 15.0e9 * 1.073, (7, 5), 40, (0x10DE, 0x1EB8)),
    "v100": ("Tesla V100-SXM2-16GB", 16 * 2**30, (7, 0), 80, (0x10DE, 0x1DB1)),
    "a100": ("NVIDIA A100-SXM4-40GB", 40 * 2**30, (8, 0), 108, (0x10DE, 0x20B0)),
    "a100-80gb": ("NVIDIA A100-SXM4-80GB", 80 * 2**30, (8, 0), 108, (0x10DE, 0x20B2)),
    "l4": ("NVIDIA L4", 22.5 * 2**30, (8, 9), 58, (0x10DE, 0x27B8)),
    "rtx4090": ("NVIDIA GeForce RTX 4090", 24 * 2**30, (8, 9), 128, (0x10DE, 0x2684)),
    "h100": ("NVIDIA H100 PCIe", 80 * 2**30, (9, 0), 114, (0x10DE, 0x2331)),
    "forward": ("vgpu Forward", 32 * 2**30, (13, 0), 16, (0x10DE, 0x2331)),
    "forward-next": ("vgpu Forward", 32 * 2**30, (13, 0), 16, (0x10DE, 0x2331)),
    "h200": ("NVIDIA H200", 141e9 * 1.06, (9, 0), 132, (0x10DE, 0x2335)),
}


def attributes_of(device):
    return struct.unpack("<161i", device["attributes"])


def test_every_card_is_there():
    assert set(CARDS) == set(profile.available())
    assert profile.DEFAULT in CARDS


@pytest.mark.parametrize("name", CARDS)
def test_card(name):
    title, memory_nbytes, compute_capability, sm_count, pci_device = CARDS[name]
    card = profile.load(name)
    assert card.name == title
    assert card.memory_nbytes == pytest.approx(memory_nbytes, rel=0.03)
    assert card.compute_capability == compute_capability
    assert card.attributes[DeviceAttribute.MULTIPROCESSOR_COUNT] == sm_count
    assert card.pci_device == pci_device
    limits = card.limits
    assert limits[ContextLimit.SHMEM_SIZE] == card.attributes[DeviceAttribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN]


def test_h100_differs_from_the_measured_sxm_card_only_where_the_pcie_card_does():
    attributes, limits = {}, {}
    for line in (DATA / "attributes-h100-sxm.tsv").read_text().splitlines():
        if not line.startswith("#"):
            kind, number, value = line.split("\t")
            known = None if value in ("invalid", "unsupported") else int(value)
            (attributes if kind == "attribute" else limits)[int(number)] = known
    card = profile.load("h100", as_simulated=False).inventory(5, "host")
    ours = [None if value == profile.INVALID_ATTRIBUTE else value for value in attributes_of(card)]
    different = {number for number, value in attributes.items() if ours[number] != value}
    assert len(attributes) == len(ours) == 161
    assert different == {
        DeviceAttribute.CLOCK_RATE,
        DeviceAttribute.MULTIPROCESSOR_COUNT,
        DeviceAttribute.MEMORY_CLOCK_RATE,
        DeviceAttribute.PCI_DEVICE_ID,
        DeviceAttribute.MULTI_GPU_BOARD_GROUP_ID,
        DeviceAttribute.GPU_PCI_DEVICE_ID,
        DeviceAttribute.GPU_PCI_SUBSYSTEM_ID,
        DeviceAttribute.PCI_BUS_ID,
    }
    ours_limits = [None if v == 2**64 - 1 else v for v in struct.unpack("<10Q", card["limits"])]
    assert {n for n, v in limits.items() if ours_limits[n] != v} == {ContextLimit.PRINTF_FIFO_SIZE}


@pytest.mark.parametrize("name", CARDS)
def test_simulator_switches_off_what_it_cannot_do(name):
    attributes = attributes_of(profile.load(name).inventory(0, "host"))
    for off in (88, 91, 100, 110, 112, 116, 124, 128, 132, 141, 144):
        assert attributes[off] == 0, DeviceAttribute(off).name
    for on in (19, 41, 83, 89, 95, 99, 102, 103, 113, 115):
        assert attributes[on] == 1, DeviceAttribute(on).name
    newer = int(attributes[DeviceAttribute.COMPUTE_CAPABILITY_MAJOR] >= 9)
    assert attributes[DeviceAttribute.CLUSTER_LAUNCH] == newer
    assert attributes[DeviceAttribute.TENSOR_MAP_ACCESS_SUPPORTED] == newer


def test_device_map_is_wire_md():
    device = profile.load("h100").inventory(2, "host")
    assert set(device) == {
        "name", "uuid", "pci", "memory_nbytes", "attributes", "limits", "priorities", "granularity", "context_nbytes",
        "peers",
    }  # fmt: skip
    attributes = attributes_of(device)
    assert device["pci"] == "0000:03:00.0"
    assert (attributes[50], attributes[33], attributes[34]) == (0, 3, 0)
    assert (attributes[75], attributes[76]) == (9, 0)
    assert attributes[139] == 0x233110DE
    assert attributes[0] == attributes[148] == attributes[160] == -(2**31)
    assert len(device["uuid"]) == 16
    assert len(device["limits"]) == 80
    assert device["priorities"] == [0, -5]


def test_devices_of_one_kind_reach_each_other():
    devices = profile.inventory([profile.load(name) for name in ("h100", "t4", "h100")], "host")["devices"]
    reaches = [[row[1] for row in struct.iter_unpack("<5i", device["peers"])] for device in devices]
    assert reaches == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]


def test_identities_are_stable_and_distinct():
    profiles = profile.parse_gpus("h100:2,t4")
    first, again = profile.inventory(profiles, "seed"), profile.inventory(profiles, "seed")
    assert first == again
    other = profile.inventory(profiles, "another")
    uuids = {device["uuid"] for device in first["devices"] + other["devices"]}
    assert len(uuids) == 6
    assert [device["pci"] for device in first["devices"]] == ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"]
    assert (first["driver_version"], first["driver_release"], first["backend"]) == (13000, "580.159.04", "simulator")
    # Pinned: a client that stored a UUID must find it again after an update.
    assert first["devices"][0]["uuid"].hex() == "dd00ec670dbd51b7a6da4465496fbe7c"


def test_parse_gpus():
    assert [card.key for card in profile.parse_gpus("h100:2, t4")] == ["h100", "h100", "t4"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no profile ''"),
        ("h100,", "no profile ''"),
        ("gtx", "no profile 'gtx'; there are: a100"),
        ("_common", "no profile"),
        ("../h100", "no profile"),
        ("h100:0", "count must be"),
        ("h100:-1", "count must be"),
        ("h100:", "count must be"),
        ("h100:999", "more than 64"),
        ("h100:40,t4:40", "more than 64"),
    ],
)
def test_parse_gpus_refuses(text, message):
    with pytest.raises(ProfileError, match=message):
        profile.parse_gpus(text)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("clock_rate = 1755000", "clock_rate = 1.5", r"h100.toml: attributes.clock_rate: 1.5 is neither"),
        ("clock_rate = 1755000", "clock_rate = 2147483648", r"h100.toml: attributes.clock_rate: 2147483648"),
        ("clock_rate = 1755000", "clock_rat = 1", r"h100.toml: attributes.clock_rat: the driver knows no such name"),
        ("clock_rate = 1755000", "", r"h100.toml: attributes.clock_rate has no value"),
        ("clock_rate = 1755000", "pci_bus_id = 1", r"attributes.pci_bus_id: follows from"),
        ("shmem_size = 232448", "shmem_size = -1", r"h100.toml: limits.shmem_size: -1"),
        ("shmem_size = 232448", "", r"h100.toml: limits.shmem_size has no value"),
        ('name = "NVIDIA H100 PCIe"', "", r"h100.toml: name must be"),
        ("compute_capability = [9, 0]", "compute_capability = [9]", r"h100.toml: compute_capability must be"),
        ("memory_nbytes = ", "memory_nbytes = -", r"h100.toml: memory_nbytes must be"),
        ('"10de:2331"', '"2331"', r"h100.toml: pci_device must be like"),
        ('extends = "_common"', 'extends = "h100"', r"h100.toml: extends: h100 extends itself"),
        ('extends = "_common"', "colour = 1", r"h100.toml: unknown key colour"),
        ("[attributes]", "[attributes", r"h100.toml: "),
    ],
)
def test_bad_file_names_itself_and_the_key(old, new, message, tmp_path, monkeypatch):
    real = profile._folder()
    for file in real.glob("*.toml"):
        (tmp_path / file.name).write_text(file.read_text())
    text = (tmp_path / "h100.toml").read_text()
    assert old in text
    (tmp_path / "h100.toml").write_text(text.replace(old, new, 1))
    monkeypatch.setattr(profile, "_folder", lambda: tmp_path)
    with pytest.raises(ProfileError, match=message):
        profile.load.__wrapped__("h100")


def test_overlay_needs_a_reason(tmp_path, monkeypatch):
    for file in profile._folder().glob("*.toml"):
        (tmp_path / file.name).write_text(file.read_text())
    (tmp_path / "_simulator.toml").write_text("[attributes]\nmanaged_memory = 0\n")
    monkeypatch.setattr(profile, "_folder", lambda: tmp_path)
    with pytest.raises(ProfileError, match=r"_simulator.toml: attributes.managed_memory must be"):
        profile.load.__wrapped__("h100")


def test_profile_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        profile.load("t4").name = "x"


def test_one_driver_serves_all_devices_of_a_host():
    h100 = profile.load("h100")
    newer = dataclasses.replace(h100, driver_version=13050)
    assert profile.inventory([h100, h100], "host")["driver_version"] == 13000
    assert profile.inventory([h100, newer], "host")["driver_version"] == 13050
