"""Kernels whose pointers may name more functions than a kernel can hold: a launch begins again with what it needs."""

from __future__ import annotations

from pathlib import Path

from .test_glue import run

# The functions that are called take no parameters: they read their arguments from shared memory, as NCCL's do.
_SETUP = r"""
import struct
from vgpusim.ptx import module as ptx_module
ptx_module.FOLLOWED_NBYTES = 10
def of(name, change):
    return f'''.func {name}() {{ .reg .b32 %a, %t; .reg .b64 %o;
    bar.sync 0; mov.u32 %t, %tid.x; ld.shared.u64 %o, [where]; mad.wide.u32 %o, %t, 4, %o;
    ld.global.u32 %a, [%o]; {change} bar.sync 0; st.global.u32 [%o], %a; ret; }}
'''
def kernel(name, before="", after="", between=""):
    return f'''.visible .entry {name}(.param .u64 data, .param .u32 first, .param .u32 second) {{
    .reg .b32 %t, %i, %v; .reg .b64 %d, %f, %g; .reg .pred %p; mov.u32 %t, %tid.x; ld.param.u64 %d, [data];
    setp.ne.u32 %p, %t, 0; @!%p st.shared.u64 [where], %d; cvta.shared.u64 %g, where;
    {before}
    ld.param.u32 %i, [first]; mov.u64 %f, table; mad.wide.u32 %f, %i, 8, %f; ld.global.u64 %f, [%f];
    {{ form: .callprototype () _ (); call %f, (), form; }} {between}
    ld.param.u32 %i, [second]; mov.u64 %f, table; mad.wide.u32 %f, %i, 8, %f; ld.global.u64 %f, [%f];
    {{ form: .callprototype () _ (); call %f, (), form; }}
    {after} ret; }}
'''
TEXT = (
    ".version 8.0\n.target sm_90\n.address_size 64\n.shared .align 8 .u64 where;\n"
    ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
    + of("nothing", "") + of("twice", "shl.b32 %a, %a, 1;") + of("plus", "add.u32 %a, %a, 1000;")
    + ".func pure() { ret; }\n"
    + ".func (.param .b32 r) other(.param .b32 x) { ret; }\n"
    + ".global .align 8 .u64 table[5] = {nothing, twice, plus, other, pure};\n"
    + kernel("plain")
    + kernel("own", "{ .local .u64 mine; cvta.local.u64 %f, mine; @!%p st.u64 [%g], %d; st.u64 [%f], %d; }")
    + kernel("writes", "@!%p st.u32 [%d], %t;") + kernel("counts", "atom.global.add.u32 %v, [%d], 0;")
    + kernel("between", between="@!%p st.u32 [%d], %t;") + kernel("needs", between="atom.global.add.u32 %v, [%d], 0;")
    + kernel("prints", "{ .param .b64 f; .param .b64 a; .param .b32 r; st.param.b64 [f], %d; st.param.b64 [a], %d; "
             "call (r), vprintf, (f, a); ld.param.b32 %v, [r]; }")
)
# A bulk copy into shared memory changes nothing that others see; one into global memory does.
_LOADS = '''{ .shared .align 16 .b8 tile[64]; .shared .align 8 .b64 arrived; .reg .b32 %x, %bar, %tile;
    .reg .pred %here; mov.u32 %bar, arrived; mov.u32 %tile, tile; mov.u32 %x, %tid.x; setp.ne.u32 %p, %x, 0;
    @!%p mbarrier.init.shared.b64 [%bar], 1; bar.sync 0;
    @!%p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%tile], [%d], 64, [%bar];
    @!%p mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 64;
    again: mbarrier.try_wait.parity.shared.b64 %here, [%bar], 0; @!%here bra again; }'''
TEXT += kernel("loads", before=_LOADS) + kernel("loads_between", between=_LOADS)
TEXT += kernel("stores", before="{ .shared .align 16 .b8 kept[64]; .reg .b32 %kept; mov.u32 %kept, kept; "
               "@!%p cp.async.bulk.global.shared::cta.bulk_group [%d], [%kept], 64; }")
NOTHING, TWICE, PLUS, OTHER, PURE = range(5)
THREADS = 64
def start(device):
    # Make a device current, and load the module there.
    global module, address
    context = b.ffi.new("CUcontext *")
    assert b.table.cuDevicePrimaryCtxRetain(context, device) == 0
    assert b.table.cuCtxSetCurrent(context[0]) == 0
    result, module = b.load(TEXT.encode())
    assert result == 0
    address = b.alloc(4 * THREADS)
def run_kernel(function, first, second):
    b.write(address, struct.pack(f"<{THREADS}I", *range(THREADS)))
    assert b.launch(function, struct.pack("<QII", address, first, second), block=THREADS) == 0
    result = b.table.cuCtxSynchronize()
    return result or list(struct.unpack(f"<{THREADS}I", b.read(address, 4 * THREADS)))
def launch(name, first, second):
    return run_kernel(b.function(module, name), first, second)
start(0)
"""


def test_a_launch_begins_again_with_the_functions_it_needs(tmp_path: Path) -> None:
    """Also after writes to shared and local memory by generic addresses, which no other thread block sees; for kernels
    of a library; on several devices, which share the module's text; in several streams.
    """
    run(
        tmp_path,
        _SETUP
        + """
for device in range(2):
    start(device)
    for name in ("plain", "own"):
        assert launch(name, NOTHING, NOTHING) == list(range(THREADS)), name
        assert launch(name, PURE, TWICE) == [2 * i for i in range(THREADS)], name
        assert launch(name, TWICE, TWICE) == [4 * i for i in range(THREADS)], name
        assert launch(name, PURE, PLUS) == [i + 1000 for i in range(THREADS)], name
        assert launch(name, TWICE, PLUS) == [2 * i + 1000 for i in range(THREADS)], name
    for name in ("loads", "loads_between"):
        assert launch(name, TWICE, PLUS) == [2 * i + 1000 for i in range(THREADS)], name
    assert launch("between", TWICE, PLUS) == [1000, *(2 * i + 1000 for i in range(1, THREADS))]
library, kernel, null = b.ffi.new("CUlibrary *"), b.ffi.new("CUkernel *"), b.ffi.NULL
assert b.table.load_library(library, b.ffi.from_buffer(TEXT.encode() + bytes(1)), len(TEXT) + 1) == 0
assert b.table.cuLibraryGetKernel(kernel, library[0], b"plain") == 0
assert run_kernel(b.ffi.cast("CUfunction", kernel[0]), TWICE, TWICE) == [4 * i for i in range(THREADS)]
places = [b.alloc(4 * THREADS) for _ in range(9)]
plain = b.function(module, "plain")
streams = []
for place in places:
    stream = b.ffi.new("CUstream *")
    assert b.table.cuStreamCreateWithPriority(stream, 1, 0) == 0
    streams.append(stream[0])
    b.write(place, struct.pack(f"<{THREADS}I", *range(THREADS)))
assert b.table.cuCtxSynchronize() == 0
for i, (place, stream) in enumerate(zip(places, streams)):
    data = b.ffi.new("char[]", struct.pack("<QII", place, PURE, i % 3))
    size = b.ffi.new("size_t *", 16)
    extra = b.ffi.new("void *[]", [b.ffi.cast("void *", 1), data, b.ffi.cast("void *", 2), size, null])
    assert b.table.cuLaunchKernel(plain, 1, 1, 1, THREADS, 1, 1, 0, stream, null, extra) == 0
assert b.table.cuCtxSynchronize() == 0
for i, place in enumerate(places):
    expected = [(n, 2 * n, n + 1000)[i % 3] for n in range(THREADS)]
    assert list(struct.unpack(f"<{THREADS}I", b.read(place, 4 * THREADS))) == expected, i
""",
    )


def test_launches_that_fail(tmp_path: Path) -> None:
    """A launch cannot begin again once others could see it, by a write, an atomic, output or a call's results, nor if
    its pointer names no function of the form. Each case has a device of its own.
    """
    out, err = run(
        tmp_path,
        _SETUP
        + """
print(launch("writes", TWICE, TWICE))
for device, (name, first, second) in enumerate(
    [("counts", TWICE, TWICE), ("prints", TWICE, TWICE), ("needs", TWICE, PLUS), ("plain", OTHER, OTHER)], 1
):
    start(device)
    print(launch(name, first, second))
start(5)
b.write(b.variable(module, "table"), struct.pack("<Q", 12345))
print(launch("plain", NOTHING, NOTHING))
""",
    )
    assert out.split() == ["801"] * 4 + ["719"] * 2
    lines = [line for line in err.splitlines() if "ended with error" in line]
    what = "call through a pointer, of more functions than a kernel can hold"
    for line, name in zip(lines, ("writes", "counts", "prints", "needs"), strict=False):
        assert f"kernel {name} ended with error 801: {what}" in line
        assert "after it has changed memory" in line
    assert len(lines) == 6
    assert all("call through a pointer that is not a function of this form" in line for line in lines[4:])


def test_a_bulk_copy_to_global_memory_changes_it(tmp_path: Path) -> None:
    out, err = run(tmp_path, _SETUP + 'print(launch("stores", TWICE, TWICE))')
    assert out.split() == ["801"]
    assert "after it has changed memory" in err


def test_a_null_pointer_is_no_function(tmp_path: Path) -> None:
    """Called at once, or by a launch that has begun again."""
    out, err = run(
        tmp_path,
        _SETUP
        + """
for device, first in ((1, NOTHING), (2, TWICE)):
    start(device)
    b.write(b.variable(module, "table"), struct.pack("<Q", 0))
    print(launch("plain", first, NOTHING))
""",
    )
    assert out.split() == ["719"] * 2
    lines = [line for line in err.splitlines() if "ended with error" in line]
    assert len(lines) == 2
    assert all("719: call through a pointer that is not a function" in line for line in lines)
