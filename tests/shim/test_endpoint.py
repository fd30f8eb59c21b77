"""NR22: one grammar of endpoints. The library's parser and the tools' parser agree on every line of one table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from vgpu_guest.endpoint import (
    VMADDR_CID_ANY,
    Endpoint,
    EndpointError,
    HybridVsockEndpoint,
    TcpEndpoint,
    UnixEndpoint,
    VsockEndpoint,
    addresses,
    parse_endpoint,
)

from tests.daemon.running import ENVIRONMENT, Running
from tests.shim.client import PRELUDE, environment

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    line.split("\t")
    for line in (ROOT / "protocol/data/endpoints.tsv").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
PYTHONPATH = ENVIRONMENT["PYTHONPATH"]
TEXTS = [text.replace("\\x01", "\x01") for text, _, _ in ROWS]


def described(endpoint: Endpoint) -> str:
    if isinstance(endpoint, UnixEndpoint):
        return f"unix {endpoint.path}"
    if isinstance(endpoint, VsockEndpoint):
        return f"vsock {'any' if endpoint.cid == VMADDR_CID_ANY else endpoint.cid} {endpoint.port}"
    if isinstance(endpoint, HybridVsockEndpoint):
        return f"hybrid-vsock {endpoint.path} {endpoint.port}"
    if endpoint.is_name:
        return f"tcp name {endpoint.host} {endpoint.port}"
    ((_, address),) = addresses(endpoint)
    return f"tcp {address[0]} {endpoint.port}"


def read(text: str, *, listening: bool) -> str:
    try:
        endpoint = parse_endpoint(text, listening=listening)
    except EndpointError as error:
        return "! " + str(error).removeprefix(f"{text!r}: ")
    assert parse_endpoint(str(endpoint), listening=listening) == endpoint
    return described(endpoint)


def test_NR22_what_the_tools_read() -> None:
    assert [(text, read(text, listening=False)) for text in TEXTS] == [
        (text, row[1]) for text, row in zip(TEXTS, ROWS, strict=True)
    ]


def test_NR22_what_a_listener_reads() -> None:
    assert [(text, read(text, listening=True)) for text in TEXTS] == [
        (text, row[2]) for text, row in zip(TEXTS, ROWS, strict=True)
    ]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("endpoint") / "endpoint"
    sources = [
        ROOT / "tests/shim/vgt_endpoint.c",
        ROOT / "shim/base/vgs_log.c",
        *(ROOT / f"shim/connect/vgs_{name}.c" for name in ("endpoint", "socket", "stub")),
    ]
    options = ["-std=gnu11", "-O1", "-Wall", "-Werror", "-fsanitize=undefined,address", "-fno-sanitize-recover=all"]
    folders = [f"-I{ROOT / folder}" for folder in ("shim/base", "shim/connect", "protocol/c", "build/gen")]
    subprocess.run(["gcc", *options, *folders, "-o", output, *sources], check=True)
    return output


def test_NR22_what_the_libraries_read(program: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    result = subprocess.run([program], input="\n".join(TEXTS) + "\n", capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    assert list(zip(TEXTS, result.stdout.splitlines(), strict=True)) == [
        (text, row[1]) for text, row in zip(TEXTS, ROWS, strict=True)
    ]


@pytest.fixture
def vgpud(tmp_path: Path) -> Iterator[Running]:
    config = tmp_path / "vgpud.toml"
    config.write_text(f"listen = ['tcp://localhost:0']\nadmin = ''\ngpus = 't4'\ncache_dir = '{tmp_path}'\n")
    running = Running.start(config, tmp_path, "log")
    running.wait_ready()
    yield running
    running.end()


def test_NR22_a_name_is_resolved_by_all(vgpud: Running, tmp_path: Path) -> None:
    """The library, vgpu and the doctor resolve a name of /etc/hosts, and skip an address where nobody listens."""
    endpoint = vgpud.endpoint
    assert isinstance(endpoint, TcpEndpoint)
    (tmp_path / "hosts").write_text("127.0.0.9 gpuhost.test\n127.0.0.1 gpuhost.test\n")

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        script = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'
        place = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--mount", "--"]
        return subprocess.run(
            [*place, "sh", "-c", script, "sh", str(tmp_path / "hosts"), *command],
            env=environment(f"tcp://gpuhost.test:{endpoint.port}", VGPU_LOG="error", PYTHONPATH=PYTHONPATH),
            capture_output=True,
            text=True,
            timeout=60,
        )

    program = PRELUDE + "ok(cuda.cuInit(0))\nn = c_int()\nok(cuda.cuDeviceGetCount(byref(n)))\nprint(n.value)"
    found = run(sys.executable, "-c", program)
    assert (found.returncode, found.stdout) == (0, "1\n"), found.stderr
    vgpu = [sys.executable, "-c", "import sys; from vgpud.cli.main import vgpu; sys.exit(vgpu())"]
    pinged = run(*vgpu, "ping", "-c", "1")
    assert pinged.returncode == 0, pinged.stderr
    told = run(*vgpu, "doctor", "--json", "--", "true")
    assert json.loads(told.stdout)["endpoint"]["inventory"]["devices"][0]["name"] == "Tesla T4", told.stdout
    run_ = run(*vgpu, "run", "--endpoint", f"tcp://gpuhost.test:{endpoint.port}", "--", sys.executable, "-c", program)
    assert (run_.returncode, run_.stdout) == (0, "1\n"), run_.stderr


def test_NR22_a_name_that_nobody_has_is_said() -> None:
    program = "print(cuda.cuInit(0))"
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program],
        env=environment("tcp://nowhere.invalid:7070"),
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == "802\n"
    assert "cannot reach the daemon at tcp://nowhere.invalid:7070: " in done.stderr
