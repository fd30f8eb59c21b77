"""The cache of images itself: bounds, order of eviction, ownership, and what is refused."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator

import pytest
from vgpud.config_tables import ImagesConfig
from vgpud.services.image_cache import PADDING_NBYTES, ImageCache, ImageRefused, verify
from vgpud.services.image_digest import image_digest
from vgpud.tenancy.tenant import Identified, Tenant

from tests.descriptors import open_descriptors

ALICE, BOB = Tenant("uid:1", None), Tenant("uid:2", None)
F_ADD_SEALS, SEALS = 1033, 0x2 | 0x4 | 0x8


def sealed(data: bytes, seals: int = SEALS, padding: bytes = bytes(PADDING_NBYTES)) -> int:
    fd = os.memfd_create("image", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, data + padding)
    fcntl.fcntl(fd, F_ADD_SEALS, seals)
    return fd


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


class Shelves:
    """A cache, and one session each of two tenants."""

    def __init__(self, **bounds: int) -> None:
        self.cache = ImageCache(ImagesConfig(**bounds))
        for tenant in (ALICE, BOB):
            self.cache.enter(Identified(tenant))

    def put(self, tenant: Tenant, name: str, nbytes: int = 10) -> bool:
        return self.cache.store(tenant, name.encode(), nbytes, sealed(bytes(nbytes)))

    def has(self, tenant: Tenant, name: str, nbytes: int = 10) -> bool:
        return self.cache.find(tenant, name.encode(), nbytes) is not None


@pytest.fixture
def shelves() -> Iterator[type[Shelves]]:
    before = open_descriptors()
    made: list[Shelves] = []

    def make(**bounds: int) -> Shelves:
        made.append(Shelves(**bounds))
        return made[-1]

    yield make
    for one in made:
        one.cache.close()
    assert open_descriptors() == before  # nothing is left open


def test_a_tenant_finds_its_own_and_nobody_elses(shelves):
    s = shelves()
    assert s.put(ALICE, "x")
    assert s.has(ALICE, "x")
    assert not s.has(BOB, "x")
    assert not s.has(ALICE, "x", nbytes=11)  # a digest names bytes of one length
    assert s.put(BOB, "x")
    assert s.cache.image_count == 2


def test_the_least_recently_used_goes_first(shelves):
    s = shelves(tenant_nbytes=30)
    for name in "abc":
        s.put(ALICE, name)
    assert s.has(ALICE, "a")
    s.put(ALICE, "d")
    assert [s.has(ALICE, name) for name in "abcd"] == [True, False, True, True]
    assert s.cache.nbytes == 30


def test_entries_are_bounded_too(shelves):
    s = shelves(tenant_entries=2)
    for name in "abc":
        s.put(ALICE, name)
    assert [s.has(ALICE, name) for name in "abc"] == [False, True, True]


def test_a_tenant_that_floods_pushes_out_its_own(shelves):
    s = shelves(nbytes=50)
    s.put(BOB, "mine")
    for i in range(20):
        s.put(ALICE, f"flood {i}")
    assert s.has(BOB, "mine")
    assert s.cache.nbytes == 50


def test_tenants_together_hold_a_bounded_number(shelves):
    """Each image is an open descriptor of vgpud, and a user can be as many tenants as it creates pid namespaces."""
    s = shelves(entries=10)
    s.put(BOB, "mine")
    for i in range(30):
        tenant = Tenant("uid:1", None, i)
        s.cache.enter(Identified(tenant))
        s.put(tenant, "a")
        s.put(tenant, "b")
        s.cache.leave(tenant)
    assert s.cache.image_count == 10


def test_the_same_image_twice_is_kept_once(shelves):
    s = shelves()
    assert s.put(ALICE, "x")
    assert not s.put(ALICE, "x")
    assert s.cache.nbytes == 10


def test_images_outlive_sessions_for_a_time(shelves):
    s = shelves(keep_s=60.0)
    s.put(ALICE, "x")
    s.cache.leave(ALICE, now_s=100)
    s.cache.leave(BOB, now_s=100)
    assert s.cache.tenant_count == 1  # a tenant without images is forgotten at once
    s.cache.expire(now_s=159)
    s.cache.enter(Identified(ALICE))
    assert s.has(ALICE, "x")
    s.cache.expire(now_s=10_000)  # ALICE has a session: her images are kept
    assert s.has(ALICE, "x")
    s.cache.leave(ALICE, now_s=200)
    s.cache.expire(now_s=260)
    assert (s.cache.tenant_count, s.cache.image_count, s.cache.nbytes) == (0, 0, 0)


def test_images_of_a_name_that_others_may_get_end_with_its_last_session(shelves):
    s = shelves()
    guest = Tenant("cid:7", None)
    for _ in range(2):
        s.cache.enter(Identified(guest, is_lasting=False))
    s.put(guest, "x")
    s.cache.leave(guest)
    assert s.has(guest, "x")
    s.cache.leave(guest)
    assert s.cache.image_count == 0
    s.cache.enter(Identified(guest, is_lasting=False))  # the next VM with that CID
    assert not s.has(guest, "x")


def test_smaller_bounds_take_effect_at_once(shelves):
    s = shelves()
    for name in "abc":
        s.put(ALICE, name)
    s.cache.set_config(ImagesConfig(tenant_nbytes=10))
    assert [s.has(ALICE, name) for name in "abc"] == [False, False, True]
    s.cache.set_config(ImagesConfig(nbytes=0))
    assert s.cache.image_count == 0
    assert not s.cache.is_on


def test_a_namespace_is_held_while_its_name_is_in_use(shelves):
    s = shelves()
    first, second = (os.open("/proc/self/ns/pid", os.O_RDONLY) for _ in range(2))
    container = Tenant("uid:1", None, 4026)
    s.cache.enter(Identified(container, first))
    s.cache.enter(Identified(container, second))
    assert is_open(first)
    assert not is_open(second)
    s.cache.leave(container)
    s.cache.leave(container)
    assert not is_open(first)


def test_too_large_is_refused(shelves):
    cache = shelves(tenant_nbytes=100, nbytes=50).cache
    cache.check_room(50)
    for nbytes in (0, 51, 2**63):
        with pytest.raises(ImageRefused):
            cache.check_room(nbytes)


DATA = b"\x7fELF" + bytes(100_000)


def test_verify_takes_what_is_right():
    fd = sealed(DATA)
    verify(fd, image_digest(DATA), len(DATA))
    os.close(fd)


@pytest.mark.parametrize(
    ("fd", "why"),
    [
        (lambda: sealed(DATA, seals=0), "sealed"),
        (lambda: sealed(DATA, seals=0x2 | 0x4), "sealed"),
        (lambda: sealed(DATA[:-1] + b"x"), "another digest"),
        (lambda: sealed(DATA, padding=bytes(63)), "another size"),
        (lambda: sealed(DATA, padding=b"x" * 64), "zeros"),
        (lambda: os.open("/dev/zero", os.O_RDONLY), "not a memfd"),
        (lambda: os.open(__file__, os.O_RDONLY), "not a memfd"),
    ],
    ids=["unsealed", "writable", "tampered", "short", "unpadded", "a device", "a file"],
)
def test_verify_refuses(fd, why):
    descriptor = fd()
    with pytest.raises(ImageRefused, match=why):
        verify(descriptor, image_digest(DATA), len(DATA))
    os.close(descriptor)
