"""NVIDIA's cuda-core: NVRTC compiles a kernel, to PTX or to the kind that the argument names, and it is launched.

Memory comes from the device's memory pool.
"""

import ctypes
import sys

import numpy as np
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
template <typename T> __global__ void axpy(T *y, const T *x, T a, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < n)
    y[i] = a * x[i] + y[i];
}
"""
N = 10_007

random = np.random.default_rng(7)
device = Device(0)
device.set_current()
stream = device.create_stream()
print("device:", device.name, device.compute_capability)

kind = sys.argv[1] if len(sys.argv) > 1 else "ptx"
options = ProgramOptions(std="c++17", arch="sm_75")
module = Program(SOURCE, "c++", options=options).compile(kind, name_expressions=("axpy<float>", "axpy<double>"))
for instance, dtype, scalar in (
    ("axpy<float>", np.float32, ctypes.c_float),
    ("axpy<double>", np.float64, ctypes.c_double),
):
    kernel = module.get_kernel(instance)
    x, y = random.integers(-100, 100, (2, N)).astype(dtype)
    expected = dtype(3) * x + y
    dx, dy = (device.allocate(x.nbytes, stream=stream) for _ in range(2))
    host = {}
    from cuda.core import LegacyPinnedMemoryResource

    pinned = LegacyPinnedMemoryResource()
    for name, values, target in (("x", x, dx), ("y", y, dy)):
        host[name] = pinned.allocate(values.nbytes)
        np.from_dlpack(host[name]).view(dtype)[:] = values
        target.copy_from(host[name], stream=stream)
    launch(stream, LaunchConfig(grid=(N + 255) // 256, block=256), kernel, dy, dx, scalar(3), ctypes.c_size_t(N))
    dy.copy_to(host["y"], stream=stream)
    stream.sync()
    got = np.from_dlpack(host["y"]).view(dtype)
    assert np.array_equal(got, expected), f"{instance}: {got[:4]} instead of {expected[:4]}"
    print(f"{instance}: {N} values equal to the CPU's")
    for buffer in (dx, dy, *host.values()):
        buffer.close(stream)
print("ok cuda_core")
