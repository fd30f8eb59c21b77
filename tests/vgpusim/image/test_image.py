"""Images: the right PTX is picked from nvcc's output, and hostile input raises no error but ImageError."""

import functools
import struct
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st
from vgpusim.image import elf, image, link
from vgpusim.image.compress import MAX_OUTPUT_NBYTES
from vgpusim.image.error import ImageError

DATA = Path(__file__).parent / "data"
PTX = b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k() { ret; }\n"


@functools.cache
def read(name):
    return (DATA / name).read_bytes()


def entry(payload, *, kind=1, sm=75, flags=0x11, compressed=0, uncompressed=0, header=64):
    payload += bytes(-len(payload) % 8)
    fixed = struct.pack(
        "<HHIQIIHHIIIQQQ", kind, 0x101, header, len(payload), compressed, 0, 0, 9, sm, 0, 0, flags, 0, uncompressed
    )
    return fixed + bytes(header - 64) + payload


def container(*entries):
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, sum(map(len, entries))) + b"".join(entries)


def ptx_for(target, version="9.0"):
    return f".version {version}\n.target {target}\n.address_size 64\n".encode()


def target_of(text):
    return next(line.split()[1] for line in text.splitlines() if line.startswith(".target"))


def refused(data, compute_capability=(9, 0)):
    with pytest.raises(ImageError) as caught:
        image.load(data, compute_capability)
    assert "\n" not in str(caught.value)
    return caught.value


# PTX text


@pytest.mark.parametrize(
    "data",
    [PTX, PTX + b"\0", PTX + b"\0\0\0rest", b"\n\n // c .version\n/* .target\n*/\t" + PTX, PTX.replace(b"\n", b"\r\n")],
)
def test_ptx_text(data):
    loaded = image.load(data, (9, 0))
    assert loaded.texts == (data.partition(b"\0")[0].decode(),)
    assert loaded.origin == "PTX text for sm_70"


@pytest.mark.parametrize(
    "data",
    [b"", b"\0", b"garbage", b"version 7.0", b"// .version 7.0 .target sm_70", b"/* " + PTX, b"x" + PTX, b"\0" + PTX],
)
def test_not_an_image(data):
    assert refused(data).result == 200


@pytest.mark.parametrize(
    "data",
    [
        b".version 7.0\n",
        b".version 7.0\n.entry k() {}",
        ptx_for("sm_999"),
        ptx_for("sm_130"),
        ptx_for("compute_70"),
        ptx_for("sm_70x"),
    ],
)
def test_ptx_without_a_possible_target(data):
    assert refused(data).result == 218  # the 580 driver answers 218 for sm_999


@pytest.mark.parametrize(
    ("target", "compute_capability", "runs"),
    [
        ("sm_75", (7, 5), True),
        ("sm_75", (7, 0), False),
        ("sm_30", (9, 0), True),
        ("sm_90", (12, 0), True),
        ("sm_120", (9, 0), False),
        ("sm_100", (9, 0), False),
        ("sm_90a", (9, 0), True),
        ("sm_90a", (10, 0), False),
        ("sm_100f", (10, 0), True),
        ("sm_100f", (10, 3), True),
        ("sm_103f", (10, 0), False),
        ("sm_100f", (12, 0), False),
        ("sm_75, debug", (7, 5), True),
        ("sm_120", (13, 0), True),
        ("sm_130a", (13, 0), True),
        ("sm_120f", (13, 0), True),
        ("sm_120a", (13, 0), False),
    ],
)
def test_which_targets_run_where(target, compute_capability, runs):
    data = ptx_for(target)
    if runs:
        assert len(image.load(data, compute_capability).texts) == 1
    else:
        # As the 580 driver answers for sm_100, sm_100a, sm_100f and sm_120 on an H100: 218 for text, 209 for a fatbin.
        assert refused(data, compute_capability).result == 218
        packed = container(entry(data, sm=int("".join(filter(str.isdigit, target)))))
        assert refused(packed, compute_capability).result == 209


# fat binaries that nvcc made


@pytest.mark.parametrize("name", ["none.fatbin", "speed.fatbin", "size.fatbin"])
@pytest.mark.parametrize(
    ("compute_capability", "target"),
    [((7, 5), "sm_75"), ((8, 0), "sm_80"), ((8, 9), "sm_80"), ((9, 0), "sm_90"), ((12, 1), "sm_120")],
)
def test_highest_ptx_that_runs(name, compute_capability, target):
    loaded = image.load(read(name), compute_capability)
    (text,) = loaded.texts
    assert target_of(text) == target
    assert ".visible .entry axpy(" in text
    assert "\0" not in text
    assert loaded.origin == f"fatbin (ELF sm_86; PTX sm_75, sm_80, sm_90, sm_120): PTX for {target}"


def test_every_compression_gives_the_same_text():
    texts = {image.load(read(f"{mode}.fatbin"), (9, 0)).texts for mode in ("none", "speed", "size")}
    assert len(texts) == 1


def test_too_old_a_device():
    error = refused(read("size.fatbin"), (7, 0))
    assert error.result == 209
    assert str(error).startswith("ELF sm_86; PTX sm_75, sm_80, sm_90, sm_120; no PTX that runs on sm_70: rebuild with")


@pytest.mark.parametrize(
    ("compute_capability", "target"),
    [((9, 0), "sm_90a"), ((10, 0), "sm_100a"), ((10, 3), "sm_100f"), ((12, 0), "sm_90")],
)
def test_specific_architectures(compute_capability, target):
    (text,) = image.load(read("specific.fatbin"), compute_capability).texts
    assert target_of(text) == target


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("nothing.fatbin", "ELF sm_86, sm_120; PTX sm_120"),
        ("lto.fatbin", "LTO-IR sm_90"),
        ("sm_90.cubin", "ELF sm_90"),
    ],
)
def test_no_ptx_for_the_device(name, found):
    error = refused(read(name))
    assert error.result == 209
    assert str(error).startswith(f"{found}; no PTX that runs on sm_90: rebuild with -gencode")


def test_cubin_with_a_section_that_is_not_in_the_file():
    """Cubins of CUDA 11 give the shared-memory section a size and a type of its own, but no bytes in the file."""
    cubin = bytearray(read("sm_90.cubin"))
    (table,) = struct.unpack_from("<Q", cubin, 40)
    struct.pack_into("<Q", cubin, table + 9 * 64 + 32, 1 << 20)
    assert refused(bytes(cubin)).result == 209


def test_containers_back_to_back_are_one_text_each():
    data = read("size.fatbin") + bytes(8) + read("nothing.fatbin") + read("speed.fatbin") + bytes(24)
    assert [target_of(text) for text in image.load(data, (9, 0)).texts] == ["sm_90", "sm_90"]
    assert refused(read("size.fatbin") + b"garbage").result == 200
    assert refused(container()).result == 209


def test_entry_headers_of_other_sizes():
    data = container(entry(PTX, header=136), entry(ptx_for("sm_80"), sm=80, header=112))
    assert target_of(image.load(data, (9, 0)).texts[0]) == "sm_80"


def test_the_text_outranks_the_entry():
    data = container(entry(ptx_for("sm_120"), sm=80), entry(PTX, sm=75))
    assert target_of(image.load(data, (9, 0)).texts[0]) == "sm_70"


# false sizes


def test_every_truncation_is_refused():
    for name in ("size.fatbin", "sm_90.cubin", "specific.fatbin"):
        data = read(name)
        for nbytes in range(len(data)):
            with pytest.raises(ImageError) as caught:
                image.load(data[:nbytes], (9, 0))
            if name.endswith(".fatbin"):
                assert caught.value.result == 200
    linked = link.link([PTX], (9, 0))
    for nbytes in range(len(linked)):
        assert refused(linked[:nbytes]).result == 200


ZSTD = zstandard.compress(PTX)
LZ4 = bytes([0xF0, len(PTX) - 15]) + PTX  # one literal run


@pytest.mark.parametrize(
    "one",
    [
        entry(ZSTD, flags=0x8011, compressed=len(ZSTD), uncompressed=len(PTX) + 1),
        entry(ZSTD, flags=0x8011, compressed=len(ZSTD), uncompressed=len(PTX) - 1),
        entry(ZSTD, flags=0x8011, compressed=len(ZSTD) - 1, uncompressed=len(PTX)),
        entry(ZSTD, flags=0x8011, compressed=0, uncompressed=len(PTX)),
        entry(ZSTD, flags=0x8011, compressed=1 << 20, uncompressed=len(PTX)),
        entry(ZSTD, flags=0x8011, compressed=len(ZSTD), uncompressed=MAX_OUTPUT_NBYTES + 1),
        entry(ZSTD, flags=0x8011, compressed=len(ZSTD), uncompressed=2**64 - 1),
        entry(ZSTD, flags=0xA011, compressed=len(ZSTD), uncompressed=len(PTX)),
        entry(LZ4, flags=0x2011, compressed=len(LZ4), uncompressed=len(PTX) + 1),
        entry(LZ4, flags=0x2011, compressed=len(LZ4), uncompressed=len(PTX) - 1),
        entry(LZ4, flags=0x2011, compressed=len(LZ4), uncompressed=2**63),
        entry(b"not zstd", flags=0x8011, compressed=8, uncompressed=8),
        entry(b"not PTX"),
        entry(PTX)[:16] + bytes(48),
        entry(PTX)[:4] + struct.pack("<I", 63) + entry(PTX)[8:],
        entry(PTX)[:4] + struct.pack("<I", 2**32 - 1) + entry(PTX)[8:],
        entry(PTX)[:8] + struct.pack("<Q", 2**64 - 8) + entry(PTX)[16:],
        entry(PTX)[:40],
    ],
)
def test_lying_entries(one):
    assert refused(container(one)).result == 200


def test_honest_forged_entries():
    for one in (
        entry(ZSTD, flags=0x8011, compressed=len(ZSTD), uncompressed=len(PTX)),
        entry(LZ4, flags=0x2011, compressed=len(LZ4), uncompressed=len(PTX)),
    ):
        assert image.load(container(one), (9, 0)).texts == (PTX.decode(),)


def peak_nbytes(data):
    tracemalloc.start()
    try:
        refused(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_follows_the_output_not_the_claim():
    claim = entry(ZSTD, flags=0x8011, compressed=len(ZSTD), uncompressed=MAX_OUTPUT_NBYTES)
    assert peak_nbytes(container(claim)) < 8 << 20
    claim = entry(LZ4, flags=0x2011, compressed=len(LZ4), uncompressed=MAX_OUTPUT_NBYTES)
    assert peak_nbytes(container(claim)) < 8 << 20
    bomb = zstandard.compress(bytes(64 << 20))
    claim = entry(bomb, flags=0x8011, compressed=len(bomb), uncompressed=1000)
    assert peak_nbytes(container(claim)) < 8 << 20


def test_the_cap_holds_for_all_containers_together(monkeypatch):
    monkeypatch.setattr(image, "MAX_OUTPUT_NBYTES", 2 * len(PTX) + 16)
    one = container(entry(PTX))
    assert len(image.load(one * 2, (9, 0)).texts) == 2
    assert refused(one * 3).result == 200


# hostile input: an ImageError or an image, nothing else

CONTAINERS = ["none.fatbin", "size.fatbin", "speed.fatbin", "specific.fatbin", "sm_90.cubin", "relocatable.obj"]
CODES = {1, 200, 209, 218, 801}


@functools.cache
def linked():
    return link.link([PTX, read("size.fatbin")], (9, 0))


def survives(data):
    for load in (image.load, lambda data, cc: link.link([data], cc)):
        try:
            load(data, (9, 0))
        except ImageError as error:
            result, message = error.result, str(error)
        else:
            continue
        assert result in CODES
        assert "\n" not in message


@given(
    st.binary(max_size=400), st.sampled_from([b"", b"\x50\xed\x55\xba", b"\x7fELF\x02\x01", b".version 7.0\n.target "])
)
def test_random_bytes(data, start):
    survives(start + data)


@settings(max_examples=400)
@given(
    st.sampled_from([*CONTAINERS, None]),
    st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=8),
    st.floats(0, 1),
)
@example("size.fatbin", [(8, 255)], 1.0)
def test_flipped_and_cut(name, flips, part):
    data = bytearray(linked() if name is None else read(name))
    for place, flip in flips:
        data[place % len(data)] ^= flip
    survives(bytes(data[: max(1, int(part * len(data)))]))
    survives(bytes(data))


@given(st.lists(st.tuples(st.integers(0, 95), st.integers(0, 255)), min_size=1, max_size=4))
def test_flipped_headers(flips):
    for name in CONTAINERS:
        data = bytearray(read(name))
        for place, value in flips:
            data[place] = value
        survives(bytes(data))


def test_host_elf_is_no_image():
    assert refused(read("relocatable.obj")).result == 200
    assert elf.read(memoryview(read("relocatable.obj"))).machine == 62
