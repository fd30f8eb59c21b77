"""NVRTC and nvJitLink: kernels are compiled, linked and run; the expected results follow from the kernels' sources."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache

import numpy as np

from . import device
from .device import Array, Call, Library, Pair, Size

TEMPLATE = r"""
template <typename T, int N> __device__ T power(T x) { return N == 0 ? T(1) : x * power<T, N - 1>(x); }
template <> __device__ float power<float, 0>(float) { return 1; }
extern "C" __global__ void k(float *out, int n)
{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    out[i] = power<float, 3>(float(i)) + SHIFT;
}
"""
SHARED = r"""
extern "C" __global__ void k(float *out, int n)
{
  __shared__ float tile[128];
  tile[threadIdx.x] = threadIdx.x;
  __syncthreads();
  float sum = tile[127 - threadIdx.x];
  for (int offset = 16; offset; offset /= 2)
    sum += __shfl_xor_sync(~0u, sum, offset);
  if (threadIdx.x < n)
    out[threadIdx.x] = sum + SHIFT;
}
"""
DOUBLE = r"""
extern "C" __global__ void k(double *out, int n)
{
  int i = threadIdx.x;
  if (i < n)
    out[i] = sqrt(double(i)) + sin(double(i)) + SHIFT;
}
"""
CALLER = r"""
extern "C" __device__ float callee(float);
extern "C" __global__ void k(float *out, int n)
{
  int i = threadIdx.x;
  if (i < n)
    out[i] = callee(i);
}
"""
CALLEE = 'extern "C" __device__ float callee(float x) { return 2 * x + SHIFT; }'
COUNT = 128
PTX_INPUT = 2  # NVJITLINK_INPUT_PTX


@cache
def nvrtc() -> Library:
    return Library("libnvrtc.so.13")


@cache
def linker() -> Library:
    return Library("libnvJitLink.so.13")


def architecture() -> str:
    """The device's compute capability as digits, or 90 if the device is newer than the compilers know."""
    numbers = []
    for attribute in (75, 76):
        value = ctypes.c_int()
        device.DRIVER("cuDeviceGetAttribute", ctypes.byref(value), attribute, 0)
        numbers.append(value.value)
    return "90" if tuple(numbers) > (12, 1) else f"{numbers[0]}{numbers[1]}"


def strings(*options: str) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(options))(*(option.encode() for option in options))


def compiled(source: str, what: str, *options: str) -> bytes:
    lib, made = nvrtc(), ctypes.c_void_p()
    lib("nvrtcCreateProgram", ctypes.byref(made), source, "k.cu", 0, None, None)
    given = (*options, "-DSHIFT=5")
    lib("nvrtcCompileProgram", made, len(given), strings(*given))
    nbytes = lib.size(f"nvrtcGet{what}Size", made)
    image = ctypes.create_string_buffer(nbytes)
    lib(f"nvrtcGet{what}", made, image)
    return image.raw


def linked(*images: bytes) -> bytes:
    lib, made = linker(), ctypes.c_void_p()
    options = strings(f"-arch=sm_{architecture()}")
    lib("__nvJitLinkCreate_13_0", ctypes.byref(made), 1, options)
    for image in images:
        lib("__nvJitLinkAddData_13_0", made, PTX_INPUT, image, Size(len(image)), "part")
    lib("__nvJitLinkComplete_13_0", made)
    image = ctypes.create_string_buffer(lib.size("__nvJitLinkGetLinkedCubinSize_13_0", made))
    lib("__nvJitLinkGetLinkedCubin_13_0", made, image)
    return image.raw


def run(image: bytes, dtype: str = "f4") -> np.ndarray:
    module, function, out = ctypes.c_void_p(), ctypes.c_void_p(), Array(np.zeros(COUNT, dtype))
    device.DRIVER("cuModuleLoadData", ctypes.byref(module), image)
    device.DRIVER("cuModuleGetFunction", ctypes.byref(function), module, b"k")
    values = ctypes.c_uint64(out.address), ctypes.c_int(COUNT)
    listed = (ctypes.c_void_p * 2)(*map(ctypes.addressof, values))
    device.DRIVER("cuLaunchKernel", function, 1, 1, 1, COUNT, 1, 1, 0, None, listed, None)
    found = out.get()
    device.DRIVER("cuModuleUnload", module)
    return found


def program(source: str, what: str, target: str, dtype: str, expected: np.ndarray) -> Pair:
    return run(compiled(source, what, f"--gpu-architecture={target}"), dtype), expected


def two_parts() -> Pair:
    target = f"--gpu-architecture=compute_{architecture()}"
    images = (compiled(text, "PTX", target, "-rdc=true") for text in (CALLER, CALLEE))
    return run(linked(*images)), 2.0 * np.arange(COUNT) + 5


def one_part() -> Pair:
    image = linked(compiled(TEMPLATE, "PTX", f"--gpu-architecture=compute_{architecture()}"))
    return run(image), np.arange(COUNT) ** 3.0 + 5


def calls() -> Iterator[Call]:
    n = np.arange(COUNT)
    sums = np.array([sum(range(127 - 32 * warp, 95 - 32 * warp, -1)) for warp in range(4)]).repeat(32) + 5.0
    sources = {
        "template": (TEMPLATE, "f4", n**3.0 + 5, 0),
        "shared": (SHARED, "f4", sums, 0),
        "double": (DOUBLE, "f8", np.sqrt(n) + np.sin(n) + 5, 1e-15),
    }
    for name, (source, dtype, expected, tolerance) in sources.items():
        for target in ("compute_75", "compute_90"):
            arguments = (source, "PTX", target, dtype, expected)
            yield Call(f"nvrtcGetPTX {name} {target}", lambda a=arguments: program(*a), tolerance)

        def to_cubin(a: tuple[str, str, np.ndarray] = (source, dtype, expected)) -> Pair:
            return program(a[0], "CUBIN", f"sm_{architecture()}", *a[1:])

        yield Call(f"nvrtcGetCUBIN {name}", to_cubin, tolerance)
    yield Call("nvJitLink one part", one_part, 0)
    yield Call("nvJitLink two parts", two_parts, 0)
