"""Host drivers of other versions: a function that the driver lacks is NOT_SUPPORTED by name; all others work."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT, merged
from tests.daemon.running import Running
from tests.programs.test_programs import assert_ok
from tests.programs.toolchain import Toolchain, cuda13
from tests.relayed import standin
from tests.relayed.conftest import LIBRARIES, WORKER, Relay, start
from tests.shim.client import PRELUDE

OLD, NEW = 12020, 13030
# The first version that has each function, and a call whose arguments are valid as far as they are checked.
LATER = {
    "cuCtxRecordEvent": (12050, "cuda.cuCtxRecordEvent(ctx, event)"),
    "cuGraphConditionalHandleCreate": (
        12030,
        "cuda.cuGraphConditionalHandleCreate(byref(c_uint64()), graph, ctx, 0, 0)",
    ),
    "cuGraphAddDependencies_v2": (12030, "cuda.cuGraphAddDependencies_v2(graph, first, second, data, c_size_t(1))"),
}
CALLS = """
ctx = context()
version = c_int()
ok(cuda.cuDriverGetVersion(byref(version)))
assert version.value == VERSION, version.value
event, graph = new(cuda.cuEventCreate, 2), new(cuda.cuGraphCreate, 0)
made = [new(cuda.cuGraphAddEmptyNode, graph, None, c_size_t(0)) for _ in range(2)]
first, second = ((c_void_p * 1)(node.value) for node in made)
data = (ctypes.c_uint8 * 8)(0, 0, 1)
"""


LAYOUTS = """
PTX = b'''.version 7.0
.target sm_75
.address_size 64
.visible .entry none() { ret; }
.visible .entry some(.param .u8 a, .param .u64 b, .param .align 16 .b8 c[40], .param .u16 d) { ret; }
\\0'''
def layout(ask, kernel):
    offset, nbytes, found = c_size_t(), c_size_t(), []
    while (result := ask(kernel, c_size_t(len(found)), byref(offset), byref(nbytes))) == 0:
        found.append((offset.value, nbytes.value))
    assert result == 1, result
    return found
SOME = [(0, 1), (8, 8), (16, 40), (56, 2)]
for _ in range(3):
    module = new(cuda.cuModuleLoadData, PTX)
    some, none = (new(cuda.cuModuleGetFunction, module, name) for name in (b"some", b"none"))
    assert (layout(cuda.cuFuncGetParamInfo, some), layout(cuda.cuFuncGetParamInfo, none)) == (SOME, [])
    ok(cuda.cuModuleUnload(module))
    library = new(cuda.cuLibraryLoadData, PTX, None, None, 0, None, None, 0)
    kernel = new(cuda.cuLibraryGetKernel, library, b"some")
    assert layout(cuda.cuKernelGetParamInfo, kernel) == SOME
    assert layout(cuda.cuFuncGetParamInfo, new(cuda.cuKernelGetFunction, kernel)) == SOME
    module = new(cuda.cuLibraryGetModule, library)
    assert layout(cuda.cuFuncGetParamInfo, new(cuda.cuModuleGetFunction, module, b"some")) == SOME
    ok(cuda.cuLibraryUnload(library))
"""


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    return cuda13()


@pytest.fixture(scope="module", params=[OLD, NEW], ids=["12.2", "13.3"])
def host(request: pytest.FixtureRequest, driver: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    """A relay whose host has a driver of that version; `env` holds the version as VGT_VERSION."""
    version: int = request.param
    folder = tmp_path_factory.mktemp("host")
    library = standin.build(version, ROOT / f"build/standins/{version}")  # workers do not see /tmp
    config = (
        f"backend = 'cuda'\nlibcuda = '{library}'\n"
        f"worker_command = {[sys.executable, str(WORKER), '--backend', 'cuda']!r}"
    )
    environment = {"VGPU_ENDPOINT": str(driver.endpoint), "LD_LIBRARY_PATH": str(LIBRARIES)}
    running = start(folder, "b", config, environment)
    env = {"VGPU_ENDPOINT": str(running.endpoint), "LD_LIBRARY_PATH": str(LIBRARIES), "VGT_VERSION": str(version)}
    yield Relay(merged(env), True)
    running.end()


def version_of(host: Relay) -> int:
    return int(host.env["VGT_VERSION"])


@pytest.mark.parametrize("name", ["saxpy", "graphs", "symbols", "pools"])
def test_programs_run(host: Relay, toolchain: Toolchain, name: str) -> None:
    """Drivers before 12.4 do not report the layout of a kernel's parameters: vgpu reads it from the image."""
    assert_ok(host([toolchain.build(name)]), name)


def test_layouts_of_parameters(host: Relay) -> None:
    """For a module's function, a library's kernel, that kernel's function, and for modules loaded again."""
    program = PRELUDE + CALLS.partition("event,")[0].replace("VERSION", str(version_of(host))) + LAYOUTS
    done = host([sys.executable, "-c", program])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", LATER)
def test_what_the_driver_lacks_is_not_supported_by_name(host: Relay, name: str) -> None:
    """With a newer driver the backend passes the calls on; whether the simulator implements them does not matter."""
    _, call = LATER[name]
    program = PRELUDE + CALLS.replace("VERSION", str(version_of(host))) + f"print({call})\n"
    done = host([sys.executable, "-c", program])
    assert done.returncode == 0, done.stderr
    lacks = f"{name} is not offered by the cuda backend"
    assert (lacks in done.stderr) == (version_of(host) == OLD), done.stderr
    if version_of(host) == OLD:
        assert done.stdout.strip() == "801"


def test_look_ups_agree_with_the_version(host: Relay) -> None:
    program = (
        PRELUDE
        + CALLS.partition("event,")[0].replace("VERSION", str(version_of(host)))
        + f"""
def look_up(name, version):
    found, status = c_void_p(), c_int()
    return cuda.cuGetProcAddress_v2(name, byref(found), version, c_uint64(0), byref(status)), bool(found.value)
newest = {version_of(host)}
assert look_up(b"cuMemAlloc", newest) == (0, True)
assert look_up(b"cuMemAlloc", newest + 10)[0] == 1, "of a version that the driver is not"
assert look_up(b"cuCtxRecordEvent", newest) == (0, newest >= 12050)
assert look_up({standin.UNHEARD.encode()!r}, newest) == (0, False)
"""
    )
    done = host([sys.executable, "-c", program])
    assert done.returncode == 0, done.stderr
