"""The control protocol's core: what it accepts, what it refuses, and that it raises no other exceptions."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vgpud.proto import (
    Answer,
    Attach,
    Attached,
    ClientConnection,
    ClientInfo,
    Hello,
    HostConnection,
    LocalProtocolError,
    Nvml,
    Ping,
    Pong,
    Refused,
    RemoteProtocolError,
    Welcome,
)
from vgpud.proto.frame import CLIENT_FRAME_NBYTES, MAGIC
from vgpud.proto.packing import pack_map
from vgpud.proto.state import State

WELCOME = Welcome(1, ("pinned-fd",), 7, {"devices": []})


def feed(connection: HostConnection | ClientConnection, data: bytes, chunk_nbytes: int = 1 << 20):
    """Feed `data` in pieces, as the I/O layer does; return the messages and the bytes left over."""
    messages = []
    while data and connection.nbytes_wanted:
        piece = data[: min(chunk_nbytes, connection.nbytes_wanted)]
        data = data[len(piece) :]
        message = connection.receive(piece)
        if message is not None:
            messages.append(message)
    return messages, data


def framed(fields: object) -> bytes:
    body = pack_map(fields)  # type: ignore[arg-type]
    return struct.pack("<I", len(body)) + body


def test_a_whole_session_in_both_directions():
    host, client = HostConnection(), ClientConnection()
    hello = Hello(client=ClientInfo(5, "python", "test"), token="secret", pci=("0000:00:05.0",))
    assert feed(host, client.send(hello)) == ([hello], b"")
    assert feed(client, host.send(WELCOME)) == ([WELCOME], b"")
    assert feed(host, client.send(Ping())) == ([Ping()], b"")
    assert feed(client, host.send(Pong())) == ([Pong()], b"")
    question, answer = Nvml("nvmlDeviceGetClock", 2, (0, -1, 2**40)), Answer(0, ["text", 7, b"struct", [b"item"]])
    assert feed(host, client.send(question)) == ([question], b"")
    assert feed(client, host.send(answer)) == ([answer], b"")
    assert feed(host, client.send(Attach())) == ([Attach()], b"")
    assert feed(client, host.send(Attached(3))) == ([Attached(3)], b"")
    assert host.nbytes_wanted == client.nbytes_wanted == 0
    assert host.state is client.state is State.STREAMING


@pytest.mark.parametrize("chunk_nbytes", [1, 2, 3, 1000])
def test_it_never_wants_a_byte_after_attach(chunk_nbytes):
    host, client = HostConnection(), ClientConnection()
    feed(host, client.send(Hello()), chunk_nbytes)
    feed(client, host.send(WELCOME))
    messages, rest = feed(host, client.send(Attach()) + b"commands", chunk_nbytes)
    assert messages == [Attach()]
    assert rest == b"commands"
    with pytest.raises(LocalProtocolError):
        host.receive(b"c")


def test_nothing_is_read_while_an_answer_is_due():
    host = HostConnection()
    messages, rest = feed(host, ClientConnection().send(Hello()) + framed({"type": "ping"}))
    assert messages == [Hello()]
    assert rest == framed({"type": "ping"})
    host.send(WELCOME)
    assert feed(host, rest) == ([Ping()], b"")


@pytest.mark.parametrize("message", [Pong(), Attached(1), WELCOME])
def test_an_answer_that_is_not_due_is_our_own_error(message):
    with pytest.raises(LocalProtocolError):
        HostConnection().send(message)


def test_a_client_cannot_attach_before_it_was_welcomed():
    with pytest.raises(LocalProtocolError):
        ClientConnection().send(Attach())


def test_a_violation_ends_reading_and_may_be_answered_once():
    host = HostConnection()
    with pytest.raises(RemoteProtocolError):
        feed(host, MAGIC + b"\xff\xff\xff\xff")
    assert host.nbytes_wanted == 0
    host.send(Refused(1, "no"))
    with pytest.raises(LocalProtocolError):
        host.send(Refused(1, "no"))


def test_wrong_magic_is_noticed_at_the_first_wrong_byte():
    with pytest.raises(RemoteProtocolError) as error:
        HostConnection().receive(b"VX")
    assert not error.value.speaks_vgpu


def test_unknown_keys_are_ignored():
    host = HostConnection()
    [hello], _ = feed(host, MAGIC + framed({"type": "hello", "versions": [1, 1], "later": {"a": [1]}}))
    assert hello == Hello(features=())


@pytest.mark.parametrize(
    "fields",
    [
        {"versions": [1]},
        {"versions": [0, 1]},
        {"versions": [True, 1]},
        {"versions": [1, 2**40]},
        {"versions": "11"},
        {"versions": [1, 1], "features": "x"},
        {"versions": [1, 1], "features": [1]},
        {"versions": [1, 1], "features": ["x"] * 65},
        {"versions": [1, 1], "token": 7},
        {"versions": [1, 1], "token": "x" * 5000},
        {"versions": [1, 1], "pci": "0000:00:05.0"},
        {"versions": [1, 1], "pci": ["0000:00:05.0"] * 65},
        {"versions": [1, 1], "pci": ["0000:00:20.0"]},
        {"versions": [1, 1], "pci": ["0000:00:05.0\n"]},
    ],
)
def test_malformed_hello(fields):
    with pytest.raises(RemoteProtocolError):
        feed(HostConnection(), MAGIC + framed({"type": "hello"} | fields))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"call": 7, "device": 0},
        {"call": "x" * 65, "device": 0},
        {"call": "x", "device": "0"},
        {"call": "x", "device": -2},
        {"call": "x", "device": 64},
        {"call": "x", "device": 0, "arguments": 7},
        {"call": "x", "device": 0, "arguments": [0.5]},
        {"call": "x", "device": 0, "arguments": [True]},
        {"call": "x", "device": 0, "arguments": [0] * 9},
    ],
)
def test_malformed_nvml_question(fields):
    host = HostConnection()
    feed(host, ClientConnection().send(Hello()))
    host.send(WELCOME)
    with pytest.raises(RemoteProtocolError):
        feed(host, framed({"type": "nvml"} | fields))


def test_what_a_client_says_of_itself_is_cut_not_believed():
    fields = {"type": "hello", "versions": [1, 1], "client": {"pid": -5, "comm": "x" * 1000, "library": 3}}
    [hello], _ = feed(HostConnection(), MAGIC + framed(fields))
    assert hello.client == ClientInfo(0, "x" * 64, "")


def test_a_token_does_not_show_in_a_repr():
    assert "secret" not in repr(Hello(token="secret"))


def test_frames_up_to_the_cap_pass_and_no_longer():
    padding = CLIENT_FRAME_NBYTES - len(pack_map({"type": "hello", "versions": [1, 1], "pad": b"x" * 60_000})) + 60_000
    frame = framed({"type": "hello", "versions": [1, 1], "pad": b"x" * padding})
    assert len(frame) == CLIENT_FRAME_NBYTES + 4
    assert feed(HostConnection(), MAGIC + frame)[0] == [Hello(features=())]
    with pytest.raises(RemoteProtocolError):
        feed(HostConnection(), MAGIC + framed({"type": "hello", "versions": [1, 1], "pad": b"x" * (padding + 1)}))


JSONISH = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers(0, 9), inner, max_size=4),
    max_leaves=12,
)
MAPS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["hello", "attach", "ping", "welcome", "refused", "attached", "pong"]) | JSONISH,
        "versions": st.just([1, 1]) | JSONISH,
        "features": st.lists(st.text(max_size=3), max_size=3) | JSONISH,
        "client": JSONISH,
        "token": JSONISH,
        "pci": JSONISH,
        "inventory": JSONISH,
        "caps": st.just({"record_nbytes": 4096}) | JSONISH,
        "epoch": st.just(1) | JSONISH,
        "code": JSONISH,
        "reason": JSONISH,
        "worker": JSONISH,
        "version": st.just(1) | JSONISH,
    },
)
STREAMS = st.one_of(
    st.binary(max_size=400),
    st.binary(max_size=200).map(lambda body: struct.pack("<I", len(body)) + body),
    st.lists(MAPS.map(framed) | st.binary(max_size=8), max_size=4).map(b"".join),
)


def drive(connection, data: bytes, cuts: list[int], answer) -> None:
    """Feed a hostile stream in any pieces: only RemoteProtocolError may come out, and reading ends after it."""
    index, error = 0, None
    while data and connection.nbytes_wanted:
        size = min(cuts[index % len(cuts)], connection.nbytes_wanted)
        index += 1
        piece, data = data[:size], data[size:]
        try:
            message = connection.receive(piece)
        except RemoteProtocolError as raised:
            error = raised
            break
        if message is not None:
            answer(message)
    if error is not None:
        assert str(error).isprintable()
        assert connection.nbytes_wanted == 0


@given(STREAMS, st.lists(st.integers(1, 50), min_size=1, max_size=5), st.booleans())
@settings(max_examples=400, deadline=None)
def test_any_bytes_from_a_client_raise_only_remote_errors(data, cuts, with_magic):
    host = HostConnection()

    def answer(message) -> None:
        if isinstance(message, Hello):
            host.send(WELCOME)
        elif isinstance(message, Ping):
            host.send(Pong())
        else:
            assert isinstance(message, Attach)
            assert host.nbytes_wanted == 0

    drive(host, MAGIC + data if with_magic else data, cuts, answer)


@given(STREAMS, st.lists(st.integers(1, 50), min_size=1, max_size=5))
@settings(max_examples=200, deadline=None)
def test_any_bytes_from_a_host_raise_only_remote_errors(data, cuts):
    client = ClientConnection()
    client.send(Hello())

    def answer(message) -> None:
        if isinstance(message, Welcome):
            client.send(Attach())

    drive(client, data, cuts, answer)


@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a", b"\xdd\x7f\xff\xff\xff", b"\xdf\x7f\xff\xff\xff", b"\xc7"])
def test_deep_and_huge_structures_are_refused_cheaply(opening):
    body = (opening * 65536)[:65536]
    with pytest.raises(RemoteProtocolError):
        feed(HostConnection(), MAGIC + struct.pack("<I", len(body)) + body)
