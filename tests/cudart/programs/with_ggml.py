"""`with_ggml.py FOLDER [compute]`: the CUDA backend of a packaged llama.cpp, used as Ollama uses it to find GPUs.

Prints one line for each device. With `compute` the program then runs a graph of two operations and checks the result.
"""

import ctypes
import os
import random
import sys
from ctypes import POINTER, byref, c_bool, c_char_p, c_float, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path

folder = Path(sys.argv[1])
base = ctypes.CDLL(str(folder / "libggml-base.so"), mode=ctypes.RTLD_GLOBAL)
cuda = ctypes.CDLL(str(folder / "libggml-cuda.so"), mode=os.RTLD_NOW)


class Properties(ctypes.Structure):
    """struct ggml_backend_dev_props, with padding for the fields that later versions append."""

    _fields_ = [
        ("name", c_char_p),
        ("description", c_char_p),
        ("free", c_size_t),
        ("total", c_size_t),
        ("type", c_int),
        ("id", c_char_p),
        ("rest", c_size_t * 8),
    ]


class InitParameters(ctypes.Structure):
    _fields_ = [("nbytes", c_size_t), ("buffer", c_void_p), ("no_alloc", c_bool)]


def function(library: ctypes.CDLL, name: str, result: object, *arguments: object) -> ctypes._CFuncPtr:  # type: ignore[name-defined]
    found = getattr(library, name)
    found.restype, found.argtypes = result, arguments
    return found


def devices() -> None:
    registry = function(cuda, "ggml_backend_cuda_reg", c_void_p)()
    count = function(base, "ggml_backend_reg_dev_count", c_size_t, c_void_p)(registry)
    for i in range(count):
        device = function(base, "ggml_backend_reg_dev_get", c_void_p, c_void_p, c_size_t)(registry, i)
        properties = Properties()
        ask = function(base, "ggml_backend_dev_get_props", None, c_void_p, POINTER(Properties))
        ask(device, byref(properties))
        name, text = properties.name.decode(), properties.description.decode()
        where = (properties.id or b"").decode()
        print(f"device {name}: {text}, {properties.total} bytes, {properties.free} free, at {where}")
    print(f"devices {count}")


N, F32, Q8_0 = 64, 0, 8


def compute() -> None:
    """Check a + row, and the product of a matrix in 8-bit blocks with a vector."""
    backend = function(cuda, "ggml_backend_cuda_init", c_void_p, c_int)(0)
    assert backend, "no backend"
    context = function(base, "ggml_init", c_void_p, InitParameters)(InitParameters(1 << 20, None, True))
    tensor = function(base, "ggml_new_tensor_2d", c_void_p, c_void_p, c_int, c_int64, c_int64)
    a, row, q = tensor(context, F32, N, N), tensor(context, F32, N, 1), tensor(context, Q8_0, N, N)
    added = function(base, "ggml_add", c_void_p, c_void_p, c_void_p, c_void_p)(context, a, row)
    product = function(base, "ggml_mul_mat", c_void_p, c_void_p, c_void_p, c_void_p)(context, q, row)
    graph = function(base, "ggml_new_graph", c_void_p, c_void_p)(context)
    expand = function(base, "ggml_build_forward_expand", None, c_void_p, c_void_p)
    expand(graph, added)
    expand(graph, product)
    function(base, "ggml_backend_alloc_ctx_tensors", c_void_p, c_void_p, c_void_p)(context, backend)
    put = function(base, "ggml_backend_tensor_set", None, c_void_p, c_void_p, c_size_t, c_size_t)
    get = function(base, "ggml_backend_tensor_get", None, c_void_p, c_void_p, c_size_t, c_size_t)
    matrix = (c_float * (N * N))(*(random.uniform(-4, 4) for _ in range(N * N)))
    vector = (c_float * N)(*(random.uniform(-4, 4) for _ in range(N)))
    put(a, matrix, 0, ctypes.sizeof(matrix))
    put(row, vector, 0, ctypes.sizeof(vector))
    blocks = ctypes.create_string_buffer(N * N * 2)
    quantize = function(
        base, "ggml_quantize_chunk", c_size_t, c_int, c_void_p, c_void_p, c_int64, c_int64, c_int64, c_void_p
    )
    put(q, blocks, 0, quantize(Q8_0, matrix, blocks, 0, N, N, None))
    assert function(base, "ggml_backend_graph_compute", c_int, c_void_p, c_void_p)(backend, graph) == 0
    sums, products = (c_float * (N * N))(), (c_float * N)()
    get(added, sums, 0, ctypes.sizeof(sums))
    get(product, products, 0, ctypes.sizeof(products))
    assert all(abs(sums[i] - (matrix[i] + vector[i % N])) < 1e-5 for i in range(N * N)), "wrong sums"
    for i in range(N):
        exact = sum(matrix[i * N + k] * vector[k] for k in range(N))
        # Both factors are rounded to 8 bits of their block's largest value.
        bound = 0.01 * sum(4 * abs(vector[k]) + 4 * abs(matrix[i * N + k]) for k in range(N))
        assert abs(products[i] - exact) < bound, (i, products[i], exact)
    print("ok ggml")


devices()
if sys.argv[2:] == ["compute"]:
    compute()
