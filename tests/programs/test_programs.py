"""CUDA programs as users write and compile them. Each checks its result against the CPU and prints `ok` or `FAIL`."""

import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.conftest import run_on
from tests.daemon.running import Running
from tests.programs.toolchain import (
    DEBUG,
    DEFAULT,
    MACHINE_CODE,
    PER_THREAD,
    PTX,
    PTX_90,
    RELOCATABLE,
    RELOCATABLE_DEBUG,
    SHARED,
    Flavour,
    Toolchain,
    cuda13,
)

Run = Callable[..., CompletedProcess[str]]

# The smallest and the largest size of each program: they run quickly on two cores, and none is a multiple of a warp.
SIZES = {
    "arithmetic": (1, 1531),
    "cooperative": (33, 1777),
    "copies": (35, 97),
    "graph_host": (1, 3001),
    "graph_memory": (1, 9001),
    "graphs": (1, 4111),
    "histogram": (1, 20011),
    "host_function": (1, 5003),
    "host_memory": (1, 3001),
    "ipc": (1, 5003),
    "linker": (1, 5003),
    "managed": (4, 10007),
    "managed_variable": (1, 2999),
    "matmul": (1, 71),
    "pinned": (1, 10007),
    "pools": (1, 3001),
    "recursion": (1, 2),
    "reduction": (1, 30011),
    "registered": (2, 300007),
    "saxpy": (1, 50021),
    "streams": (1, 5003),
    "symbols": (33, 3001),
    "textures": (1, 3001),
    "threads": (1, 1009),
    "waiting_blocks": (1, 9),
}

# Programs whose size is fixed.
OTHERS = ("errors", "graph_copies", "graph_nodes", "order", "properties", "unchecked", "waits", "words")


# Programs that need what is NOT_SUPPORTED, and why. The suite fails as soon as one of them works.
MISSING: dict[str, str] = {}


def marked(names: Iterable[str]) -> list[object]:
    return [
        pytest.param(name, marks=pytest.mark.xfail(reason=MISSING[name], strict=True)) if name in MISSING else name
        for name in names
    ]


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    return cuda13()


def assert_ok(result: CompletedProcess[str], name: str) -> None:
    assert result.returncode == 0, f"exit {result.returncode}\n{result.stdout}\n{result.stderr}"
    assert re.search(rf"^ok {name}\b", result.stdout, re.MULTILINE), result.stdout


@pytest.mark.timeout(700)
def test_the_compiler_installs(toolchain: Toolchain) -> None:
    """A test of its own, so that the download does not count towards the time limit of another test."""
    assert (toolchain.root / "bin/nvcc").exists()


@pytest.mark.parametrize("name", marked([*SIZES, *OTHERS]))
def test_program_with_its_own_size(toolchain: Toolchain, h100_run: Run, name: str) -> None:
    assert_ok(h100_run([toolchain.build(name)]), name)


@pytest.mark.parametrize("name", marked(SIZES))
def test_program_with_random_input(toolchain: Toolchain, h100_run: Run, name: str) -> None:
    program = toolchain.build(name)
    smallest, largest = SIZES[name]
    for size in (smallest, smallest + secrets.randbelow(largest - smallest)):
        assert_ok(h100_run([program, secrets.randbelow(2**31), size]), name)


@pytest.mark.parametrize(
    ("name", "flavour"),
    [
        ("saxpy", DEFAULT),
        ("reduction", DEFAULT),
        ("symbols", SHARED),
        ("properties", SHARED),
        ("streams", PER_THREAD),
        ("threads", PER_THREAD),
        ("waits", PER_THREAD),
        ("waits", SHARED),
        ("matmul", DEBUG),
        ("arithmetic", DEBUG),
        ("cooperative", DEBUG),
        ("graphs", SHARED),
        ("graphs", PER_THREAD),
        ("functions", RELOCATABLE),
        ("graph_conditions", RELOCATABLE),
        ("nested", RELOCATABLE),
        ("nested", RELOCATABLE_DEBUG),
        ("functions", RELOCATABLE_DEBUG),
        ("recursion", DEBUG),
    ],
    ids=lambda value: value.name if isinstance(value, Flavour) else value,
)
def test_program_compiled_otherwise(toolchain: Toolchain, h100_run: Run, name: str, flavour: Flavour) -> None:
    library = {"LD_LIBRARY_PATH": str(toolchain.library_folder())} if flavour is SHARED else {}
    assert_ok(h100_run([toolchain.build(name, flavour), 7], env=library), name)


@pytest.mark.parametrize("name", ["clusters", "tensor_copy"])
def test_programs_of_compute_capability_9(toolchain: Toolchain, h100_run: Run, name: str) -> None:
    assert_ok(h100_run([toolchain.build(name, PTX_90), 5]), name)


def test_each_thread_that_fails_an_assertion_has_a_line(toolchain: Toolchain, h100_run: Run) -> None:
    """Case simulator/assert_text.cu: a line has file, line, kernel, block and thread, in NVIDIA's format."""
    result = h100_run([toolchain.build("assertion")])
    assert_ok(result, "assertion")
    place = r"block: \[(\d),0,0\], thread: \[(\d),(\d),0\]"
    line = rf"assertion\.cu:\d+: void below\(int\): {place} Assertion `.* < n` failed\."
    found = re.findall(line, result.stdout + result.stderr)
    assert sorted(found) == [("1", str(x), "7") for x in range(4, 8)]


@pytest.mark.parametrize("name", ["order", "waits"])
def test_program_whose_waits_spin(toolchain: Toolchain, vgpu_run: Run, name: str) -> None:
    """With two processors, waits sleep at once; on larger machines they poll the device's flags first, as here."""
    assert_ok(vgpu_run([toolchain.build(name)], env={"VGPU_SPIN_US": "5000"}), name)


def test_waits_on_a_plain_socket(toolchain: Toolchain, vgpu_run: Run, tmp_path: Path) -> None:
    config = tmp_path / "vgpud.toml"
    config.write_text("shared_memory = false\n")
    assert_ok(vgpu_run([toolchain.build("waits")], options=["--config", str(config)]), "waits")


@pytest.fixture(scope="module")
def sockets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The endpoints, by kind, of a vgpud that shares no memory."""
    folder = tmp_path_factory.mktemp("sockets")
    config = folder / "vgpud.toml"
    config.write_text(
        f"listen = ['unix:{folder}/s', 'tcp://127.0.0.1:0']\ngpus = 'h100'\nadmin = ''\ncache_dir = '{folder}'\n"
        "shared_memory = false\n"
    )
    running = Running.start(config, folder, "log")
    running.wait_ready()
    yield {name: name + rest for name, rest in re.findall(r"'(unix|tcp)(:[^']+)'", running.log)}
    running.end()


@pytest.mark.parametrize(
    ("channel", "name"),
    [("unix", "host_memory"), ("unix", "pinned"), ("tcp", "host_memory"), ("tcp", "registered")],
)
def test_host_memory_of_kernels_on_sockets(
    toolchain: Toolchain, sockets: dict[str, str], channel: str, name: str
) -> None:
    """Kernels access copies of it (shim/cuda/vgs_host_mirror.h)."""
    assert_ok(run_on(sockets[channel])([toolchain.build(name)]), name)


def test_kernel_printf_reaches_stdout_at_each_synchronisation(toolchain: Toolchain, h100_run: Run) -> None:
    result = h100_run([toolchain.build("kernel_printf"), 9, 3])
    assert_ok(result, "kernel_printf")
    before, after = result.stdout.split("synchronised\n")

    def line(i: int, seed: int) -> str:
        kind = "odd" if i % 2 else "even"
        return f"thread {i} of {seed}: {kind} {0.25 * i:5.2f} {chr(ord('a') + i % 26)} {i << 33:#x} %"

    assert sorted(before.splitlines()) == sorted(line(i, 9) for i in range(96))
    assert after.splitlines()[0] == line(0, 10)


def test_machine_code_alone_is_refused_by_a_simulated_device(toolchain: Toolchain, h100_run: Run) -> None:
    """Machine code needs a real GPU: the program must get CUDA's error for this, not a wrong result."""
    result = h100_run([toolchain.build("saxpy", MACHINE_CODE)])
    assert result.returncode == 1
    assert "cudaErrorNoKernelImageForDevice" in result.stdout


@pytest.mark.parametrize("gpu", ["t4", "rtx4090", "a100,t4"])
@pytest.mark.parametrize("name", ["reduction", "properties"])
def test_program_on_other_devices(toolchain: Toolchain, vgpu_run: Run, name: str, gpu: str) -> None:
    assert_ok(vgpu_run([toolchain.build(name)], gpu=gpu), name)


def test_nr05_copies_between_devices(toolchain: Toolchain, vgpu_run: Run) -> None:
    assert_ok(vgpu_run([toolchain.build("peers")], gpu="h100:2"), "peers")


def test_two_devices_reach_each_others_memory(toolchain: Toolchain, vgpu_run: Run) -> None:
    assert_ok(vgpu_run([toolchain.build("two_devices")], gpu="h100:2"), "two_devices")


def test_devices_of_two_kinds_do_not_reach_each_other(toolchain: Toolchain, vgpu_run: Run) -> None:
    done = vgpu_run([toolchain.build("two_devices")], gpu="h100,a100")
    assert "the first does not reach the second" in done.stdout


def test_a_device_older_than_the_program_refuses_it(toolchain: Toolchain, vgpu_run: Run) -> None:
    result = vgpu_run([toolchain.build("saxpy")], gpu="v100")
    assert result.returncode == 1
    assert "cudaErrorNoKernelImageForDevice" in result.stdout


@pytest.mark.gpu
@pytest.mark.parametrize(
    "name", [*SIZES, "errors", "graph_nodes", "kernel_printf", "order", "properties", "unchecked", "waits"]
)
def test_program_on_the_real_driver(toolchain: Toolchain, native_run: Run, name: str) -> None:
    """NVIDIA's own driver passes the programs, so the programs themselves are right."""
    assert_ok(native_run([toolchain.build(name, PTX)]), name)
