"""Images by content, end to end: the real worker, the guest library, and clients that lie (`make build` first)."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from vgpud._gen.api import HEADER
from vgpud.services.image_digest import image_digest

from tests.daemon.running import Running, wait_until
from tests.fuzz.stream import encode
from tests.patience import PATIENCE_S
from tests.shim.client import run

NBYTES = 300_000  # approximate size of each image; the images are PTX with a long comment

PROGRAM = """
names = {names!r}
context()
for name in names:
    text = '.version 7.5\\n.target sm_75\\n.address_size 64\\n//' + name * {nbytes} + '''
    .visible .entry k(.param .u64 p) {{
      .reg .u64 %rd<2>;
      .reg .u32 %r<2>;
      ld.param.u64 %rd1, [p];
      cvta.to.global.u64 %rd1, %rd1;
      mov.u32 %r1, 42;
      st.global.u32 [%rd1], %r1;
      ret;
    }}'''
    module = new(cuda.cuModuleLoadData, text.encode())
    kernel = new(cuda.cuModuleGetFunction, module, b'k')
    p, value = alloc(4), c_uint()
    parameters = (c_void_p * 1)(ctypes.cast(ctypes.pointer(p), c_void_p))
    ok(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, parameters, None))
    ok(cuda.cuMemcpyDtoH_v2(byref(value), p, c_size_t(4)))
    print(value.value)
"""

Start = Callable[..., Running]


def load(endpoint: str, *names: str, nbytes: int = NBYTES, **changes: str) -> None:
    """Run a program that loads an image for each letter, executes its kernel, and checks the result."""
    output = run(endpoint, PROGRAM.format(names=names, nbytes=nbytes), **changes)
    assert output.split() == ["42"] * len(names)


def counters(running: Running) -> dict[str, int]:
    return {name: value for name, value in running.status()["metrics"].items() if name.startswith("image")}


def wait_held(running: Running, count: int) -> None:
    wait_until(lambda: counters(running)["images_held"] == count)


class Wire:
    """A relay between a client and vgpud on unix sockets that counts the bytes that the client sends."""

    def __init__(self, path: Path, target: str) -> None:
        self.endpoint, self.nbytes = f"unix:{path}", 0
        self._target = target.removeprefix("unix:")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                host = socket.socket(socket.AF_UNIX)
                host.connect(self._target)
                threading.Thread(target=self._pass_on, args=(client, host, True), daemon=True).start()
                threading.Thread(target=self._pass_on, args=(host, client, False), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                self.nbytes += len(data) if counted else 0
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
        source.close()

    def take(self) -> int:
        taken, self.nbytes = self.nbytes, 0
        return taken

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()


@pytest.fixture
def host(start: Start, tmp_path: Path) -> Running:
    return start(worker=None, extra=f"cache_dir = '{tmp_path}/cache'\n")


def test_the_second_start_sends_digests_only(start, tmp_path):
    host = start(worker=None, extra=f"cache_dir = '{tmp_path}/cache'\nshared_memory = false\n")
    wire = Wire(tmp_path / "wire.sock", str(host.endpoint))
    load(wire.endpoint, "a", "b")
    assert wire.take() > 2 * NBYTES
    wait_held(host, 2)
    load(wire.endpoint, "a", "b")
    assert wire.take() < 4096
    now = counters(host)
    assert (now["image_hits"], now["image_misses"], now["images_refused"]) == (2, 2, 0)
    assert now["image_nbytes_spared"] == now["image_nbytes_uploaded"] == now["image_nbytes_held"] > 2 * NBYTES
    wire.close()


def test_over_shared_memory_and_beside_each_other(host):
    threads = [threading.Thread(target=load, args=(str(host.endpoint), "a", "b", "c")) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_held(host, 3)
    load(str(host.endpoint), "a", "b", "c")
    now = counters(host)
    assert now["image_hits"] >= 3
    assert now["image_hits"] + now["image_misses"] == 12
    assert now["image_tenants"] == 1


def test_small_images_go_whole(host):
    load(str(host.endpoint), "a", nbytes=1000)
    assert counters(host)["image_misses"] == 0


def test_tenants_do_not_learn_of_each_other(start, tmp_path):
    tokens = {name: name * 4 for name in ("alice", "bobby")}
    tables = "".join(f"[[tokens]]\nname = '{name}'\nvalue = '{value}'\n" for name, value in tokens.items())
    host = start(worker=None, extra=f"cache_dir = '{tmp_path}/cache'\n{tables}", listen=["tcp://127.0.0.1:0"])
    endpoint = str(host.endpoint)
    load(endpoint, "a", VGPU_TOKEN=tokens["alice"])
    wait_held(host, 1)
    load(endpoint, "a", VGPU_TOKEN=tokens["bobby"])
    assert counters(host)["image_hits"] == 0
    wait_held(host, 2)
    for token in tokens.values():
        load(endpoint, "a", VGPU_TOKEN=token)
    assert counters(host)["image_hits"] == 2


def test_a_tcp_address_alone_is_nobody(start, tmp_path):
    host = start(worker=None, extra=f"cache_dir = '{tmp_path}/cache'\n", listen=["tcp://127.0.0.1:0"])
    with host.client() as client:
        assert "images" not in client.hello().features
    load(str(host.endpoint), "a")
    assert counters(host)["image_misses"] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to run a client as another user")
def test_users_are_tenants(start, tmp_path):
    host = start(worker=None, extra="[socket]\nmode = '0666'\n")
    for folder in (tmp_path, *tmp_path.parents):
        if "pytest-of-" in str(folder):  # pytest's folder, closed to other users
            folder.chmod(0o755)
    load(str(host.endpoint), "a")
    wait_held(host, 1)
    known = {}
    for uid in (0, 65534):
        os.seteuid(uid)
        try:
            session = Session(host)
        finally:
            os.seteuid(0)
        with session:
            known[uid] = session.offer(1, IMAGE_A)
    assert known == {0: 1, 65534: 0}


IMAGE_A = (
    ".version 7.5\n.target sm_75\n.address_size 64\n//" + "a" * NBYTES + PROGRAM.split("'''")[1].replace("{{", "{")
).replace("}}", "}").encode() + b"\0"


class Session:
    """A client that sends arbitrary records."""

    def __init__(self, running: Running) -> None:
        client = running.client()
        assert "images" in client.hello().features
        client.attach()
        self.sock = client.detach()
        self.sock.settimeout(PATIENCE_S)
        self.sequence = 0

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, name: str, tail: bytes = b"", **fields: int) -> None:
        self.sequence += 1
        self.sock.sendall(encode(name, self.sequence, 0, fields, tail))

    def reply(self) -> tuple[int, bytes]:
        header = self.sock.recv(HEADER.size, socket.MSG_WAITALL)
        if not header:
            raise ConnectionError("the worker hung up")
        length, _, _, sequence, result = HEADER.unpack(header)
        assert sequence == self.sequence
        return result, self.sock.recv(length - HEADER.size, socket.MSG_WAITALL)

    def offer(self, image: int, data: bytes, digest: bytes | None = None, total: int | None = None) -> int:
        """Offer an image; 1 if the host has it, 0 if not."""
        words = struct.unpack("<4Q", image_digest(data) if digest is None else digest)
        fields = {f"digest{i}": word for i, word in enumerate(words)}
        self.send("vgpuImageOffer", image=image, total=len(data) if total is None else total, **fields)
        result, body = self.reply()
        assert result == 0
        return int.from_bytes(body[:4], "little")

    def write(self, image: int, data: bytes, total: int | None = None, offset: int = 0) -> None:
        total = len(data) if total is None else total
        self.send("vgpuImageWrite", data, image=image, total=total, offset=offset, nbytes=len(data))

    def read(self, image: int, nbytes: int) -> tuple[int, bytes]:
        self.send("vgpuImageRead", image=image, offset=0, nbytes=nbytes)
        return self.reply()


DATA = b"\x7fELF" + bytes(range(256)) * 300


def test_what_is_found_is_what_was_stored(host):
    with Session(host) as first:
        assert first.offer(1, DATA) == 0
        first.write(1, DATA)
        assert first.read(1, len(DATA)) == (0, DATA + bytes(-len(DATA) % 8))
        wait_held(host, 1)
    with Session(host) as second:
        assert second.offer(7, DATA) == 1
        assert second.read(7, len(DATA)) == (0, DATA + bytes(-len(DATA) % 8))
        assert second.offer(8, DATA, total=len(DATA) - 8) == 0  # the same digest, another length


def test_bytes_that_are_not_what_they_are_called_are_not_kept(host):
    other = DATA[:-1] + b"x"
    with Session(host) as liar:
        assert liar.offer(1, DATA) == 0
        liar.write(1, other)
        assert liar.read(1, len(other))[0] == 0  # the liar's own worker has the bytes that it sent
        wait_until(lambda: counters(host)["images_refused"] == 1)
        host.wait_log("image not kept tenant=uid:.* why=.*another digest")
        assert liar.offer(2, DATA) == 0
        assert liar.offer(3, other) == 0
    assert counters(host)["images_held"] == 0


def test_an_image_that_cannot_change_is_not_written_again(host):
    with Session(host) as session:
        session.offer(1, DATA)
        session.write(1, DATA)
        session.write(1, b"x" * 8, total=len(DATA))
        with pytest.raises(ConnectionError):
            session.read(1, 8)
    host.wait_log("image pieces out of order")


def test_a_client_that_dies_in_the_middle_leaves_nothing(host):
    with Session(host) as session:
        session.offer(1, DATA)
        session.write(1, DATA[:4096], total=len(DATA))
    wait_until(lambda: host.status()["sessions"] == [])
    assert counters(host)["images_held"] == 0
    load(str(host.endpoint), "a")


def test_an_id_that_is_taken_ends_the_session(host):
    with Session(host) as session:
        session.offer(1, DATA)
        with pytest.raises(ConnectionError):
            session.offer(1, DATA)
    host.wait_log("image taken")


@pytest.mark.parametrize("total", [0, 1 << 31, (1 << 64) - 1])
def test_sizes_that_cannot_be(host, total):
    with Session(host) as session:
        session.send("vgpuImageOffer", image=1, total=total)
        if total == 1 << 31:  # all that a session may have: reserved, and not written
            assert session.reply()[0] == 0
            session.send("vgpuImageOffer", image=2, total=1)
        assert session.reply()[0] == 2


def test_offers_without_agreement_end_the_session(start, tmp_path):
    host = start(worker=None, extra=f"cache_dir = '{tmp_path}/cache'\n[images]\ntenant_nbytes = 0\n")
    client = host.client()
    assert "images" not in client.hello().features
    client.attach()
    with client.detach() as sock:
        sock.sendall(encode("vgpuImageOffer", 1, 0, {"image": 1, "total": 8}))
        assert sock.recv(1) == b""
    host.wait_log("an image is offered and was not agreed on")
    load(str(host.endpoint), "a")  # without the cache programs work, too


def test_a_full_cache_drops_the_oldest_and_all_work(start, tmp_path):
    bounds = f"[images]\ntenant_nbytes = {2 * NBYTES + 10_000}\n"
    host = start(worker=None, extra=f"cache_dir = '{tmp_path}/cache'\n{bounds}")
    for count, name in enumerate("abc", start=1):
        load(str(host.endpoint), name)
        wait_until(lambda count=count: counters(host)["image_nbytes_uploaded"] >= NBYTES * count)
    wait_held(host, 2)
    load(str(host.endpoint), "b", "c")
    assert counters(host)["image_hits"] == 2
    load(str(host.endpoint), "a")
    assert counters(host)["image_hits"] == 2


def test_an_image_over_the_bound_works_and_is_not_kept(start, tmp_path):
    host = start(worker=None, extra=f"cache_dir = '{tmp_path}/cache'\n[images]\ntenant_nbytes = 100000\n")
    load(str(host.endpoint), "a")
    wait_until(lambda: counters(host)["images_refused"] == 1)
    load(str(host.endpoint), "a")
    assert counters(host)["image_hits"] == 0
