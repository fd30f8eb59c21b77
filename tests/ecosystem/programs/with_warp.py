"""Warp compared with numpy: element-wise and reducing kernels, sums of tiles, gradients by Warp's tape, a graph."""

import numpy as np
import warp as wp
from report import check, finish

wp.init()
device = wp.get_device("cuda:0")
rng = np.random.default_rng(0)
X, Y = rng.normal(size=1000).astype("f4"), rng.normal(size=1000).astype("f4")


@wp.kernel
def saxpy(a: float, x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = a * x[i] + y[i]


@wp.kernel
def total(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    wp.atomic_add(out, 0, x[wp.tid()])


@wp.kernel
def rotate(q: wp.quat, x: wp.array(dtype=wp.vec3), out: wp.array(dtype=wp.vec3)):
    i = wp.tid()
    out[i] = wp.quat_rotate(q, x[i])


@wp.kernel
def loss_of(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    wp.atomic_add(out, 0, wp.sin(x[i]) * x[i])


@wp.kernel
def row_sums(a: wp.array2d(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    row = wp.tile_load(a[i], shape=64)
    wp.tile_store(out, wp.tile_sum(row), offset=i)


with wp.ScopedDevice(device):
    x, y = wp.array(X), wp.array(Y)
    wp.launch(saxpy, dim=1000, inputs=[2.0, x, y])
    check("saxpy", y.numpy, 2 * X + Y, 1e-5)
    out = wp.zeros(1)
    wp.launch(total, dim=1000, inputs=[x, out])
    check("atomic sum", out.numpy, [X.sum()], 1e-3)
    points = rng.normal(size=(100, 3)).astype("f4")
    turned = wp.zeros(100, dtype=wp.vec3)
    quarter = wp.quat_from_axis_angle(wp.vec3(0.0, 0.0, 1.0), float(np.pi / 2))
    wp.launch(rotate, dim=100, inputs=[quarter, wp.array(points, dtype=wp.vec3), turned])
    check("rotation", turned.numpy, np.stack([-points[:, 1], points[:, 0], points[:, 2]], 1), 1e-5)
    leaf, loss = wp.array(X, requires_grad=True), wp.zeros(1, requires_grad=True)
    with wp.Tape() as tape:
        wp.launch(loss_of, dim=1000, inputs=[leaf, loss])
    tape.backward(loss)
    check("gradient by the tape", leaf.grad.numpy, np.cos(X) * X + np.sin(X), 1e-4)
    A, sums = rng.normal(size=(8, 64)).astype("f4"), wp.zeros(8)
    wp.launch_tiled(row_sums, dim=8, inputs=[wp.array(A), sums], block_dim=64)
    check("sums of tiles", sums.numpy, A.sum(1), 1e-4)
    y = wp.array(Y)
    with wp.ScopedCapture() as capture:
        wp.launch(saxpy, dim=1000, inputs=[0.5, x, y])
    for _ in range(3):
        wp.capture_launch(capture.graph)
    check("graph, three launches", y.numpy, Y + 1.5 * X, 1e-5)
    keys, places = wp.array(np.append(X, X)), wp.array(np.arange(2000, dtype="i4"))  # radix sort needs twice the room
    wp.utils.radix_sort_pairs(keys, places, 1000)
    check("radix sort", lambda: keys.numpy()[:1000], np.sort(X), 0)


print("warp", wp.config.version, device.name)
finish("warp")
