"""Controls of attacks (docs/security.md): with one defence removed, the attack's own test fails.

Each control runs that test in a copy of the checkout in which one text of the product is replaced. The copies' files
are hard links, and the tests run beside each other, as some of them wait for a time-out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("daemon", "guest", "protocol", "shim", "tests")
TIMEOUT_S = 2 * PATIENCE_S
IN_VAIN_S = 30
AT_ONCE = 5


@dataclass(frozen=True)
class Hole:
    """A defence that is removed, the test that must notice, and what that test says then. `waits`: the test waits, in
    vain, for what the hole keeps from happening."""

    attacks: str
    source: str
    old: str
    new: str
    test: str
    says: str
    waits: bool = False


HOLES = [  # those that wait longest come first
    Hole(
        "AT14",
        "daemon/vgpud/supervision/worker_process.py",
        "if stopped and self._was_stopped:",
        "if False:",
        "tests/daemon/supervision/test_launcher.py::test_AT14_a_worker_that_is_stopped_is_ended",
        "still not true after",
        waits=True,
    ),
    Hole(
        "AT12",
        "daemon/vgpud/serving/conversation.py",
        "asyncio.timeout(self._limits().attach_timeout_s)",
        "asyncio.timeout(None)",
        "tests/daemon/serving/test_server.py::test_a_session_that_says_nothing_is_ended",
        "TimeoutError: timed out",
        waits=True,
    ),
    Hole(
        "AT7",
        "daemon/vgpud/worker/entry.py",
        "if assignment.ledger_fd >= 0:",
        "if False:",
        "tests/daemon/devices/test_ledger.py::test_at7_sessions_share_a_card",
        'assert second("free") <= whole - 60',
    ),
    Hole(  # 100 MiB of the two gibibytes are enough to be noticed
        "AT8",
        "daemon/vgpusim/glue.py",
        "bytearray(variable.initial)",
        'bytearray(variable.initial.ljust(min(variable.nbytes, 100 << 20), b"\\1"))',
        "tests/vgpusim/device/test_glue.py::test_at8_huge_variables_cost_what_is_written",
        "'False'",
    ),
    Hole(
        "AT2",
        "daemon/vgpud/worker/seccomp.py",
        '"fcntl": (8, ',
        '"fcntl": (',
        "tests/daemon/worker/test_seccomp.py::test_refused",
        "test_refused[simulator-AT2: signals to another by a descriptor]",
    ),
    Hole(
        "AT3",
        "daemon/vgpud/worker/cell.py",
        "for capability in range(_CAPABILITY_COUNT):",
        "for capability in range(0):",
        "tests/daemon/supervision/test_launcher.py::test_AT3_a_worker_has_no_capabilities",
        "'CapBnd:': ",
    ),
    Hole(
        "AT4",
        "daemon/vgpud/worker/cell.py",
        "if self._has_mount_namespace and os.path.isdir(_SHM) and PIPE_DIRECTORY not in os.environ:",
        "if False:",
        "tests/daemon/supervision/test_launcher.py"
        "::test_AT4_workers_share_neither_dev_shm_nor_ipc_objects_with_the_host",
        '/root/dev/shm") == []',
    ),
    Hole(
        "AT5 AT22",
        "daemon/vgpud/worker/cell.py",
        "        if self._has_pid_namespace:\n            self._unshare(_NEWPID)",
        "        if False:\n            self._unshare(_NEWPID)",
        "tests/daemon/supervision/test_launcher.py"
        "::test_AT2_AT5_AT22_a_worker_is_the_first_process_of_a_pid_namespace_of_its_own",
        'line.startswith("NSpid")] == ["1"]',
    ),
    Hole(
        "AT16",
        "daemon/vgpusim/ptx/parser.py",
        "if depth > _MAX_DEPTH:",
        "if False:",
        "tests/vgpusim/codegen/test_mutation.py::test_nested_braces",
        "DID NOT RAISE",
    ),
    Hole(
        "AT18",
        "daemon/vgpud/serving/server.py",
        "if isinstance(error, OSError) and error.errno in _EXHAUSTED:",
        "if False:",
        "tests/daemon/serving/test_service.py::test_at18_a_host_without_descriptors_says_so",
        "the host closed the connection",
    ),
    Hole(
        "AT19",
        "daemon/vgpusim/ptx/form.py",
        "if bounds is not None and not",
        "if False and not",
        "tests/vgpusim/codegen/test_mutation.py::test_mutants",
        "InternalError",
    ),
    Hole(
        "AT20",
        "daemon/vgpusim/glue.py",
        "if entry.shared_nbytes > owner.max_shared_nbytes:",
        "if False:",
        "tests/vgpusim/device/test_glue.py::test_at20_static_shared_memory_is_bounded_as_on_a_card",
        "== ['0', '218', '218']",
    ),
    Hole(
        "AT23",
        "guest/vgpu_guest/tls.py",
        "    context.minimum_version = ssl.TLSVersion.TLSv1_3\n    if certificate",
        "    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE\n    if certificate",
        "tests/daemon/tls/test_tls.py::test_a_host_that_cannot_prove_itself_gets_nothing",
        "DID NOT RAISE",
    ),
    Hole(
        "AT23",
        "daemon/vgpud/tls/relay.py",
        "ssl=server_context(certificate, key, client_ca),\n            ssl_handshake_timeout=_HANDSHAKE_TIMEOUT_S,",
        "ssl=None,",
        "tests/daemon/tls/test_tls.py::test_what_is_no_tls_is_let_go",
        "DID NOT RAISE",
    ),
]


def change(folder: Path, source: str, old: str, new: str) -> None:
    """Replace a text in a file of a copy."""
    text = (folder / source).read_text()
    assert text.count(old) == 1, f"{source} has {text.count(old)} times {old!r}: bring the holes up to date"
    (folder / source).unlink()  # the other link is the checkout's
    (folder / source).write_text(text.replace(old, new))


def copied(folder: Path, hole: Hole) -> Path:
    """A copy of the checkout with the hole."""
    for part in PARTS:
        shutil.copytree(ROOT / part, folder / part, copy_function=os.link, symlinks=True)
    for name in ("build", "deploy", "pyproject.toml", "setup.py"):
        (folder / name).symlink_to(ROOT / name)
    change(folder, hole.source, hole.old, hole.new)
    if hole.waits:
        change(folder, "tests/patience.py", f"PATIENCE_S = {PATIENCE_S}", f"PATIENCE_S = {IN_VAIN_S}")
    return folder


def attacked(hole: Hole, place: Path) -> subprocess.CompletedProcess[str]:
    """Run the test of a hole in a copy that has the hole."""
    folder = copied(place, hole)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={folder}/tmp"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [*command, hole.test],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest) -> Iterator[dict[Hole, Future[subprocess.CompletedProcess[str]]]]:
    """What the tests of the selected holes do, all started."""
    place = ROOT / "build" / f"attacks-{os.getpid()}"  # hard links need one file system
    place.mkdir(parents=True)
    items = [item for item in request.session.items if item.path == request.path]
    holes = [item.callspec.params["hole"] for item in items if isinstance(item, pytest.Function)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {hole: pool.submit(attacked, hole, place / str(number)) for number, hole in enumerate(holes)}
        pool.shutdown(cancel_futures=True)
    shutil.rmtree(place)


@pytest.mark.parametrize("hole", HOLES, ids=lambda hole: hole.attacks)
def test_the_attacks_test_notices_the_hole(
    hole: Hole, runs: dict[Hole, Future[subprocess.CompletedProcess[str]]]
) -> None:
    done = runs[hole].result()
    if done.returncode == 0 and "1 skipped" in done.stdout:
        pytest.skip("this kernel gives no namespaces of the kind")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert hole.says in done.stdout, done.stdout
