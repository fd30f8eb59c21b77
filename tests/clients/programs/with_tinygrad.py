"""tinygrad on the CUDA device: product, softmax, reduction, a step of gradient descent and a
CUDA graph that is replayed with other inputs, compared with numpy."""

from typing import Any

import numpy as np
from tinygrad import Device, Tensor, TinyJit
from tinygrad.runtime.graph.cuda import CUDAGraph

SEED = 20260128


def compare(name: str, got: Tensor, expected: np.ndarray) -> None:
    error = float(np.abs(got.numpy() - expected).max())
    print(f"{name}: largest difference from the CPU {error:.2e}")
    assert got.shape == expected.shape, f"{name}: shape {got.shape} instead of {expected.shape}"
    assert np.allclose(got.numpy(), expected, rtol=1e-4, atol=1e-4), name


random = np.random.default_rng(SEED)
device = Device["CUDA"]
print("device:", Device.DEFAULT, type(device.renderer).__name__, device.arch)
assert Device.DEFAULT == "CUDA"

a = random.standard_normal((65, 47), dtype=np.float32)
b = random.standard_normal((47, 33), dtype=np.float32)
product = (Tensor(a) @ Tensor(b)).realize()
assert product.device == "CUDA"
compare("product", product, a @ b)

shifted = np.exp(a - a.max(axis=1, keepdims=True))
compare("softmax", Tensor(a).softmax(axis=1), shifted / shifted.sum(axis=1, keepdims=True))
compare("sum", Tensor(a).sum(), a.sum())

# One step of gradient descent on a linear model with a rectifier, worked out by hand on the CPU.
w = random.standard_normal((33, 5), dtype=np.float32)
x, y = a @ b, random.standard_normal((65, 5), dtype=np.float32)
weights = Tensor(w)
loss = ((Tensor(x) @ weights).relu() - Tensor(y)).square().mean()
stepped = weights - 0.01 * loss.gradient(weights)[0]
hidden = x @ w
residual = np.maximum(hidden, 0) - y
gradient = x.T @ (2 * residual * (hidden > 0) / residual.size)
compare("loss", loss, np.float32((residual**2).mean()))
compare("weights after a step", stepped, w - np.float32(0.01) * gradient.astype(np.float32))


# The second call of a jitted function makes a CUDA graph; this call and later ones launch it with their inputs.
replays = 0
launch = CUDAGraph.__call__


def counted(*arguments: Any, **named: Any) -> Any:
    global replays
    replays += 1
    return launch(*arguments, **named)


CUDAGraph.__call__ = counted


@TinyJit
def layers(given: Tensor) -> Tensor:
    return ((given @ weights).relu().softmax(axis=1) @ weights.transpose()).realize()


for number in range(5):
    given = random.standard_normal((65, 33), dtype=np.float32)
    hidden = np.maximum(given @ w, 0)
    exponential = np.exp(hidden - hidden.max(axis=1, keepdims=True))
    compare(
        f"jitted, call {number}", layers(Tensor(given).realize()), exponential / exponential.sum(1, keepdims=True) @ w.T
    )
assert replays == 4, f"{replays} of the last 4 calls were launches of a graph"
print("ok tinygrad")
