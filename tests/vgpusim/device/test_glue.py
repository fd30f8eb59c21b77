"""The simulator as the executor uses it: real PTX, compiled by vgpusim, through the backend table of vgpud._executor.

Each test runs a process of its own, because the glue can be installed only once in a process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT

PTX = b"""
.version 7.0
.target sm_75
.address_size 64
.global .align 4 .u32 gv = 42;
.global .align 8 .u64 where = gv;
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.global .align 1 .b8 text[10] = {104, 105, 32, 37, 100, 10, 0};

.visible .entry scale(.param .u64 p, .param .u32 n, .param .f32 a)
{
  .reg .pred %q; .reg .b32 %r<6>; .reg .b64 %d<4>; .reg .f32 %f<3>;
  ld.param.u64 %d0, [p];
  ld.param.u32 %r0, [n];
  ld.param.f32 %f0, [a];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  setp.ge.u32 %q, %r4, %r0;
  @%q ret;
  mul.wide.u32 %d1, %r4, 4;
  add.u64 %d2, %d0, %d1;
  ld.global.f32 %f1, [%d2];
  mul.rn.f32 %f2, %f1, %f0;
  st.global.f32 [%d2], %f2;
  ret;
}
.visible .entry bump()
{
  .reg .b32 %r<2>;
  atom.global.add.u32 %r0, [gv], 1;
  ret;
}
.visible .entry poke(.param .u64 p)
{
  .reg .b64 %d<2>; .reg .b32 %r<2>;
  ld.param.u64 %d0, [p];
  mov.u32 %r0, 1;
  st.global.u32 [%d0], %r0;
  ret;
}
"""

SERVER = """
import importlib, sys
from pathlib import Path
from vgpud import _executor
from vgpusim import glue
from vgpusim.profiles import profile
from vgpusim.codegen.cache import DiskCache
from tests.vgpusim.device.test_glue import Backend

profiles = profile.parse_gpus("h100:6")
inventory = {"devices": [p.inventory(i, "test") for i, p in enumerate(profiles)]}
pointer, made = glue.install(_executor.ffi, _executor.lib, profiles, inventory, DiskCache(sys.argv[1]))
b = Backend(int(_executor.ffi.cast("uintptr_t", pointer)))
b.start()
"""


class Backend:
    """struct vgx_backend through its generated header; start() makes a context current."""

    def __init__(self, address: int) -> None:
        from cffi import FFI

        self.ffi = FFI()
        for header in ("vgw_cuda.h", "vgw_array.h", "vgw_graph.h", "vgw_external.h", "../../build/gen/vgx_backend.h"):
            text = re.sub(r"(?m)^#(?:.*\\\n)*.*$", "", (ROOT / "protocol/c" / header).read_text())
            self.ffi.cdef(re.sub(r"_Static_assert\(.*?\);", "", text, flags=re.DOTALL))
        self.table: Any = self.ffi.cast("const struct vgx_backend *", address)

    def start(self) -> None:
        context = self.ffi.new("CUcontext *")
        assert self.table.cuDevicePrimaryCtxRetain(context, 0) == 0
        assert self.table.cuCtxSetCurrent(context[0]) == 0

    def load(self, image: bytes) -> tuple[int, Any]:
        module = self.ffi.new("CUmodule *")
        result = self.table.load_module(module, self.ffi.from_buffer(image), len(image))
        return result, module[0]

    def function(self, module: Any, name: str) -> Any:
        function = self.ffi.new("CUfunction *")
        assert self.table.cuModuleGetFunction(function, module, name.encode()) == 0
        return function[0]

    def alloc(self, nbytes: int) -> int:
        address = self.ffi.new("CUdeviceptr *")
        assert self.table.cuMemAlloc_v2(address, nbytes) == 0
        return int(address[0])

    def variable(self, module: Any, name: str) -> int:
        address = self.ffi.new("CUdeviceptr *")
        assert self.table.cuModuleGetGlobal_v2(address, self.ffi.NULL, module, name.encode()) == 0
        return int(address[0])

    def write(self, address: int, data: bytes) -> None:
        null = self.ffi.NULL
        assert self.table.cuMemcpyHtoDAsync_v2(address, self.ffi.from_buffer(data), len(data), null) == 0

    def read(self, address: int, nbytes: int) -> bytes:
        buffer = self.ffi.new("char[]", nbytes)
        null = self.ffi.NULL
        assert self.table.cuMemcpyDtoHAsync_v2(buffer, address, nbytes, null) == 0
        assert self.table.cuStreamSynchronize(null) == 0
        return bytes(self.ffi.buffer(buffer))

    def launch(self, function: Any, params: bytes, grid: int = 1, block: int = 32) -> int:
        data = self.ffi.new("char[]", params)
        size = self.ffi.new("size_t *", len(params))
        extra = self.ffi.new(
            "void *[]", [self.ffi.cast("void *", 1), data, self.ffi.cast("void *", 2), size, self.ffi.NULL]
        )
        null = self.ffi.NULL
        return int(
            self.table.cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, null, null, extra if params else null)
        )


@pytest.fixture(scope="module", autouse=True)
def executor() -> None:
    """Build the extension that the tests import, unless `make build` already has."""
    if not list((ROOT / "daemon/vgpud").glob("_executor*.so")):
        for step in (["-m", "protocol.gen"], ["daemon/executor/build_ffi.py"]):
            subprocess.run([sys.executable, *step], cwd=ROOT, check=True, timeout=300)


def run(tmp_path: Path, script: str) -> tuple[str, str]:
    code = "import sys; sys.path[:0] = ['daemon', '.']\n" + SERVER + script
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_ptx_runs(tmp_path: Path) -> None:
    out, _ = run(
        tmp_path,
        """
import struct
from tests.vgpusim.device.test_glue import PTX
result, module = b.load(PTX)
assert result == 0
count = 100_000
address = b.alloc(4 * count)
b.write(address, struct.pack(f"<{count}f", *range(count)))
scale = b.function(module, "scale")
for block in (256, 96):
    assert b.launch(scale, struct.pack("<QIf", address, count, 2.0), grid=-(-count // block), block=block) == 0
assert struct.unpack(f"<{count}f", b.read(address, 4 * count)) == tuple(4.0 * i for i in range(count))
gv = b.variable(module, "gv")
assert int.from_bytes(b.read(b.variable(module, "where"), 8), "little") == gv, "an address in an initialiser"
assert b.launch(b.function(module, "bump"), b"", grid=10) == 0
print(int.from_bytes(b.read(gv, 4), "little"))
offset, nbytes = b.ffi.new("size_t *"), b.ffi.new("size_t *")
print([(b.table.cuFuncGetParamInfo(scale, i, offset, nbytes), offset[0], nbytes[0]) for i in range(3)])
assert b.table.cuFuncGetParamInfo(scale, 3, offset, nbytes) == 1
assert b.table.cuModuleUnload(module) == 0
assert b.launch(scale, struct.pack("<QIf", address, count, 2.0)) == 400
""",
    )
    assert out.splitlines() == [str(42 + 320), "[(0, 0, 8), (0, 8, 4), (0, 12, 4)]"]
    assert list(tmp_path.rglob("*.bin")), "compiled kernels are kept on disk"


def test_contexts_share_what_was_read_of_an_image(tmp_path: Path) -> None:
    """NCCL's image of 225 MiB is loaded in the context of each device."""
    run(
        tmp_path,
        """
from tests.vgpusim.device.test_glue import PTX
(_, first), (_, second) = b.load(PTX), b.load(PTX)
one, two = made._images.values()
assert one.module is two.module
assert b.table.cuModuleUnload(first) == 0
assert b.launch(b.function(second, "bump"), b"") == 0
assert int.from_bytes(b.read(b.variable(second, "gv"), 4), "little") == 42 + 32
assert b.table.cuModuleUnload(second) == 0
del one, two
assert not made._texts
""",
    )


def test_what_runs_for_long_is_compiled_again(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
import struct, time
import vgpusim.codegen.compile as compiler
compiler.QUICK_LEAST_NBYTES = compiler.QUICK_NS = 0
_, module = b.load(b'''.version 7.0
.target sm_75
.address_size 64
.visible .entry turn(.param .u64 p) { .reg .b64 %d<3>; .reg .b32 %r<5>; .shared .align 4 .b8 s[256];
ld.param.u64 %d0, [p]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1; mov.u32 %r1, s;
shl.b32 %r2, %r0, 2; add.u32 %r3, %r1, %r2; ld.global.u32 %r4, [%d0]; st.shared.u32 [%r3], %r4; bar.sync 0;
xor.b32 %r2, %r2, 252; add.u32 %r3, %r1, %r2; ld.shared.u32 %r4, [%r3]; st.global.u32 [%d0], %r4; ret; }''')
address, numbers = b.alloc(256), tuple(range(64))
b.write(address, struct.pack("<64I", *numbers))
turn = b.function(module, "turn")
def turned():
    assert b.launch(turn, struct.pack("<Q", address), block=64) == 0
    return struct.unpack("<64I", b.read(address, 256))
assert turned() == numbers[::-1]
(loaded,) = made._loader._loaded.values()
end = time.monotonic() + 60
while loaded.whole is None and time.monotonic() < end:
    time.sleep(0.01)
assert loaded.whole is not None
assert turned() == numbers
assert turned() == numbers[::-1]
assert b.table.cuModuleUnload(module) == 0
assert not made._loader._loaded
""",
    )


def test_wrong_images_answer_as_the_driver_does(tmp_path: Path) -> None:
    out, err = run(
        tmp_path,
        r"""
head = b".version 7.0\n.target sm_70\n.address_size 64\n"
print([b.load(image)[0] for image in (b"garbage", b".version 99.9\n.target sm_70\n.address_size 32\n",
      b".version 7.0\n.target sm_999\n.address_size 64\n", head + b".entry x(){ bogus.u32 %r1; }\n")])
out, data = b.ffi.new("void **"), b.ffi.new("char[]", b"junk")
nbytes, images = b.ffi.new("uint64_t *", 4), b.ffi.new("void *[]", [data])
print(b.table.link(0, images, nbytes, 1, out, nbytes))
""",
    )
    assert out.splitlines() == ["[200, 222, 218, 218]", "200"]
    assert "an image of 7 bytes cannot be loaded (200)" in err


def test_linked_image_loads(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
from tests.vgpusim.device.test_glue import PTX
out, data = b.ffi.new("void **"), b.ffi.new("char[]", PTX)
nbytes, images, linked = b.ffi.new("uint64_t *", len(PTX)), b.ffi.new("void *[]", [data]), b.ffi.new("uint64_t *")
assert b.table.link(0, images, nbytes, 1, out, linked) == 0
image = bytes(b.ffi.buffer(out[0], linked[0]))
assert image.startswith(b"\\x7fELF")
result, module = b.load(image)
assert result == 0
b.function(module, "bump")
""",
    )


def test_compiled_fault_is_illegal_address(tmp_path: Path) -> None:
    out, err = run(
        tmp_path,
        """
import struct
from tests.vgpusim.device.test_glue import PTX
_, module = b.load(PTX)
assert b.launch(b.function(module, "poke"), struct.pack("<Q", 64)) == 0
print(b.table.cuCtxSynchronize(), b.table.cuCtxSynchronize())
""",
    )
    assert out.split() == ["700", "700"]
    line = PTX[: PTX.index(b"st.global.u32 [%d0]")].count(b"\n") + 1
    assert (
        f"kernel poke ended with error 700: write of 4 bytes by `st.global.u32` (PTX line {line}) at address "
        "0x40, block: [0,0,0], thread: [0,0,0]"
    ) in err


_ATTACK = r"""
import ctypes, functools, struct
secret = ctypes.create_string_buffer(8192)
place = ctypes.addressof(secret) + 4095 & -4096
ctypes.memmove(place, b"secret", 6)
ATTACK = b'''.version 7.8
.target sm_80
.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.global .u64 out;
.visible .entry steal(.param .u64 p) {
.reg .u64 %d<3>; ld.param.u64 %d0, [p]; ld.u64 %d1, [%d0]; st.global.u64 [out], %d1; st.u64 [%d0], 0; ret; }
.visible .entry around(.param .u64 p) {
.reg .u64 %d<4>; mov.b64 %d0, p; cvta.param.u64 %d0, %d0; ld.param.u64 %d1, [p]; add.u64 %d0, %d0, %d1;
ld.u64 %d2, [%d0]; st.global.u64 [out], %d2; ret; }
.visible .entry print(.param .u64 p) {
.reg .u64 %d; .reg .u32 %r; ld.param.u64 %d, [p];
{ .param .b64 f; .param .b64 a; .param .b32 r; st.param.b64 [f], %d; st.param.b64 [a], %d;
call (r), vprintf, (f, a); ld.param.b32 %r, [r]; } ret; }'''
_, module = b.load(ATTACK)
def attack(name, value):
    assert b.launch(b.function(module, name), struct.pack("<Q", value), block=1) == 0
    result = b.table.cuCtxSynchronize()
    out = b.read(b.variable(module, "out"), 6) if result == 0 else b""
    print(result, out, ctypes.string_at(place, 6))
"""


def test_at1_a_kernel_reaches_nothing_of_the_process(tmp_path: Path) -> None:
    """A load and a store to memory of the process that runs the kernel: the load ends with 700; nothing is changed."""
    out, err = run(tmp_path, _ATTACK + "attack('steal', place)")
    assert out.strip() == "700 b'' b'secret'"
    assert "error 700: read of 8 bytes by `ld.u64`" in err


@pytest.mark.control("AT1")
def test_at1_the_control_is_vulnerable(tmp_path: Path) -> None:
    """The same attack succeeds on kernels that are compiled without the check."""
    control = "glue.compile_entry = functools.partial(glue.compile_entry, confined=False)\n"
    out, _ = run(tmp_path, _ATTACK + control + "attack('steal', place)")
    assert out.strip() == f"0 b'secret' {bytes(6)}"


@pytest.mark.parametrize(("distance", "result"), [(0, 0), (4096, 700), (-(1 << 17), 700), (1 << 32, 700)])
def test_at1_around_a_parameter(tmp_path: Path, distance: int, result: int) -> None:
    """AT1: an attack through the generic address of a parameter, on the parameter and on the memory around it."""
    out, _ = run(tmp_path, _ATTACK + f"attack('around', {distance} & (1 << 64) - 1)")
    assert out.split()[0] == str(result)


def test_at1_services_read_for_a_kernel_what_it_can_reach(tmp_path: Path) -> None:
    out, err = run(tmp_path, _ATTACK + "attack('print', place)")
    assert out.startswith("700 ")
    assert "is not memory of the device" in err


def test_managed_variables_of_modules_are_the_devices_alone(tmp_path: Path) -> None:
    """Kernels use managed variables; a request for their address is refused: it would promise access by the host."""
    out, _ = run(
        tmp_path,
        r"""
_, module = b.load(b'''.version 7.0\n.target sm_75\n.address_size 64\n
.global .attribute(.managed) .align 4 .u32 both = 5;\n.global .align 4 .u32 other;\n
.visible .entry uses() { .reg .u32 %r; ld.global.u32 %r, [both]; st.global.u32 [other], %r; ret; }
.visible .entry plain() {
.reg .u32 %r; ld.global.u32 %r, [other]; add.u32 %r, %r, 2; st.global.u32 [other], %r; ret; }''')
address = b.ffi.new("CUdeviceptr *", 99)
print(b.table.cuModuleGetGlobal_v2(address, b.ffi.NULL, module, b"both"), address[0])
print(b.launch(b.function(module, "uses"), b""), b.launch(b.function(module, "plain"), b""))
print(b.read(b.variable(module, "other"), 4), b.table.cuCtxSynchronize())
""",
    )
    assert out.splitlines() == ["801 99", "0 0", r"b'\x07\x00\x00\x00' 0"]


def test_at8_huge_variables_cost_what_is_written(tmp_path: Path) -> None:
    out, _ = run(
        tmp_path,
        r"""
import resource
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result, module = b.load(b'''.version 7.0\n.target sm_75\n.address_size 64\n
.global .b8 huge[2147483648];\n.global .align 4 .u32 head[1000000] = {7, 8};\n.visible .entry k() { ret; }''')
print(result, b.read(b.variable(module, "head"), 12))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10 < 64)
result, _ = b.load(b'''.version 7.0\n.target sm_75\n.address_size 64\n
.global .b8 huge[1099511627776];\n.visible .entry k() { ret; }''')
print(result)
""",
    )
    assert out.splitlines() == [r"0 b'\x07\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00'", "True", "2"]


def test_at20_static_shared_memory_is_bounded_as_on_a_card(tmp_path: Path) -> None:
    out, err = run(
        tmp_path,
        r"""
for nbytes in (49152, 53248, 1 << 30):
    _, module = b.load(b'''.version 7.0\n.target sm_75\n.address_size 64\n
.visible .entry k() { .shared .b8 s[%d]; .reg .u64 %%r; mov.u64 %%r, s; st.global.u64 [%%r], %%r; ret; }''' % nbytes)
    function = b.ffi.new("CUfunction *")
    print(b.table.cuModuleGetFunction(function, module, b"k"))
""",
    )
    assert out.split() == ["0", "218", "218"]
    assert "static shared memory" in err


def test_a_fault_within_reach_names_the_thread(tmp_path: Path) -> None:
    """GR7: for a page fault the report names the first lane that made the access, and its line. To find that lane, the
    block runs again with the launch's arguments."""
    out, err = run(
        tmp_path,
        r"""
import struct
_, module = b.load(b'''.version 7.8\n.target sm_80\n.address_size 64\n.file 1 "x.cu"
.visible .entry _Z4pokePii(.param .u64 p, .param .u32 at) { .reg .u64 %d<3>; .reg .u32 %r<5>;
ld.param.u64 %d0, [p]; ld.param.u32 %r0, [at]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 64, %r1;
setp.lt.u32 %q, %r1, 37; add.u32 %r3, %r3, %r0; mul.wide.u32 %d1, %r3, 4; add.u64 %d1, %d1, %d0;
.loc 1 12 3
@!%q st.global.u32 [%d1], %r1; ret; }'''.replace(b".reg .u64", b".reg .pred %q; .reg .u64", 1))
address = b.alloc(2 * 64 * 4 + 4096)
assert b.launch(b.function(module, "_Z4pokePii"), struct.pack("<QI", address, 1024), grid=3, block=64) == 0
print(b.table.cuCtxSynchronize(), hex(address + (1024 + 128 + 37) * 4))
""",
    )
    code, where = out.split()
    assert code == "700"
    assert (
        f"kernel poke(int*, int) ended with error 700: write of 4 bytes by `st.global.u32` (x.cu:12) at address {where}"
        ", block: [2,0,0], thread: [37,0,0], 148 bytes past the end of an allocation of 4608 bytes"
    ) in err
