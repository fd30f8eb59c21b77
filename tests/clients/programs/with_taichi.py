"""Taichi: fields, a stencil, an atomic reduction, and a struct of vectors, each compared with numpy."""

import numpy as np
import taichi as ti

ti.init(arch=ti.cuda, log_level=ti.WARN, offline_cache=False, device_memory_GB=0.25)
assert ti.cfg.arch == ti.cuda, ti.cfg.arch
N = 101
field = ti.field(ti.f32, shape=(N, N))
smooth = ti.field(ti.f32, shape=(N, N))
points = ti.Vector.field(3, ti.f64, shape=N)
total = ti.field(ti.i64, shape=())


@ti.kernel
def stencil():
    for i, j in field:
        if 0 < i < N - 1 and 0 < j < N - 1:
            smooth[i, j] = 0.25 * (field[i - 1, j] + field[i + 1, j] + field[i, j - 1] + field[i, j + 1])


@ti.kernel
def lengths():
    for i in points:
        p = ti.Vector([ti.cast(i, ti.f64), ti.sin(ti.cast(i, ti.f64)), 1.0])
        points[i] = p / p.norm()


@ti.kernel
def sum_up():
    for i, j in field:
        total[None] += ti.cast(field[i, j], ti.i64)


random = np.random.default_rng(3)
values = random.integers(-100, 100, (N, N)).astype(np.float32)
field.from_numpy(values)
stencil()
expected = np.zeros_like(values)
expected[1:-1, 1:-1] = 0.25 * (values[:-2, 1:-1] + values[2:, 1:-1] + values[1:-1, :-2] + values[1:-1, 2:])
assert np.array_equal(smooth.to_numpy(), expected), "stencil"
lengths()
i = np.arange(N, dtype=np.float64)
p = np.stack([i, np.sin(i), np.ones(N)], axis=1)
assert np.allclose(points.to_numpy(), p / np.linalg.norm(p, axis=1, keepdims=True), rtol=1e-12), "lengths"
sum_up()
assert total[None] == int(values.sum()), f"sum_up: {total[None]} instead of {int(values.sum())}"
print("ok taichi")
