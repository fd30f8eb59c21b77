"""A device's memory is promised once: what the shares of tenants at work have together, a device has."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from vgpud.cli.client import Client, RefusedError
from vgpud.log import get_logger
from vgpud.proto import ClientInfo
from vgpud.tenancy.peer import Peer
from vgpud.tenancy.promise import shortage
from vgpud.tenancy.session import Session

from tests.daemon.running import Running, vgpud_with_real_workers, wait_until

GIB = 1 << 30
DEVICES = {"devices": [{"memory_nbytes": 80 * GIB}, {"memory_nbytes": 40 * GIB}]}


def session(uid: int, gib: int | None, devices: tuple[int, ...] | None = None, *, at_work: bool = True) -> Session:
    made = Session(1, 1, Peer("unix", uid=uid), ClientInfo(), None, get_logger(), "s", devices)
    made.memory_limit_nbytes = None if gib is None else gib * GIB
    made.attaching = at_work
    return made


@pytest.mark.parametrize(
    ("new", "others", "why"),
    [
        (session(1, 80, (0,)), [], None),
        (session(1, 30), [session(2, 10)], None),
        (session(1, 31), [session(2, 10)], "device 1 of the host has 40960 MiB, of which 10240"),
        (session(1, 30, (0,)), [session(2, 50), session(3, 1)], "device 0 .* 52224 are promised .* 's' has 30720"),
        (session(1, 30, (0,)), [session(2, 50, (0,))] * 3, None),  # one tenant's sessions share its memory
        (session(1, 80, (0,)), [session(1, 80, (0,))], None),
        (session(1, 80, (0,)), [session(2, 1, (0,), at_work=False), session(3, None), session(4, 40, (1,))], None),
        (session(1, None), [session(2, 80), session(3, 80)], None),
        (session(1, 900, (1,)), [], None),  # more than there is: the whole device
        (session(1, 900, (1,)), [session(2, 1, (1,))], "the share 's' has 40960"),
    ],
)
def test_what_is_promised(new: Session, others: list[Session], why: str | None) -> None:
    found = shortage(new, [new, *others], DEVICES)
    assert found is None if why is None else re.search(why, str(found))


TOKENS = {name: f"{name}-{name}-{name}-{name}-{name}" for name in ("one", "two")}
CONFIG = (
    "gpus = 'h100'\ndefault_share = 's'\n"
    + "".join(f"[[tokens]]\nname = '{name}'\nvalue = '{value}'\n" for name, value in TOKENS.items())
    + f"[[shares]]\nname = 's'\nmemory_mib = {50 << 10}\n[limits]\n"
)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Running]:
    yield from vgpud_with_real_workers(tmp_path, CONFIG)


def attached(host: Running, name: str) -> Client:
    client = host.client(token=TOKENS[name])
    try:
        client.hello()  # NVML's questions need no more, and no memory is promised for them
        client.attach()
    except RefusedError:
        client.close()
        raise
    return client


def test_a_session_beyond_the_devices_memory_is_refused(host: Running) -> None:
    first = attached(host, "one")
    attached(host, "one").close()
    with pytest.raises(RefusedError, match=r"51200 are promised to other tenants.*oversubscribe_memory"):
        attached(host, "two")
    first.close()
    wait_until(lambda: host.admin.get("sessions")["sessions"] == [])
    second = attached(host, "two")

    host.config.write_text(host.config.read_text() + "oversubscribe_memory = true\n")
    host.process.send_signal(signal.SIGHUP)
    host.wait_log("reloaded")
    attached(host, "one").close()
    second.close()
