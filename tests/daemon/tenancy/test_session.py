"""The table of sessions and its limits."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from vgpud.config_tables import LimitsConfig
from vgpud.log import get_logger
from vgpud.proto import ClientInfo
from vgpud.tenancy.peer import Peer
from vgpud.tenancy.session import Session, SessionLimitError, SessionTable

ALICE, BOB = Peer("unix", uid=1), Peer("unix", uid=2)


def open_session(table: SessionTable, peer: Peer, **limits: int) -> Session:
    return table.open(peer, ClientInfo(), None, LimitsConfig(**limits), get_logger())


def test_limits_by_client_and_in_all():
    table = SessionTable()
    limits = {"max_sessions": 3, "sessions_per_client": 2}
    first = open_session(table, ALICE, **limits)
    open_session(table, ALICE, **limits)
    with pytest.raises(SessionLimitError, match="all 2 sessions of uid:1 are in use"):
        open_session(table, ALICE, **limits)
    open_session(table, BOB, **limits)
    with pytest.raises(SessionLimitError, match="all 3 sessions are in use"):
        open_session(table, BOB, **limits)
    table.close(first)
    table.close(first)
    assert len(table) == 2
    open_session(table, ALICE, **limits)


def test_AT12_four_clients_cannot_have_all_sessions():
    table = SessionTable()
    limits = {"max_sessions": 64, "sessions_per_client": 16}
    for uid in range(4):
        for _ in range(16):
            with contextlib.suppress(SessionLimitError):
                open_session(table, Peer("unix", uid=uid), **limits)
    assert len(table) == 52
    for uid in range(10, 20):  # clients that come late are served
        open_session(table, Peer("unix", uid=uid), **limits)
    with pytest.raises(SessionLimitError, match="the last sessions are for clients with fewer than 4; uid:1 has 16"):
        open_session(table, Peer("unix", uid=1), **(limits | {"sessions_per_client": 20}))


def test_the_session_that_makes_room_has_no_worker_and_is_of_who_has_most():
    table = SessionTable()
    sessions = [open_session(table, peer) for peer in (ALICE, ALICE, ALICE, BOB)]
    for heard_at, session in enumerate(sessions):
        session.heard_at = heard_at
    sessions[0].attaching = True
    assert table.longest_idle(BOB) is sessions[1]
    assert table.longest_idle(ALICE) is None
    for session in sessions:
        session.attaching = True
    assert table.longest_idle(BOB) is None


def test_epochs_stay_in_range_and_differ_from_their_neighbours():
    table = SessionTable()
    epochs = []
    for _ in range(65536 + 10):
        session = open_session(table, ALICE)
        epochs.append(session.epoch)
        table.close(session)
    assert set(epochs) == set(range(1, 65536))
    assert all(a != b for a, b in itertools.pairwise(epochs))


def test_a_restart_begins_elsewhere():
    assert len({open_session(SessionTable(), ALICE).epoch for _ in range(20)}) > 10


def test_a_tenants_folder_cannot_lead_elsewhere():
    names = [
        Session(1, 1, peer, ClientInfo(), token, get_logger()).tenant
        for peer, token in [
            (Peer("unix", uid=1000), None),
            (Peer("tcp", host="::1"), None),
            (Peer("tcp", host="::1"), "../lab"),
            (Peer("tcp", host="127.0.0.1"), "../lab"),
        ]
    ]
    assert names == ["uid%3A1000", "host%3A%3A%3A1", "token%3A..%2Flab", "token%3A..%2Flab"]
