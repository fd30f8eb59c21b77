"""A driver that blocks in a call until streams are idle, as NVIDIA's does where it loads a kernel at its first launch:
a host function that the streams wait for still runs and ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT, merged
from tests.daemon.running import Running
from tests.relayed import standin
from tests.relayed.conftest import LIBRARIES, WORKER, Relay, start
from tests.shim.client import PRELUDE

COPY = """
int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t nbytes, void *stream) {
  void *own = dlopen("%s", RTLD_NOW | RTLD_LOCAL);
  int (*wait)(void) = (int (*)(void))dlsym(own, "cuCtxSynchronize");
  int (*copy)(unsigned long long, unsigned long long, size_t, void *);
  copy = (int (*)(unsigned long long, unsigned long long, size_t, void *))dlsym(own, "cuMemcpyDtoDAsync_v2");
  int result = wait();
  return result ? result : copy(to, from, nbytes, stream);
}
"""

# While the first host function runs, the program's thread has bytes to write to the device's copy of a variable on its
# stack, behind the call that blocks; the thread of host functions looks for changes of that copy around each of them.
PROGRAM = (
    PRELUDE
    + r"""
from pathlib import Path
maps = Path("/proc/self/maps").read_text().splitlines()
stack = next(int(line.split("-")[0], 16) for line in maps if line.endswith("[stack]"))
ctx = context()
variable, device = c_uint.from_address(stack), c_uint64()
ok(cuda.cuMemHostRegister_v2(c_void_p(stack), c_size_t(64), 2))
ok(cuda.cuMemHostGetDevicePointer_v2(byref(device), c_void_p(stack), 0))
variable.value = 1
p, q = alloc(64), alloc(64)
stream, other = new(cuda.cuStreamCreate, 1), new(cuda.cuStreamCreate, 1)
ok(cuda.cuCtxSynchronize())
seen, changed = [], threading.Event()
def run(_):
    changed.wait()
    time.sleep(0.2)  # the program's thread begins to wait
    seen.append(variable.value)
function = ctypes.CFUNCTYPE(None, c_void_p)(run)
ok(cuda.cuLaunchHostFunc(stream, function, None))
ok(cuda.cuLaunchHostFunc(stream, function, None))
ok(cuda.cuMemcpyDtoDAsync_v2(p, q, c_size_t(64), other))
variable.value = 5
changed.set()
ok(cuda.cuCtxSynchronize())
assert seen == [5, 5], seen
back = c_uint()
ok(cuda.cuMemcpyDtoH_v2(byref(back), device, c_size_t(4)))
assert back.value == 5, back.value
"""
)


@pytest.fixture(params=[True, False], ids=["shared-memory", "socket"])
def host(request: pytest.FixtureRequest, driver: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    """A relay whose host has that driver."""
    shared: bool = request.param
    folder = ROOT / "build/standins/blocking"  # workers do not see /tmp
    library = standin.build(standin.NEWEST_KNOWN, folder, cuMemcpyDtoDAsync_v2=COPY % standin.OWN)
    config = (
        f"backend = 'cuda'\nlibcuda = '{library}'\nshared_memory = {str(shared).lower()}\n"
        f"worker_command = {[sys.executable, str(WORKER), '--backend', 'cuda']!r}"
    )
    environment = {"VGPU_ENDPOINT": str(driver.endpoint), "LD_LIBRARY_PATH": str(LIBRARIES)}
    running = start(tmp_path_factory.mktemp("host"), "b", config, environment)
    yield Relay(merged({"VGPU_ENDPOINT": str(running.endpoint), "LD_LIBRARY_PATH": str(LIBRARIES)}), shared)
    running.end()


def test_a_host_function_runs_while_bytes_of_a_stack_are_written_behind_a_call_that_blocks(host: Relay) -> None:
    host.python(PROGRAM)
