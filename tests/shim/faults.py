"""Programs that cause errors of a GPU; `Host` runs a program on any backend (simulated, relayed, a real card)."""

from __future__ import annotations

import os
import subprocess
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

from tests.patience import PATIENCE_S
from tests.shim.client import PRELUDE, PYTHON

TOOLS = '''
PTX = rb"""
.version 7.5
.target sm_75
.address_size 64
.extern .func __assertfail (.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
.global .align 1 .b8 text[6] = {120, 32, 62, 32, 48, 0};
.visible .entry add_one(.param .u64 data) {
  .reg .u64 %rd<2>; .reg .u32 %r<2>;
  ld.param.u64 %rd0, [data];
  ld.global.u32 %r0, [%rd0];
  add.u32 %r0, %r0, 1;
  st.global.u32 [%rd0], %r0;
  ret;
}
.visible .entry wild(.param .u64 data) {
  .reg .u64 %rd<2>;
  mov.u64 %rd0, 0x100000000000000;
  st.global.u32 [%rd0], 7;
  ret;
}
.visible .entry crooked(.param .u64 data) {
  .reg .u64 %rd<2>;
  ld.param.u64 %rd0, [data];
  add.u64 %rd0, %rd0, 2;
  st.global.u32 [%rd0], 7;
  ret;
}
.visible .entry trapped(.param .u64 data) {
  trap;
}
.visible .entry asserted(.param .u64 data) {
  .reg .u64 %rd<2>;
  mov.u64 %rd0, text;
  cvta.global.u64 %rd1, %rd0;
  { .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 n; .param .b64 s;
    st.param.b64 [m], %rd1; st.param.b64 [f], %rd1; st.param.b32 [l], 7; st.param.b64 [n], %rd1; st.param.b64 [s], 1;
    call.uni __assertfail, (m, f, l, n, s); }
  ret;
}
.visible .entry endless(.param .u64 data) {
  .reg .u32 %r<2>;
  mov.u32 %r0, 0;
again:
  add.u32 %r0, %r0, 1;
  bra again;
}
"""
ctx = context()
module = new(cuda.cuModuleLoadData, PTX)
p = alloc(1 << 20)
ok(cuda.cuMemsetD32_v2(p, 0, c_size_t(1 << 18)))
s = new(cuda.cuStreamCreate, 1)
def kernel(name): return new(cuda.cuModuleGetFunction, module, name.encode())
def launch(k, stream=None):
    args = (c_void_p * 1)(ctypes.addressof(p))
    return cuda.cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, stream, args, None)
def value(q=None):
    back = c_uint()
    ok(cuda.cuMemcpyDtoH_v2(byref(back), q or p, c_size_t(4)))
    return back.value
def computes():
    one, before = kernel("add_one"), value()
    for i in range(20): ok(launch(one, s))
    ok(cuda.cuStreamSynchronize(s))
    after = value()
    assert after == before + 20, (before, after)
def said(line):
    print(line, flush=True)
'''

# The neighbour of a faulting client: computes without a break until its stdin ends, and checks every result.
NEIGHBOUR = """
one, count = kernel("add_one"), 0
done = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
data = os.urandom(3 << 20)
big = alloc(len(data))
while not done.is_set() or count < 200:
    for stream in (s, None):
        ok(launch(one, stream))
        ok(cuda.cuStreamSynchronize(stream))
    count += 2
    if count % 20 == 0:
        assert value() == count, (value(), count)
        ok(cuda.cuMemcpyHtoD_v2(big, data, c_size_t(len(data))))
        back = create_string_buffer(len(data))
        ok(cuda.cuMemcpyDtoH_v2(back, big, c_size_t(len(data))))
        assert back.raw == data
    if count == 20: said("computing")
assert value() == count
said("right to the end")
"""

# Causes one fault, after which every call must return the same error at once. Then the program waits in that state.
FAULT = """
one, bad = kernel("add_one"), kernel({kernel!r})
ok(launch(one, s))
ok(cuda.cuStreamSynchronize(s))
ok(launch(bad, s))
assert cuda.cuStreamSynchronize(s) == {code}
q, back = c_uint64(), create_string_buffer(64)
again = dict(
    sync=lambda: cuda.cuCtxSynchronize(),
    launch=lambda: launch(one, s) or cuda.cuStreamSynchronize(s),
    alloc=lambda: cuda.cuMemAlloc_v2(byref(q), c_size_t(64)),
    download=lambda: cuda.cuMemcpyDtoH_v2(back, p, c_size_t(64)),
    upload=lambda: cuda.cuMemcpyHtoD_v2(p, back, c_size_t(64)),
    query=lambda: cuda.cuStreamQuery(s),
    other=lambda: launch(one, None) or cuda.cuStreamSynchronize(None),
)
for turn in range(3):
    results = {{name: call() for name, call in again.items()}}
    assert set(results.values()) == {{{code}}}, results
assert q.value == 0 and back.raw == bytes(64)
failed = []
def thread():
    failed.append(cuda.cuCtxSetCurrent(ctx) or cuda.cuCtxSynchronize())
t = threading.Thread(target=thread); t.start(); t.join()
assert failed == [{code}], failed
said("faulted")
sys.stdin.read()
"""

FAULTS = {"wild": 700, "crooked": 716, "trapped": 719, "asserted": 710}

FULL = """
def fill(make, give_back, sizes):
    '''Everything there is, in ever smaller pieces; then one more is refused, and nothing else is wrong.'''
    held = []
    for size in sizes:
        while True:
            handle = c_uint64(0xdead)
            result = make(handle, size)
            if result:
                break
            held.append(handle)
            assert len(held) < 2000
        assert result == 2, result
        assert handle.value == 0xdead
        computes()
    assert held
    for handle in held:
        ok(give_back(handle))
    ok(cuda.cuCtxSynchronize())
    handle = c_uint64()
    ok(make(handle, sizes[0]))
    ok(give_back(handle))
    computes()
GIB = 1 << 30
"""

OUT_OF_MEMORY = {
    "allocations": """
        fill(lambda h, n: cuda.cuMemAlloc_v2(byref(h), c_size_t(n)), cuda.cuMemFree_v2, [8 * GIB, GIB, GIB >> 4])
        q = c_uint64()
        assert cuda.cuMemAlloc_v2(byref(q), c_size_t(1 << 62)) == 2
        pitch = c_size_t()
        assert cuda.cuMemAllocPitch_v2(byref(q), byref(pitch), c_size_t(1 << 40), c_size_t(1 << 20), 4) == 2
        computes()
    """,
    "a pool": """
        def make(h, n):
            return cuda.cuMemAllocAsync(byref(h), c_size_t(n), s)
        def give_back(h):
            return cuda.cuMemFreeAsync(h, s)
        fill(make, give_back, [8 * GIB, GIB])
    """,
    "physical memory": """
        class Prop(ctypes.Structure):
            _fields_ = [("type", c_int), ("handles", c_int), ("location", c_int), ("id", c_int), ("meta", c_void_p),
                        ("flags", ctypes.c_ubyte * 8)]
        prop = Prop(type=1, location=1)
        fill(lambda h, n: cuda.cuMemCreate(byref(h), c_size_t(n), byref(prop), c_uint64(0)), cuda.cuMemRelease,
             [8 * GIB, GIB])
    """,
    "pinned memory": """
        p_host = c_void_p(0xdead)
        assert cuda.cuMemAllocHost_v2(byref(p_host), c_size_t(1 << 46)) == 2
        assert p_host.value == 0xdead
        computes()
        ok(cuda.cuMemAllocHost_v2(byref(p_host), c_size_t(1 << 20)))
        ok(cuda.cuMemFreeHost(p_host))
    """,
}


@dataclass(frozen=True)
class Host:
    """Runs programs; `env` selects the vgpud they use."""

    env: dict[str, str]

    def start(self, program: str) -> subprocess.Popen[str]:
        """Run PRELUDE, TOOLS and the program's text; the program's stdin and stdout are pipes."""
        text = PRELUDE + TOOLS + textwrap.dedent(program)
        return subprocess.Popen(
            [*PYTHON, "-c", text],
            env={**os.environ, **self.env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def finish(process: subprocess.Popen[str]) -> str:
    """Close the process's stdin and wait for its end; returns the rest of its output."""
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    assert process.returncode == 0, (out, err)
    return out


def hear(process: subprocess.Popen[str], line: str) -> None:
    """Read the process's output up to `line`; if the process ends first, fail with the rest of its output."""
    assert process.stdout
    for heard in process.stdout:
        if heard == line + "\n":
            return
    raise AssertionError(process.communicate())


def faults_beside_a_neighbour(host: Host, kernels: Iterable[str]) -> None:
    """After a client's fault, a client in the middle of its work continues, and a later client starts normally."""
    neighbour = host.start(NEIGHBOUR)
    hear(neighbour, "computing")
    faulty = [host.start(FAULT.format(kernel=kernel, code=FAULTS[kernel])) for kernel in kernels]
    for process in faulty:
        hear(process, "faulted")
    late = host.start(NEIGHBOUR)
    hear(late, "computing")
    for process in (neighbour, late):
        assert finish(process).endswith("right to the end\n")
    for process in faulty:
        finish(process)


def an_endless_kernel_goes_with_its_client(host: Host) -> None:
    endless = host.start("ok(launch(kernel('endless'), s)); said('running'); cuda.cuStreamSynchronize(s)")
    hear(endless, "running")
    neighbour = host.start(NEIGHBOUR)
    hear(neighbour, "computing")
    endless.kill()
    endless.communicate()
    assert finish(neighbour).endswith("right to the end\n")


def a_full_gpu_is_an_error_that_passes(host: Host, what: Iterable[str]) -> None:
    finish(host.start(FULL + "".join(textwrap.dedent(OUT_OF_MEMORY[kind]) for kind in what)))
