"""NVIDIA's dynamic runtime by ctypes: `with_cudart.py LIBCUDART FATBIN PROPERTIES_NBYTES`.

Loads the kernel as a compiled program's start-up code does, so every version is called as by its own programs.
"""

import ctypes
import random
import struct
import sys
from ctypes import byref, c_char, c_float, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path

FATBIN_WRAPPER_MAGIC = 0x466243B1
N = 4099
TO_DEVICE, TO_HOST = 1, 2


class Dim3(ctypes.Structure):
    _fields_ = [("x", c_uint), ("y", c_uint), ("z", c_uint)]


def check(result: int, call: str) -> None:
    assert result == 0, f"{call}: error {result} {runtime.cudaGetErrorName(result).decode()}"


library, fatbin_path, properties_nbytes = sys.argv[1], sys.argv[2], int(sys.argv[3])
runtime = ctypes.CDLL(library)
runtime.cudaGetErrorName.restype = ctypes.c_char_p
runtime.__cudaRegisterFatBinary.restype = c_void_p

count = c_int(-1)
check(runtime.cudaGetDeviceCount(byref(count)), "cudaGetDeviceCount")
assert count.value >= 1
version, driver = c_int(), c_int()
check(runtime.cudaRuntimeGetVersion(byref(version)), "cudaRuntimeGetVersion")
check(runtime.cudaDriverGetVersion(byref(driver)), "cudaDriverGetVersion")

# The structure's size differs by version; the call must fill the structure and must not write behind it.
CANARY = 0xC7
properties = (c_char * (properties_nbytes + 256)).from_buffer(bytearray([CANARY]) * (properties_nbytes + 256))
get = getattr(runtime, "cudaGetDeviceProperties_v2", runtime.cudaGetDeviceProperties)
check(get(byref(properties), 0), "cudaGetDeviceProperties")
assert properties.raw[properties_nbytes:] == bytes([CANARY]) * 256, "bytes behind the properties were written"
name = properties.raw[:256].split(b"\0")[0].decode()
total_nbytes = struct.unpack_from("<Q", properties.raw, 288)[0]
major, minor = struct.unpack_from("<ii", properties.raw, 360)
free, total = c_size_t(), c_size_t()
check(runtime.cudaMemGetInfo(byref(free), byref(total)), "cudaMemGetInfo")
assert 0 < free.value <= total.value <= total_nbytes, (free.value, total.value, total_nbytes)
print(f"device: {name}, compute capability {major}.{minor}, runtime {version.value}, driver {driver.value}")

# Register the kernel as a compiled program does before main().
fatbin = ctypes.create_string_buffer(Path(fatbin_path).read_bytes())
wrapper = ctypes.create_string_buffer(struct.pack("<IIQQ", FATBIN_WRAPPER_MAGIC, 1, ctypes.addressof(fatbin), 0))
handle = c_void_p(runtime.__cudaRegisterFatBinary(wrapper))
stub = ctypes.create_string_buffer(16)  # only its address matters: it stands for the host function
symbol = b"scale_and_index"
runtime.__cudaRegisterFunction(handle, stub, ctypes.c_char_p(symbol), ctypes.c_char_p(symbol), -1, *[None] * 5)
runtime.__cudaRegisterFatBinaryEnd(handle)

values = [float(random.randrange(-1000, 1000)) for _ in range(N)]
host = (c_float * N)(*values)
device = c_void_p()
nbytes = c_size_t(ctypes.sizeof(host))
check(runtime.cudaMalloc(byref(device), nbytes), "cudaMalloc")
check(runtime.cudaMemcpy(device, host, nbytes, TO_DEVICE), "cudaMemcpy to the device")
n, factor, addend = c_int(N), c_float(2.5), ctypes.c_byte(-7)
arguments = (c_void_p * 4)(*(ctypes.addressof(argument) for argument in (device, n, factor, addend)))
grid, block = Dim3((N + 127) // 128, 1, 1), Dim3(128, 1, 1)
check(runtime.cudaLaunchKernel(stub, grid, block, arguments, c_size_t(0), None), "cudaLaunchKernel")
check(runtime.cudaDeviceSynchronize(), "cudaDeviceSynchronize")
result = (c_float * N)()
check(runtime.cudaMemcpy(result, device, nbytes, TO_HOST), "cudaMemcpy from the device")
expected = [value * 2.5 - 7 + i for i, value in enumerate(values)]
assert list(result) == expected, "the kernel's result is wrong"

check(runtime.cudaMemset(device, 0x41, c_size_t(N)), "cudaMemset")
check(runtime.cudaMemcpy(result, device, nbytes, TO_HOST), "cudaMemcpy after cudaMemset")
assert bytes(result)[:N] == b"\x41" * N, "cudaMemset did not reach"
assert list(result)[-1] == expected[-1], "cudaMemset went too far"

assert runtime.cudaMemcpy(result, c_void_p(16), nbytes, TO_HOST) == 1, "a copy from nowhere succeeded"
assert runtime.cudaGetLastError() == 1
check(runtime.cudaFree(device), "cudaFree")
print("ok cudart")
