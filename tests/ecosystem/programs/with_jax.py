"""JAX compared with numpy: eager, jit, grad, sort, random numbers, a convolution by cuDNN, training of a transformer.

`with_jax.py two_devices` needs two devices: it runs JAX's collectives, which use NCCL.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from report import check, finish

rng = np.random.default_rng(0)
A = rng.normal(size=(64, 64)).astype("f4")
S = A @ A.T + 64 * np.eye(64, dtype="f4")
a = jnp.asarray(A)
assert jax.devices()[0].platform == "gpu", jax.devices()


def small():
    check("a + 1", lambda: a + 1, A + 1)
    check("sum", lambda: jnp.sum(a), A.sum(), 1e-2)
    check("jit", lambda: jax.jit(lambda x: jnp.tanh(x * 2).sum(0))(a), np.tanh(A * 2).sum(0), 1e-3)
    check("matmul", lambda: jnp.dot(a, a, precision="highest"), A @ A, 1e-3)


def arrays():
    half = a.astype(jnp.bfloat16)
    rounded = np.asarray(half, np.float32)
    check("bf16 matmul", lambda: jnp.dot(half, half, preferred_element_type=jnp.float32), rounded @ rounded, 1e-2)
    check("sort", lambda: jnp.sort(a[0]), np.sort(A[0]))
    check("normal", lambda: jax.random.normal(jax.random.PRNGKey(0), (1000,)).mean(), 0, 0.2)
    check("fft", lambda: jnp.fft.fft(a[0]), np.fft.fft(A[0]), 1e-2)
    check("cholesky", lambda: jnp.linalg.cholesky(S), np.linalg.cholesky(S), 1e-3)


def grad():
    w, y = (rng.normal(size=(64, 8)).astype("f4") * 0.1 for _ in range(2))
    hidden = np.tanh(A @ w)
    expected = A.T @ (2 * (hidden - y) * (1 - hidden * hidden) / y.size)
    loss = lambda weights: ((jnp.tanh(jnp.dot(a, weights, precision="highest")) - y) ** 2).mean()  # noqa: E731
    check("grad", lambda: jax.jit(jax.grad(loss))(w), expected, 1e-4)


def convolution():
    x, k = rng.normal(size=(1, 3, 8, 8)).astype("f4"), rng.normal(size=(4, 3, 3, 3)).astype("f4")
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    check("conv", lambda: jax.lax.conv(x, k, (1, 1), "VALID"), np.einsum("nchwij,ocij->nohw", windows, k), 5e-2)


def transformer():
    width, length, layers = 32, 16, 2
    keys = jax.random.split(jax.random.PRNGKey(1), 4 * layers + 1)
    shapes = ((width, 3 * width), (width, width), (width, 2 * width), (2 * width, width))
    parameters = [jax.random.normal(k, shapes[i % 4]) / 6 for i, k in enumerate(keys[:-1])]
    x = jax.random.normal(keys[-1], (4, length, width))
    target = jnp.roll(x, 1, axis=1)

    def forward(parameters, h):
        for layer in range(layers):
            qkv, out, up, down = parameters[4 * layer : 4 * layer + 4]
            q, k, v = jnp.split(h @ qkv, 3, axis=-1)
            h = h + jax.nn.softmax(q @ k.swapaxes(-1, -2) / width**0.5) @ v @ out
            h = h + jax.nn.relu(h @ up) @ down
        return h

    loss = lambda p: ((forward(p, x) - target) ** 2).mean()  # noqa: E731
    step = jax.jit(lambda p: jax.tree.map(lambda v, g: v - 0.02 * g, p, jax.grad(loss)(p)))
    first = float(loss(parameters))
    for _ in range(20):
        parameters = step(parameters)
    last = float(loss(parameters))
    print(f"loss {first:.4f} -> {last:.4f}")
    check("loss falls", lambda: float(last < first * 0.9), 1, 0)


def two_devices():
    rows = A[:2]

    def pmap(compute):
        return jax.pmap(lambda row: compute(row), axis_name="i")(rows)

    check("psum", lambda: pmap(lambda row: jax.lax.psum(row * 2, "i")), [rows.sum(0) * 2] * 2, 1e-6)
    check("all_gather", lambda: pmap(lambda row: jax.lax.all_gather(row, "i")), [rows] * 2, 0)
    check("ppermute", lambda: pmap(lambda row: jax.lax.ppermute(row, "i", [(0, 1), (1, 0)])), rows[::-1], 0)


PARTS = {f.__name__: f for f in (small, arrays, grad, convolution, transformer)}
for part in sys.argv[1:] or PARTS:
    {**PARTS, "two_devices": two_devices}[part]()
print("jax", jax.__version__, jax.devices())
finish("jax")
