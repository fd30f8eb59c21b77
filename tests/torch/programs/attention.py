"""Attention over packed sequences of different lengths, and its kernels, compared with attention on the CPU."""

import torch
from cases import case, main, message
from torch.nn import functional as F  # noqa: N812
from torch.nn.attention.varlen import varlen_attn

QUERIES, KEYS = [0, 3, 10, 10, 12], [0, 5, 12, 15, 20]  # the third sequence has no query


def ends(numbers):
    return torch.tensor(numbers, dtype=torch.int32, device="cuda")


def one(q, k, v, window, bias=None):
    """Attention of one sequence; shapes (length, heads, width). The diagonal ends at the last query and last key."""
    distance = torch.arange(len(k)) - torch.arange(len(q))[:, None] - (len(k) - len(q))
    seen = torch.ones_like(distance, dtype=torch.bool)
    if window[0] >= 0:
        seen &= distance >= -window[0]
    if window[1] >= 0:
        seen &= distance <= window[1]
    mask = torch.zeros(seen.shape).masked_fill(~seen, float("-inf"))
    mask = mask if bias is None else mask + bias
    parts = (t.transpose(0, 1).float() for t in (q, k, v))
    return F.scaled_dot_product_attention(*parts, attn_mask=mask).transpose(0, 1).to(q.dtype)


def packed(q, k, v, window):
    pairs = zip(QUERIES[:-1], QUERIES[1:], KEYS[:-1], KEYS[1:], strict=True)
    return torch.cat([one(q[a:b], k[c:d], v[c:d], window) for a, b, c, d in pairs])


def check_gradients(on_cuda, on_cpu, inputs, tolerance):
    """Results and gradients of the same function of `inputs`, which are on the CPU."""
    device = [t.cuda().requires_grad_() for t in inputs]
    host = [t.clone().requires_grad_() for t in inputs]
    got, wanted = on_cuda(*device), on_cpu(*host)
    torch.testing.assert_close(got.cpu(), wanted, rtol=tolerance, atol=tolerance)
    grad = torch.randn_like(wanted)
    got.backward(grad.cuda())
    wanted.backward(grad)
    for x, y in zip(device, host, strict=True):
        torch.testing.assert_close(x.grad.cpu(), y.grad, rtol=tolerance, atol=tolerance)


@case
def packed_sequences():
    for dtype in (torch.half, torch.bfloat16):
        for window in ((-1, -1), (-1, 0), (2, 1)):
            shapes = ((12, 4, 16), (20, 4, 16), (20, 4, 16))
            inputs = [torch.randn(shape, dtype=dtype) for shape in shapes]
            check_gradients(
                lambda q, k, v, w=window: varlen_attn(q, k, v, ends(QUERIES), ends(KEYS), 7, 8, window_size=w),
                lambda q, k, v, w=window: packed(q, k, v, w),
                inputs,
                2e-2,
            )


@case
def many_queries():
    """From 129 queries on, torch uses cuDNN's kernel."""
    q = torch.randn(300, 2, 16, dtype=torch.half)
    got = varlen_attn(q.cuda(), q.cuda(), q.cuda(), ends([0, 150, 300]), ends([0, 150, 300]), 150, 150)
    wanted = torch.cat([one(part, part, part, (-1, -1)) for part in (q[:150], q[150:])])
    torch.testing.assert_close(got.cpu(), wanted, rtol=1e-2, atol=1e-2)


@case
def efficient_with_a_bias():
    shapes = ((2, 5, 3, 8), (2, 7, 3, 8), (2, 7, 3, 8), (2, 3, 5, 7))

    def on_cuda(q, k, v, bias):
        out, lse, _, _, max_q, max_k = torch.ops.aten._efficient_attention_forward(
            q, k, v, bias, None, None, None, None, 0.0, 2, compute_log_sumexp=True
        )
        assert (lse.shape, max_q, max_k) == ((2, 3, 32), 5, 7)
        return out

    def on_cpu(q, k, v, bias):
        rows = zip(q, k, v, bias, strict=True)
        return torch.stack([one(q_row, k_row, v_row, (-1, 0), row_bias) for q_row, k_row, v_row, row_bias in rows])

    check_gradients(on_cuda, on_cpu, [torch.randn(shape) for shape in shapes], 1e-5)


@case
def what_a_gpu_refuses():
    q = torch.randn(2, 3, 4, 8, device="cuda")
    arguments = (None, None, 3, 3, 0.0, False, False)
    text = message(RuntimeError, torch.ops.aten._flash_attention_forward, q, q, q, *arguments)
    assert "only support fp16 and bf16" in text
    half = q.half()
    slopes = torch.ones(4, device="cuda")
    text = message(NotImplementedError, torch.ops.aten._flash_attention_forward, half, half, half, *arguments,
                   alibi_slopes=slopes)  # fmt: skip
    assert "alibi_slopes" in text


main()
