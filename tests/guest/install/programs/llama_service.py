"""`llama_service.py FOLDER MODEL`: a service made of a packaged llama.cpp, which takes the GPU if it finds one.

It leaves the choice to llama.cpp, as Ollama and llama-server do: what backends of FOLDER can be loaded, and where the
model's layers go. Prints each device, the backend of the layers, and the logits after each token of a prompt.
"""

import ctypes
import os
import re
import sys
from ctypes import POINTER, c_bool, c_char_p, c_int32, c_size_t, c_void_p
from pathlib import Path

folder, model_path = Path(sys.argv[1]), sys.argv[2]
base = ctypes.CDLL(str(folder / "libggml-base.so.0"), mode=ctypes.RTLD_GLOBAL)
ggml = ctypes.CDLL(str(next(folder.glob("libggml.*.so.0"))), mode=ctypes.RTLD_GLOBAL)
llama = ctypes.CDLL(str(next(folder.glob("libllama.*.so.0"))), mode=os.RTLD_NOW)


class ModelParameters(ctypes.Structure):
    """llama_model_params: its first fields, and room for the others."""

    _fields_ = [("devices", c_void_p), ("overrides", c_void_p), ("n_gpu_layers", c_int32), ("rest", c_int32 * 61)]


class ContextParameters(ctypes.Structure):
    """llama_context_params: likewise."""

    _fields_ = [("n_ctx", c_int32), ("batches", c_int32 * 3), ("n_threads", c_int32 * 2), ("rest", c_int32 * 58)]


class Batch(ctypes.Structure):
    """llama_batch."""

    _fields_ = [("n_tokens", c_int32), ("pointers", c_void_p * 6)]


def function(library: ctypes.CDLL, name: str, result: object, *arguments: object) -> ctypes._CFuncPtr:  # type: ignore[name-defined]
    found = getattr(library, name)
    found.restype, found.argtypes = result, arguments
    return found


log: list[str] = []
Logger = ctypes.CFUNCTYPE(None, ctypes.c_int, c_char_p, c_void_p)
logger = Logger(lambda _level, text, _data: log.append(text.decode(errors="replace")))
function(llama, "llama_log_set", None, Logger, c_void_p)(logger, None)

function(ggml, "ggml_backend_load_all_from_path", None, c_char_p)(str(folder).encode())
count = function(ggml, "ggml_backend_dev_count", c_size_t)()
for i in range(count):
    device = function(ggml, "ggml_backend_dev_get", c_void_p, c_size_t)(i)
    name = function(base, "ggml_backend_dev_name", c_char_p, c_void_p)(device).decode()
    text = function(base, "ggml_backend_dev_description", c_char_p, c_void_p)(device).decode()
    print(f"device {name}: {text}" if name != "CPU" else "device CPU")

parameters = function(llama, "llama_model_default_params", ModelParameters)()
parameters.n_gpu_layers = 99
model = function(llama, "llama_model_load_from_file", c_void_p, c_char_p, ModelParameters)(
    model_path.encode(), parameters
)
assert model, "".join(log)
context_parameters = function(llama, "llama_context_default_params", ContextParameters)()
context_parameters.n_ctx = 128
context_parameters.n_threads[:] = [1, 1]
context = function(llama, "llama_init_from_model", c_void_p, c_void_p, ContextParameters)(model, context_parameters)
assert context, "".join(log)
layers = re.search(r"offloaded (\d+)/\d+ layers to GPU", "".join(log))
print(f"library={'cuda' if layers and layers[1] != '0' else 'cpu'}")

vocabulary = function(llama, "llama_model_get_vocab", c_void_p, c_void_p)(model)
n_tokens = function(llama, "llama_vocab_n_tokens", c_int32, c_void_p)(vocabulary)
prompt = b"hello world"
tokens = (c_int32 * 64)()
tokenize = function(
    llama, "llama_tokenize", c_int32, c_void_p, c_char_p, c_int32, POINTER(c_int32), c_int32, c_bool, c_bool
)
waiting = list(tokens[: tokenize(vocabulary, prompt, len(prompt), tokens, 64, True, False)])
for token in waiting:
    # One at a time, so that all products use llama.cpp's own kernels and none uses cuBLAS.
    batch = function(llama, "llama_batch_get_one", Batch, POINTER(c_int32), c_int32)((c_int32 * 1)(token), 1)
    assert function(llama, "llama_decode", c_int32, c_void_p, Batch)(context, batch) == 0, "".join(log)
    logits = function(llama, "llama_get_logits_ith", POINTER(ctypes.c_float), c_void_p, c_int32)(context, -1)
    print("logits", *(f"{logits[i]:.5f}" for i in range(n_tokens)))
