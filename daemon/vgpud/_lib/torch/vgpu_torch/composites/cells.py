"""Fused LSTM and GRU cells."""

from __future__ import annotations

import torch

from . import composite


@composite("_thnn_fused_lstm_cell")
def lstm_cell(input_gates, hidden_gates, cx, input_bias=None, hidden_bias=None):
    gates = input_gates + hidden_gates
    if input_bias is not None:
        gates = gates + input_bias + hidden_bias
    i, f, c, o = gates.chunk(4, 1)
    i, f, c, o = i.sigmoid(), f.sigmoid(), c.tanh(), o.sigmoid()
    cy = f * cx + i * c
    return o * cy.tanh(), cy, torch.cat([i, f, c, o], 1)


@composite("_thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(grad_hy, grad_cy, cx, cy, workspace, has_bias):
    i, f, c, o = workspace.chunk(4, 1)
    t = cy.tanh()
    grad_o, grad_c = torch.zeros_like(o), torch.zeros_like(cx)
    if grad_hy is not None:
        grad_c = o * (1 - t * t) * grad_hy
        grad_o = grad_hy * t * o * (1 - o)
    if grad_cy is not None:
        grad_c = grad_c + grad_cy
    gates = torch.cat([grad_c * c * i * (1 - i), grad_c * cx * f * (1 - f), grad_c * i * (1 - c * c), grad_o], 1)
    return gates, grad_c * f, gates.sum(0) if has_bias else None


@composite("_thnn_fused_gru_cell")
def gru_cell(input_gates, hidden_gates, hx, input_bias=None, hidden_bias=None):
    if input_bias is not None:
        input_gates, hidden_gates = input_gates + input_bias, hidden_gates + hidden_bias
    input_r, input_z, input_n = input_gates.chunk(3, 1)
    hidden_r, hidden_z, hidden_n = hidden_gates.chunk(3, 1)
    r, z = (input_r + hidden_r).sigmoid(), (input_z + hidden_z).sigmoid()
    n = (input_n + r * hidden_n).tanh()
    return n + z * (hx - n), torch.cat([r, z, n, hx, hidden_n], 1)


@composite("_thnn_fused_gru_cell_backward")
def gru_cell_backward(grad_hy, workspace, has_bias):
    r, z, n, hx, hidden_n = workspace.chunk(5, 1)
    grad_z = grad_hy * (hx - n) * z * (1 - z)
    grad_n = grad_hy * (1 - z) * (1 - n * n)
    grad_r = grad_n * hidden_n * r * (1 - r)
    input_gates = torch.cat([grad_r, grad_z, grad_n], 1)
    hidden_gates = torch.cat([grad_r, grad_z, grad_n * r], 1)
    biases = (input_gates.sum(0), hidden_gates.sum(0)) if has_bias else (None, None)
    return input_gates, hidden_gates, grad_hy * z, *biases
