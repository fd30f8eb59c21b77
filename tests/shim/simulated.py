"""Program text that tests on the simulator share: kernels, and helper functions."""

from collections.abc import Callable
from subprocess import CompletedProcess

Run = Callable[..., CompletedProcess[str]]
Simulate = Callable[..., str]

KERNELS = r'''
PTX = rb"""
.version 7.0
.target sm_70
.address_size 64
.global .align 4 .u32 counter = 7;
.visible .entry scale(.param .u64 data, .param .u32 n, .param .u8 factor, .param .u64 unused) {
  .reg .pred %p<2>; .reg .u32 %r<8>; .reg .u16 %h<2>; .reg .u64 %d<5>;
  ld.param.u64 %d1, [data];
  ld.param.u32 %r1, [n];
  ld.param.u8 %h1, [factor];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra done;
  mul.wide.u32 %d2, %r5, 4;
  add.u64 %d3, %d1, %d2;
  ld.global.u32 %r6, [%d3];
  cvt.u32.u16 %r7, %h1;
  mul.lo.u32 %r6, %r6, %r7;
  st.global.u32 [%d3], %r6;
done:
  ret;
}
.visible .entry count() {
  .reg .u32 %r<2>;
  atom.global.add.u32 %r1, [counter], 1;
  ret;
}
""" + b"\0"
import random, struct
def words(n, seed=3):
    rng = random.Random(seed)
    return [rng.randrange(1 << 24) for _ in range(n)]
def pack(values): return struct.pack(f"<{len(values)}I", *values)
def upload(values):
    p = alloc(4 * len(values))
    ok(cuda.cuMemcpyHtoD_v2(p, pack(values), c_size_t(4 * len(values))))
    return p
def download(p, n):
    back = create_string_buffer(4 * n)
    ok(cuda.cuMemcpyDtoH_v2(back, p, c_size_t(4 * n)))
    return list(struct.unpack(f"<{n}I", back.raw))
def module(): return new(cuda.cuModuleLoadData, PTX)
def function(m, name): return new(cuda.cuModuleGetFunction, m, name)
def params(*values): return (c_void_p * len(values))(*(ctypes.cast(ctypes.pointer(v), c_void_p) for v in values))
def launch(f, n, stream, args):
    return cuda.cuLaunchKernel(f, (n + 63) // 64, 1, 1, 64, 1, 1, 0, stream, args, None)
'''
