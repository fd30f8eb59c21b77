"""cuDNN's operations: convolutions with both gradients, pooling, softmax, activations, normalisation, reductions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np

from .device import Array, Call, Library, Pair, Size, data, wide, workspace

CODES = {"f4": 0, "f8": 1, "f2": 2}
NCHW, NHWC = 0, 1
CROSS_CORRELATION = 1
TOLERANCE = {"f4": 1e-4, "f8": 1e-11, "f2": 1e-2}
SHAPE = (2, 4, 9, 8)


@cache
def library() -> Library:
    return Library("libcublasLt.so.13", "libcublas.so.13", "libcudnn_graph.so.9", "libcudnn.so.9")


@cache
def handle() -> object:
    return library().handle("cudnnCreate")


def scalars(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    kind = "f8" if dtype == "f8" else "f4"
    return np.ones((), kind), np.zeros((), kind)


def described(kind: str, function: str, *arguments: object) -> object:
    made = library().handle(f"cudnnCreate{kind}Descriptor")
    library()(function, made, *arguments)
    return made


def tensor(shape: tuple[int, ...], dtype: str, layout: int = NCHW) -> object:
    return described("Tensor", "cudnnSetTensor4dDescriptor", layout, CODES[dtype], *shape)


def numbers(dtype: str, *shape: int, seed: str = "") -> np.ndarray:
    return np.ascontiguousarray(data("f8", *shape, seed=seed).astype(dtype))


def filled(shape: tuple[int, ...], dtype: str) -> Array:
    return Array(np.full(shape, np.nan, dtype))


def call(function: str, *arguments: object) -> None:
    library()(function, handle(), *arguments)


def unary(dtype: str, function: str, before: tuple[object, ...], expected: Callable[[np.ndarray], np.ndarray]) -> Pair:
    """Call a function whose result has the shape of its input tensor."""
    x, (one, zero) = numbers(dtype, *SHAPE), scalars(dtype)
    out, description = filled(SHAPE, dtype), tensor(SHAPE, dtype)
    call(function, *before, one, description, Array(x), zero, description, out)
    return out.get(), expected(wide(x))


def windows(x: np.ndarray, size: tuple[int, int], stride: int) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(x, size, axis=(2, 3))[:, :, ::stride, ::stride]


class Convolution:
    """One convolution, and the data that its gradients need."""

    def __init__(self, dtype: str, stride: int, pad: int, groups: int = 1) -> None:
        self.dtype, self.stride, self.pad, self.groups = dtype, stride, pad, groups
        self.x = numbers(dtype, 2, 4, 9, 8, seed="x")
        self.w = numbers(dtype, 6, 4 // groups, 3, 3, seed="w")
        compute = CODES["f8" if dtype == "f8" else "f4"]
        self.shape = (2, 6, *((n + 2 * pad - 3) // stride + 1 for n in (9, 8)))
        self.dy = numbers(dtype, *self.shape, seed="dy")
        self.filter = described("Filter", "cudnnSetFilter4dDescriptor", CODES[dtype], NCHW, *self.w.shape)
        self.how = described(
            "Convolution", "cudnnSetConvolution2dDescriptor", pad, pad, stride, stride, 1, 1, CROSS_CORRELATION, compute
        )
        library()("cudnnSetConvolutionGroupCount", self.how, groups)
        self.of_x, self.of_y = tensor(self.x.shape, dtype), tensor(self.shape, dtype)

    def expected(self) -> np.ndarray:
        padded = np.pad(wide(self.x), ((0, 0), (0, 0), (self.pad,) * 2, (self.pad,) * 2))
        parts = np.split(windows(padded, (3, 3), self.stride), self.groups, axis=1)
        kernels = np.split(wide(self.w), self.groups)
        made = [np.einsum("nchwij,ocij->nohw", part, kernel) for part, kernel in zip(parts, kernels, strict=True)]
        return np.concatenate(made, axis=1)

    def forward(self, algorithm: int) -> Pair:
        (one, zero), out = scalars(self.dtype), filled(self.shape, self.dtype)
        nbytes = library().size(
            "cudnnGetConvolutionForwardWorkspaceSize", handle(), self.of_x, self.filter, self.how, self.of_y, algorithm
        )
        call(
            "cudnnConvolutionForward",
            one,
            self.of_x,
            Array(self.x),
            self.filter,
            Array(self.w),
            self.how,
            algorithm,
            workspace(nbytes),
            Size(nbytes),
            zero,
            self.of_y,
            out,
        )
        return out.get(), self.expected()

    def backward_data(self, algorithm: int) -> Pair:
        (one, zero), out = scalars(self.dtype), filled(self.x.shape, self.dtype)
        nbytes = library().size(
            "cudnnGetConvolutionBackwardDataWorkspaceSize",
            handle(),
            self.filter,
            self.of_y,
            self.how,
            self.of_x,
            algorithm,
        )
        call(
            "cudnnConvolutionBackwardData",
            one,
            self.filter,
            Array(self.w),
            self.of_y,
            Array(self.dy),
            self.how,
            algorithm,
            workspace(nbytes),
            Size(nbytes),
            zero,
            self.of_x,
            out,
        )
        gradient = np.zeros((2, 4, 9 + 2 * self.pad, 8 + 2 * self.pad))
        for i, j in np.ndindex(self.shape[2:]):
            rows, columns = (slice(k * self.stride, k * self.stride + 3) for k in (i, j))
            gradient[:, :, rows, columns] += np.einsum("no,ocij->ncij", wide(self.dy)[:, :, i, j], wide(self.w))
        return out.get(), gradient[:, :, self.pad : self.pad + 9, self.pad : self.pad + 8]

    def backward_filter(self, algorithm: int) -> Pair:
        (one, zero), out = scalars(self.dtype), filled(self.w.shape, self.dtype)
        nbytes = library().size(
            "cudnnGetConvolutionBackwardFilterWorkspaceSize",
            handle(),
            self.of_x,
            self.of_y,
            self.how,
            self.filter,
            algorithm,
        )
        call(
            "cudnnConvolutionBackwardFilter",
            one,
            self.of_x,
            Array(self.x),
            self.of_y,
            Array(self.dy),
            self.how,
            algorithm,
            workspace(nbytes),
            Size(nbytes),
            zero,
            self.filter,
            out,
        )
        padded = np.pad(wide(self.x), ((0, 0), (0, 0), (self.pad,) * 2, (self.pad,) * 2))
        return out.get(), np.einsum("nchwij,nohw->ocij", windows(padded, (3, 3), self.stride), wide(self.dy))


def softmax(x: np.ndarray, axis: tuple[int, ...]) -> np.ndarray:
    power = np.exp(x - x.max(axis, keepdims=True))
    return power / power.sum(axis, keepdims=True)


def lrn(x: np.ndarray) -> np.ndarray:
    square = np.pad(x * x, ((0, 0), (2, 2), (0, 0), (0, 0)))
    return x / (2 + 1e-2 / 5 * sum(square[:, k : k + x.shape[1]] for k in range(5))) ** 0.75


def pooling(dtype: str, mode: int) -> Pair:
    x, (one, zero), shape = numbers(dtype, *SHAPE), scalars(dtype), (2, 4, 4, 4)
    how = described("Pooling", "cudnnSetPooling2dDescriptor", mode, 0, 2, 2, 0, 0, 2, 2)
    out = filled(shape, dtype)
    call("cudnnPoolingForward", how, one, tensor(SHAPE, dtype), Array(x), zero, tensor(shape, dtype), out)
    parts = windows(wide(x), (2, 2), 2)
    return out.get(), parts.max((4, 5)) if mode == 0 else parts.mean((4, 5))


def reduction(dtype: str, operation: int, expected: Callable[[np.ndarray], np.ndarray]) -> Pair:
    x, (one, zero), shape = numbers(dtype, *SHAPE), scalars(dtype), (1, 4, 1, 1)
    how = described(
        "ReduceTensor", "cudnnSetReduceTensorDescriptor", operation, CODES["f8" if dtype == "f8" else "f4"], 0, 0, 0
    )
    given, made, out = tensor(SHAPE, dtype), tensor(shape, dtype), filled(shape, dtype)
    nbytes = library().size("cudnnGetReductionWorkspaceSize", handle(), how, given, made)
    call(
        "cudnnReduceTensor", how, None, Size(0), workspace(nbytes), Size(nbytes), one, given, Array(x), zero, made, out
    )
    return out.get(), expected(wide(x))


def op_tensor(dtype: str, operation: int, expected: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Pair:
    x, y, (one, zero) = numbers(dtype, *SHAPE), numbers(dtype, 1, 4, 1, 1, seed="y"), scalars(dtype)
    how = described("OpTensor", "cudnnSetOpTensorDescriptor", operation, CODES["f8" if dtype == "f8" else "f4"], 0)
    given, out = tensor(SHAPE, dtype), filled(SHAPE, dtype)
    call("cudnnOpTensor", how, one, given, Array(x), one, tensor(y.shape, dtype), Array(y), zero, given, out)
    return out.get(), expected(wide(x), wide(y))


def add_tensor(dtype: str) -> Pair:
    x, y, (one, _) = numbers(dtype, *SHAPE), numbers(dtype, 1, 4, 1, 1, seed="y"), scalars(dtype)
    out = Array(x)
    call("cudnnAddTensor", one, tensor(y.shape, dtype), Array(y), one, tensor(SHAPE, dtype), out)
    return out.get(), wide(x) + wide(y)


def batch_normalisation(dtype: str) -> Pair:
    x, (one, zero), kind = numbers(dtype, *SHAPE), scalars(dtype), "f8" if dtype == "f8" else "f4"
    scale, bias, mean = (numbers(kind, 1, 4, 1, 1, seed=seed) for seed in ("scale", "bias", "mean"))
    variance = np.abs(numbers(kind, 1, 4, 1, 1, seed="variance")) + 0.5
    given, out = tensor(SHAPE, dtype), filled(SHAPE, dtype)
    call(
        "cudnnBatchNormalizationForwardInference",
        1,
        one,
        zero,
        given,
        Array(x),
        given,
        out,
        tensor(scale.shape, kind),
        Array(scale),
        Array(bias),
        Array(mean),
        Array(variance),
        ctypes.c_double(1e-3),
    )
    return out.get(), (wide(x) - mean) / np.sqrt(variance + 1e-3) * scale + bias


def transform(dtype: str) -> Pair:
    x, (one, zero) = numbers(dtype, *SHAPE), scalars(dtype)
    out = filled((2, 9, 8, 4), dtype)
    call("cudnnTransformTensor", one, tensor(SHAPE, dtype), Array(x), zero, tensor(SHAPE, dtype, NHWC), out)
    return out.get(), wide(x).transpose(0, 2, 3, 1)


def calls() -> Iterator[Call]:
    reductions = {
        "sum": (0, lambda x: x.sum((0, 2, 3), keepdims=True)),
        "max": (3, lambda x: x.max((0, 2, 3), keepdims=True)),
        "norm": (7, lambda x: np.sqrt((x * x).sum((0, 2, 3), keepdims=True))),
    }
    activations = {
        "sigmoid": (0, lambda x: 1 / (1 + np.exp(-x))),
        "relu": (1, lambda x: np.maximum(x, 0)),
        "tanh": (2, np.tanh),
        "elu": (4, lambda x: np.where(x > 0, x, np.expm1(x))),
    }
    for dtype in CODES:
        close = TOLERANCE[dtype]
        for stride, pad, groups in ((1, 0, 1), (1, 1, 1), (2, 1, 1), (1, 1, 2)):
            name = f"cudnnConvolutionForward {dtype} stride {stride} pad {pad} groups {groups}"
            yield Call(name, lambda a=(dtype, stride, pad, groups): Convolution(*a).forward(1), close)
        yield Call(
            f"cudnnConvolutionBackwardData {dtype}",
            lambda dtype=dtype: Convolution(dtype, 1, 1).backward_data(1),
            close,
        )
        yield Call(
            f"cudnnConvolutionBackwardFilter {dtype}",
            lambda dtype=dtype: Convolution(dtype, 1, 1).backward_filter(1),
            2 * close,
        )
        for name, (mode, function) in activations.items():

            def run(dtype: str = dtype, mode: int = mode, function: Callable[..., np.ndarray] = function) -> Pair:
                how = described("Activation", "cudnnSetActivationDescriptor", mode, 0, ctypes.c_double(1))
                return unary(dtype, "cudnnActivationForward", (how,), function)

            yield Call(f"cudnnActivationForward {dtype} {name}", run, close)
        for name, algorithm, mode, axis in (
            ("instance", 1, 0, (1, 2, 3)),
            ("channel", 1, 1, (1,)),
            ("log", 2, 1, (1,)),
        ):

            def run(dtype: str = dtype, how: tuple[int, int] = (algorithm, mode), axis: tuple[int, ...] = axis) -> Pair:
                expected = lambda x: np.log(softmax(x, axis)) if how[0] == 2 else softmax(x, axis)  # noqa: E731
                return unary(dtype, "cudnnSoftmaxForward", how, expected)

            yield Call(f"cudnnSoftmaxForward {dtype} {name}", run, close)
        for name, mode in (("max", 0), ("mean", 1)):
            yield Call(f"cudnnPoolingForward {dtype} {name}", lambda a=(dtype, mode): pooling(*a), close)
        for name, (operation, function) in reductions.items():
            yield Call(f"cudnnReduceTensor {dtype} {name}", lambda a=(dtype, operation, function): reduction(*a), close)
        for name, operation, function in (("add", 0, np.add), ("mul", 1, np.multiply), ("max", 3, np.maximum)):
            yield Call(f"cudnnOpTensor {dtype} {name}", lambda a=(dtype, operation, function): op_tensor(*a), close)
        yield Call(f"cudnnAddTensor {dtype}", lambda dtype=dtype: add_tensor(dtype), close)
        yield Call(
            f"cudnnBatchNormalizationForwardInference {dtype}", lambda dtype=dtype: batch_normalisation(dtype), close
        )
        yield Call(f"cudnnTransformTensor {dtype}", lambda dtype=dtype: transform(dtype), 0)

        def normalised(dtype: str = dtype) -> Pair:
            how = described(
                "LRN",
                "cudnnSetLRNDescriptor",
                ctypes.c_uint(5),
                ctypes.c_double(1e-2),
                ctypes.c_double(0.75),
                ctypes.c_double(2),
            )
            return unary(dtype, "cudnnLRNCrossChannelForward", (how, 0), lrn)

        yield Call(f"cudnnLRNCrossChannelForward {dtype}", normalised, close)
