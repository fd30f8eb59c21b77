"""cuDNN's recurrent networks and samplers."""

from __future__ import annotations

import torch

from . import composite
from .autograd import above_autograd, leaf

aten = torch.ops.aten
_LSTM = 2
_FUNCTIONS = {0: torch.rnn_relu, 1: torch.rnn_tanh, _LSTM: torch.lstm, 3: torch.gru}  # cudnnRNNMode_t


@composite("_cudnn_init_dropout_state")
def init_dropout_state(dropout, train, seed, *, dtype=None, layout=None, device=None, pin_memory=None):
    """An empty state: dropout draws from the device's generator."""
    return torch.empty(0, dtype=torch.uint8, device=device)


@composite("_use_cudnn_ctc_loss")
@composite("_use_cudnn_ctc_loss.Tensor")
def use_cudnn_ctc_loss(log_probs, targets, input_lengths, target_lengths, blank):
    return False


@composite("_cudnn_rnn_flatten_weight")
def flatten_weight(weights, stride0, input_size, mode, hidden, projection, layers, batch_first, bidirectional):
    """Make the weights views of one buffer, as cuDNN's operator does; their order in the buffer is arbitrary."""
    buffer = torch.cat([weight.reshape(-1) for weight in weights])
    offset = 0
    for weight in weights:
        strides = torch.empty(weight.shape, device="meta").stride()
        weight.set_(buffer.untyped_storage(), offset, weight.shape, strides)
        offset += weight.numel()
    return buffer


def _run(mode, x, weights, stride0, hx, cx, batch_first, layers, dropout, training, bidirectional, batch_sizes):
    """Output, hidden state and cell state (None except for LSTM), by torch's general implementation of the network."""
    # stride0: the number of tensors per layer and direction: 2 weights, 2 biases if any, a projection if any.
    has_biases = stride0 >= 4
    state = [hx, cx] if mode == _LSTM else hx
    tail = (list(weights), has_biases, layers, dropout, training, bidirectional)
    with torch.backends.cudnn.flags(enabled=False):
        if batch_sizes:
            sizes = torch.tensor(batch_sizes, dtype=torch.int64)
            results = _FUNCTIONS[mode](x, sizes, state, *tail)
        else:
            results = _FUNCTIONS[mode](x, state, *tail, batch_first)
    return results if mode == _LSTM else (*results, None)


@composite("_cudnn_rnn")
def rnn(x, weight, stride0, buffer, hx, cx, mode, hidden, projection, layers, batch_first, dropout, training,
        bidirectional, batch_sizes, dropout_state):  # fmt: skip
    output, h, c = _run(
        mode, x, weight, stride0, hx, cx, batch_first, layers, dropout, training, bidirectional, batch_sizes
    )
    empty = torch.empty(0, device=x.device, dtype=x.dtype)
    reserve = torch.empty(0, device=x.device, dtype=torch.uint8)
    return output, h, c if c is not None else empty, reserve, buffer if buffer is not None else empty


@composite("_cudnn_rnn_backward")
def rnn_backward(x, weight, stride0, buffer, hx, cx, output, grad_output, grad_hy, grad_cy, mode, hidden, projection,
                 layers, batch_first, dropout, training, bidirectional, batch_sizes, dropout_state, reserve,
                 mask):  # fmt: skip
    if dropout > 0 and training and layers > 1:
        raise NotImplementedError(
            "vgpu: the backward pass of a cuDNN RNN with dropout is not simulated (its mask is not kept); "
            "torch.backends.cudnn.enabled = False runs the network without cuDNN"
        )
    with above_autograd():
        inputs = [leaf(tensor) for tensor in (x, hx, cx) if tensor is not None]
        weights = [leaf(tensor) for tensor in weight]
        cell = inputs[2] if cx is not None else None
        results = _run(mode, inputs[0], weights, stride0, inputs[1], cell, batch_first, layers, 0.0, training,
                       bidirectional, batch_sizes)  # fmt: skip
        given = [
            pair
            for pair in zip(results, (grad_output, grad_hy, grad_cy), strict=True)
            if pair[0] is not None and pair[1] is not None
        ]
        outputs, grads = [pair[0] for pair in given], [pair[1] for pair in given]
        wanted = inputs + weights
        result = torch.autograd.grad(outputs, wanted, grads, allow_unused=True)
    filled = [torch.zeros_like(tensor) if grad is None else grad for tensor, grad in zip(wanted, result, strict=True)]
    grad_cx = filled[2] if cx is not None else None
    return filled[0], filled[1], grad_cx, filled[len(inputs) :]


@composite("cudnn_grid_sampler")
def grid_sampler(x, grid):
    return aten.grid_sampler_2d(x, grid, 0, 0, True)


@composite("cudnn_grid_sampler_backward")
def grid_sampler_backward(x, grid, grad_output):
    return aten.grid_sampler_2d_backward(grad_output, x, grid, 0, 0, True, [True, True])


@composite("cudnn_affine_grid_generator")
def affine_grid_generator(theta, n, c, h, w):
    return aten.affine_grid_generator(theta, [n, c, h, w], True)


@composite("cudnn_affine_grid_generator_backward")
def affine_grid_generator_backward(grad, n, c, h, w):
    return aten.affine_grid_generator_backward(grad, [n, c, h, w], True)
