"""The tenant of a connection, as the kernel identifies its peer."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator

import pytest
from vgpud.tenancy.peer import Peer, identify
from vgpud.tenancy.tenant import Tenant, identify_tenant

FD_SETSIZE = 1024  # select(2) accepts descriptors below this number only


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """All descriptors below FD_SETSIZE are in use, as in a vgpud of a few hundred sessions."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * FD_SETSIZE)), hard))
    opened = [os.open("/dev/null", os.O_RDONLY)]
    while opened[-1] < FD_SETSIZE:
        opened.append(os.dup(opened[-1]))
    yield
    for fd in opened:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def tenant_of_ourselves() -> Tenant | None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        identified = identify_tenant(ours, identify(ours, None), None)
    if identified is None:
        return None
    identified.close()
    return identified.tenant


def test_a_process_of_this_host_is_its_user():
    assert tenant_of_ourselves() == Tenant(f"uid:{os.getuid()}", None)


@pytest.mark.usefixtures("many_descriptors")
def test_it_is_told_however_many_descriptors_are_open():
    assert tenant_of_ourselves() == Tenant(f"uid:{os.getuid()}", None)


@pytest.mark.parametrize(
    ("peer", "token", "is_lasting"),
    [
        (Peer("vsock", cid=7), None, False),
        (Peer("vsock", cid=7), "lab", True),
        (Peer("vsock", cid=7, vm="seven"), None, True),
        (Peer("tcp", host="192.0.2.1"), "lab", True),
    ],
    ids=["a CID that the next VM may have", "a token", "a VM with a name", "TCP with a token"],
)
def test_whose_name_is_nobody_elses_later(peer, token, is_lasting):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        identified = identify_tenant(ours, peer, token)
    assert identified is not None
    assert identified.is_lasting is is_lasting
