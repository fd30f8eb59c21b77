"""Program text of tests of waits and copies, which run without spinning, with as much as usual, and with much."""

TOOLS = '''
import random
PTX = rb"""
.version 7.5
.target sm_75
.address_size 64
.visible .entry wild(.param .u64 data) {
  .reg .u64 %rd<2>;
  ld.param.u64 %rd0, [data];
  st.global.u32 [%rd0], 7;
  ret;
}
.visible .entry add_one(.param .u64 data) {
  .reg .u64 %rd<2>; .reg .u32 %r<2>;
  ld.param.u64 %rd0, [data];
  ld.global.u32 %r0, [%rd0];
  add.u32 %r0, %r0, 1;
  st.global.u32 [%rd0], %r0;
  ret;
}
"""
NOT_READY, ILLEGAL_ADDRESS = 600, 700
HOST = ctypes.CFUNCTYPE(None, c_void_p)
def stream(flags=1): return new(cuda.cuStreamCreate, flags)
def event(): return new(cuda.cuEventCreate, 2)
def fill(p, v, n, s=None): ok(cuda.cuMemsetD32Async(p, c_uint(v), c_size_t(n), s))
def kernel(name):
    return new(cuda.cuModuleGetFunction, new(cuda.cuModuleLoadData, PTX), name)
def launch(k, p, s=None):
    value = c_uint64(getattr(p, "value", p))
    args = (c_void_p * 1)(ctypes.addressof(value))
    return cuda.cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, s, args, None)
def put(p, data, s=None): ok(cuda.cuMemcpyHtoDAsync_v2(p, data, c_size_t(len(data)), s))
def get(p, nbytes, s=None):
    back = create_string_buffer(nbytes)
    ok(cuda.cuMemcpyDtoHAsync_v2(back, p, c_size_t(nbytes), s))
    return back.raw
ctx = context()
'''
