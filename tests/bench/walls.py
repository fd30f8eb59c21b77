"""What tenants cost each other: many starts at once, idle sessions, a flood of requests, a stopped worker.

    python tests/bench/walls.py starts [COUNT]     # programs that start at the same moment; how many are served
    python tests/bench/walls.py idle [COUNT]       # attached sessions, and the memory of each worker
    python tests/bench/walls.py flood [SESSIONS]   # pings of one user while another user floods vgpud; needs root
    python tests/bench/walls.py stopped            # time from SIGSTOP of a worker until its client is disconnected

docs/security.md has the latest figures.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "daemon"), str(ROOT / "guest")]

from tests.daemon.running import Running, vgpud_with_real_workers, wait_until  # noqa: E402

LIMITS = "[limits]\nsessions_per_client = 4096\nmax_sessions = 4096\npending_per_client = 1024\nspare_workers = 1\n"


@contextlib.contextmanager
def host() -> Iterator[Running]:
    with tempfile.TemporaryDirectory(prefix="vgpu-walls-") as name:
        os.chmod(name, 0o755)
        yield from vgpud_with_real_workers(Path(name), "[socket]\nmode = '0666'\n" + LIMITS)


def forked(body: Callable[[], int]) -> int:
    """Fork a child that exits with what `body` returns; returns the child's pid."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = body()
        finally:
            os._exit(code)
    return pid


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def starts(count: int) -> None:
    """Start `count` processes with the guest library at the same moment; print how many are served."""
    import ctypes

    library = ROOT / "build/guest/libcuda.so.1"

    def program(gate: int, opener: int, endpoint: str) -> int:
        os.close(opener)  # the gate opens when every process has closed this end
        os.environ["VGPU_ENDPOINT"] = endpoint
        cuda = ctypes.CDLL(str(library))
        os.read(gate, 1)
        context, address = ctypes.c_void_p(), ctypes.c_uint64()
        return int(
            cuda.cuInit(0)
            or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
            or cuda.cuCtxSetCurrent(context)
            or cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4096))
        )

    with host() as running:
        gate, opener = os.pipe()
        pids = [forked(lambda: program(gate, opener, str(running.endpoint))) for _ in range(count)]
        os.close(gate)
        time.sleep(1)
        begun = time.monotonic()
        os.close(opener)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        seconds = time.monotonic() - begun
        wait_until(lambda: len(running.status()["spare_workers"]) == running.status()["workers"] == 1, 120)
    others = {code: codes.count(code) for code in sorted(set(codes)) if code}
    print(f"{codes.count(0)} of {count} served in {seconds:.1f} s, load {os.getloadavg()[0]:.0f}; one spare is left")
    if others:
        print(f"other results: {others}")


def idle(count: int) -> None:
    """Attach `count` sessions over the socket alone and leave them idle; print the memory of their workers."""
    with host() as running:
        clients = []
        for _ in range(count):
            clients.append(running.client(timeout_s=120))
            clients[-1].hello()
            clients[-1].attach()
        workers = [session["worker_pid"] for session in running.status()["sessions"]]
        sums: dict[str, list[int]] = {"Pss": [], "Private": [], "Rss": []}
        for pid in workers:
            lines = [line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]]
            kib = {words[0].rstrip(":"): int(words[1]) for words in lines}
            sums["Pss"].append(kib["Pss"])
            sums["Rss"].append(kib["Rss"])
            sums["Private"].append(kib["Private_Clean"] + kib["Private_Dirty"])
        for client in clients:
            client.close()
    told = ", ".join(f"{name} {statistics.mean(values) / 1024:.2f} MiB" for name, values in sums.items())
    print(f"{len(workers)} idle sessions, each worker on average: {told}")


def flood(sessions: int) -> None:
    """Measure pings from uid 65002 before, while and after sessions of uid 65001 flood vgpud with NVML requests."""
    import socket

    def pings(seconds: float) -> list[float]:
        ours, theirs = socket.socketpair()

        def body() -> int:
            os.setuid(65002)
            with running.client(timeout_s=60) as client:
                client.hello()
                until, times = time.monotonic() + seconds, []
                while time.monotonic() < until:
                    times.append(client.ping())
                    time.sleep(0.005)
            theirs.sendall(" ".join(f"{each:.6f}" for each in times).encode())
            return 0

        pid = forked(body)
        theirs.close()
        data = b""
        while piece := ours.recv(65536):
            data += piece
        os.waitpid(pid, 0)
        return [float(word) for word in data.split()]

    def ask() -> int:
        os.setuid(65001)
        clients = [running.client(timeout_s=600) for _ in range(10)]
        for client in clients:
            client.hello()
        while True:
            for client in clients:
                client.nvml("snapshot")

    with host() as running:
        quiet = pings(5)
        pids = [forked(ask) for _ in range(sessions // 10)]
        time.sleep(2)
        loud = pings(10)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        after = pings(5)
    for name, times in (("before", quiet), (f"{sessions} sessions flood", loud), ("after", after)):
        p50, p99 = percentile(times, 0.5) * 1e3, percentile(times, 0.99) * 1e3
        print(f"{name}: {len(times)} pings, p50 {p50:.2f} ms, p99 {p99:.2f} ms, load {os.getloadavg()[0]:.0f}")


def stopped() -> None:
    """Stop a worker while its client waits for data; print the time until the client is disconnected."""
    with host() as running:
        client = running.client(timeout_s=60)
        client.hello()
        client.attach()
        [session] = running.status()["sessions"]
        begun = time.monotonic()
        os.kill(session["worker_pid"], signal.SIGSTOP)
        assert client.detach().recv(1) == b""
        print(f"a stopped worker's client heard of it after {time.monotonic() - begun:.1f} s")


def main() -> None:
    counts = {"starts": 300, "idle": 1000, "flood": 100}
    works: dict[str, Callable[[int], None]] = {"starts": starts, "idle": idle, "flood": flood}
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    if what == "stopped":
        stopped()
    elif what in works:
        works[what](int(sys.argv[2]) if len(sys.argv) > 2 else counts[what])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
