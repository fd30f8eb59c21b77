"""cuBLAS through ctypes: products of small integers, which every type holds exactly, so that all results are exact."""

import ctypes
import glob
import sysconfig

import numpy as np
from report import check, finish

LIBRARIES = sysconfig.get_path("purelib") + "/nvidia/cu13/lib/"
cuda = ctypes.CDLL("libcuda.so.1")
ctypes.CDLL(glob.glob(LIBRARIES + "libcublasLt.so.*")[0], ctypes.RTLD_GLOBAL)
cublas = ctypes.CDLL(glob.glob(LIBRARIES + "libcublas.so.*")[0])
N = ctypes.c_size_t
# Codes of cudaDataType; stored() and read() convert numbers to these types and from them.
F32, F64, F16, BF16 = 0, 1, 2, 14
COMPUTE_16F, COMPUTE_32F, COMPUTE_TF32, COMPUTE_64F = 64, 68, 77, 70


def ok(result):
    assert result == 0, result


def stored(values, code):
    if code == BF16:
        return (values.astype("f4").view("u4") >> 16).astype("u2")
    return values.astype({F32: "f4", F64: "f8", F16: "f2"}[code])


def read(data, code):
    if code == BF16:
        return (np.frombuffer(data, "u2").astype("u4") << 16).view("f4")
    return np.frombuffer(data, {F32: "f4", F64: "f8", F16: "f2"}[code])


ok(cuda.cuInit(0))
context, handle = ctypes.c_void_p(), ctypes.c_void_p()
ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
ok(cuda.cuCtxSetCurrent(context))
ok(cublas.cublasCreate_v2(ctypes.byref(handle)))


def upload(array):
    address = ctypes.c_uint64()
    ok(cuda.cuMemAlloc_v2(ctypes.byref(address), N(max(16, array.nbytes))))
    ok(cuda.cuMemcpyHtoD_v2(address, array.ctypes.data_as(ctypes.c_void_p), N(array.nbytes)))
    return address


def product(name, kind, result, compute, m, n, k, transposed=False, batch=1):
    rng = np.random.default_rng(m + n + k)
    a, b = rng.integers(-2, 3, (batch, m, k)), rng.integers(-2, 3, (batch, k, n))
    # cuBLAS expects column-major matrices: a matrix stored by rows is passed as its transpose
    left = a if transposed else a.swapaxes(1, 2)
    places = [upload(stored(np.ascontiguousarray(part), kind)) for part in (left, b.swapaxes(1, 2))]
    out = upload(stored(np.full((batch, n, m), 99), result))
    scalar = {COMPUTE_64F: ctypes.c_double, COMPUTE_16F: ctypes.c_uint16}.get(compute, ctypes.c_float)
    one, zero = scalar(0x3C00 if compute == COMPUTE_16F else 1), scalar(0)
    long = ctypes.c_longlong

    def compute_it():
        ok(
            cublas.cublasGemmStridedBatchedEx(
                handle, int(transposed), 0, m, n, k, ctypes.byref(one), places[0], kind, k if transposed else m,
                long(m * k), places[1], kind, k, long(k * n), ctypes.byref(zero), out, result, m, long(m * n), batch,
                compute, -1,
            )
        )  # fmt: skip
        data = ctypes.create_string_buffer(batch * m * n * stored(np.zeros(1), result).itemsize)
        ok(cuda.cuMemcpyDtoH_v2(data, out, N(len(data))))
        return read(data.raw, result).reshape(batch, n, m).swapaxes(1, 2).astype("f8")

    label = f"{name} {m}x{n}x{k}{' transposed' if transposed else ''}{f' batch {batch}' if batch > 1 else ''}"
    check(label, compute_it, (a @ b).astype("f8"), 0)


TYPES = {
    "f32": (F32, F32, COMPUTE_32F),
    "tf32": (F32, F32, COMPUTE_TF32),
    "f64": (F64, F64, COMPUTE_64F),
    "f16 to f32": (F16, F32, COMPUTE_32F),
    "f16": (F16, F16, COMPUTE_32F),
    "f16 in f16": (F16, F16, COMPUTE_16F),
    "bf16 to f32": (BF16, F32, COMPUTE_32F),
    "bf16": (BF16, BF16, COMPUTE_32F),
}
SHAPES = ((64, 64, 64), (128, 32, 64), (17, 33, 9))
for type_name, codes in TYPES.items():
    for shape in SHAPES:
        for transposed in (False, True):
            product(type_name, *codes, *shape, transposed)
    product(type_name, *codes, 32, 32, 32, batch=4)
finish("cublas")
