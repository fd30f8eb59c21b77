"""TensorFlow and Keras compared with the CPU: an MLP and a small CNN, trained from the same weights on both."""

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from report import check, finish

rng = np.random.default_rng(0)
A = rng.normal(size=(32, 32)).astype("f4")


def operations():
    assert tf.config.list_physical_devices("GPU"), "TensorFlow sees no GPU"
    a = tf.constant(A)
    assert "GPU" in a.device
    check("a * 2 + 1", lambda: a * 2 + 1, A * 2 + 1)
    check("reduce_sum", lambda: tf.reduce_sum(a), A.sum(), 1e-3)
    check("matmul", lambda: a @ a, A @ A, 2e-2)  # computed in TF32
    check("softmax", lambda: tf.nn.softmax(a), np.exp(A) / np.exp(A).sum(1, keepdims=True), 1e-5)
    check("normal", lambda: tf.math.reduce_std(tf.random.normal((10000,))), 1, 0.05)
    with tf.GradientTape() as tape:
        tape.watch(a)
        loss = tf.reduce_mean(tf.tanh(a) ** 2)
    t = np.tanh(A)
    check("gradient", lambda: tape.gradient(loss, a), 2 * t * (1 - t * t) / A.size, 1e-6)


def profiled():
    """TensorFlow's own profiler shows the kernels and copies of each run."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    a = tf.constant(A)
    work = tf.function(lambda a: tf.tanh(a) * 2.0 + a)
    work(a).numpy()
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder):
            for _ in range(3):
                work(a).numpy()
        (file,) = Path(folder).rglob("*.xplane.pb")
        space = xplane_pb2.XSpace.FromString(file.read_bytes())
    lines = [(plane, line) for plane in space.planes if plane.name.startswith("/device:GPU") for line in plane.lines]
    events = [
        (line.timestamp_ns * 1000 + event.offset_ps, plane.event_metadata[event.metadata_id].name.partition("_")[0])
        for plane, line in lines
        if line.name.startswith("Stream")
        for event in line.events
    ]
    names = [name for _, name in sorted(events)]
    check("profiler's records", lambda: float(names == ["Tanh", "Mul", "AddV2", "MemcpyD2H"] * 3), 1, 0)


def trained(build, x, y, device):
    """Losses of a few training steps and the final weights; every device starts from the same weights."""
    keras.utils.set_random_seed(1)
    with tf.device("/CPU:0"):
        model = build()
        start = model.get_weights()
    with tf.device(device):
        model = build()
        model.set_weights(start)
        model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", jit_compile=False)
        history = model.fit(x, y, batch_size=32, epochs=2, shuffle=False, verbose=0)
    return history.history["loss"], np.concatenate([w.ravel() for w in model.get_weights()])


def compare(name, build, x, y):
    loss, weights = trained(build, x, y, "/GPU:0")
    by_cpu, cpu_weights = trained(build, x, y, "/CPU:0")
    check(f"{name}: losses", lambda: loss, by_cpu, 1e-2)
    check(f"{name}: weights", lambda: weights, cpu_weights, 2e-2)
    check(f"{name}: loss falls", lambda: float(loss[-1] < loss[0]), 1, 0)


def mlp():
    x = rng.normal(size=(128, 16)).astype("f4")
    y = (x[:, :4].argmax(1)).astype("i4")
    layers = keras.layers
    compare(
        "MLP",
        lambda: keras.Sequential([keras.Input((16,)), layers.Dense(32, "relu"), layers.Dense(4, "softmax")]),
        x,
        y,
    )


def cnn():
    x = rng.normal(size=(64, 12, 12, 1)).astype("f4")
    y = (x.mean((1, 2, 3)) > 0).astype("i4")
    layers = keras.layers

    def build():
        return keras.Sequential(
            [keras.Input((12, 12, 1)), layers.Conv2D(4, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten(),
             layers.Dense(2, "softmax")]
        )  # fmt: skip

    compare("CNN", build, x, y)


PARTS = {f.__name__: f for f in (operations, profiled, mlp, cnn)}
for part in sys.argv[1:] or PARTS:
    PARTS[part]()
print("tensorflow", tf.__version__, "keras", keras.__version__)
finish("tensorflow")
