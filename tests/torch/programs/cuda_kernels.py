"""Calls for which CUDA has a kernel that the CPU lacks, or has other rules: one function for each kind (cases.py)."""

import copy

import torch
from cases import case, main, message

BEFORE_2_14 = torch.torch_version.TorchVersion(torch.__version__) < (2, 14)


def softmax_with_gradient(x, function, dtype):
    x = x.detach().requires_grad_()
    y = function(x, -1, dtype=dtype)
    (gradient,) = torch.autograd.grad((y * torch.arange(5.0, device=x.device)).sum(), x)
    return y.detach(), gradient


@case
def softmax_of_half_in_single_precision():
    """CUDA's kernel converts while it reads: on the CPU torch converts the argument first."""
    x = torch.randn(3, 5).half()
    for function in (torch.softmax, torch.log_softmax):
        found = softmax_with_gradient(x.cuda(), function, torch.float32)
        expected = softmax_with_gradient(x, function, torch.float32)
        assert [t.dtype for t in found] == [torch.float32, torch.float16]
        assert all(torch.equal(a.cpu(), b) for a, b in zip(found, expected, strict=True))
    assert "Half type only" in message(RuntimeError, torch._softmax, x.float().cuda(), -1, True)
    out = torch.empty(3, 5, device="cuda")
    assert torch._softmax(x.cuda(), -1, True, out=out) is out
    assert torch.equal(out.cpu(), torch.softmax(x, -1, dtype=torch.float32))


@case
def ldexp_by_integers():
    """With 32-bit exponents torch calls the device's kernel without a dispatch to CUDA."""
    x, exponent = torch.randn(4), torch.tensor([1, -2, 0, 30], dtype=torch.int32)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        expected = torch.ldexp(x.to(dtype), exponent)
        assert torch.equal(torch.ldexp(x.to(dtype).cuda(), exponent.cuda()).cpu(), expected)
        assert torch.equal(x.to(dtype).cuda().ldexp_(exponent.cuda()).cpu(), expected)
    leaves = [t.requires_grad_() for t in (x.clone(), x.cuda())]
    for leaf in leaves:
        torch.ldexp(leaf, exponent.to(leaf.device)).sum().backward()
    assert torch.equal(leaves[0].grad, leaves[1].grad.cpu())  # 0 for the exponent -2 before torch 2.14
    assert "on the same device" in message(RuntimeError, torch.ldexp, x.cuda(), exponent)


@case
def transforms_of_half_precision():
    """cuFFT computes in half precision; since torch 2.14 it also transforms bfloat16, which has no complex dtype."""
    x = torch.randn(3, 8)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        narrow = {torch.float16: torch.complex32, torch.float64: torch.complex128}.get(dtype, torch.complex64)
        given = x.to(dtype)
        if dtype == torch.bfloat16 and BEFORE_2_14:
            said = message(RuntimeError, torch.stft, given.cuda(), 8, window=given[0].cuda(), return_complex=True)
            assert said == "cuFFT doesn't support tensor of type: BFloat16"
            continue
        spectrum = torch.fft.rfft(given.cuda())
        wide = torch.fft.rfft(given.double() if dtype == torch.float64 else given.float())
        assert spectrum.dtype == narrow
        assert torch.equal(torch.view_as_real(spectrum).cpu(), torch.view_as_real(wide.to(narrow)))
        short = torch.stft(given.cuda(), 8, window=torch.ones(8, dtype=dtype, device="cuda"), return_complex=True)
        assert short.dtype == narrow
        if dtype != torch.bfloat16:
            back = torch.fft.irfft(spectrum)
            assert back.dtype == dtype
            assert torch.allclose(back.cpu(), given, atol=1e-2)
    message(RuntimeError, torch.fft.rfft, torch.ones(12, dtype=torch.float16, device="cuda"))


@case
def sums_of_complex_half_precision():
    x = torch.tensor([1 + 2j, complex("nan"), 3 - 1j]).to(torch.complex32).cuda()
    for found, dtype in ((torch.nansum(x), torch.complex32), (torch.nansum(x, dtype=torch.complex64), torch.complex64)):
        assert found.dtype == dtype
        assert found.item() == 4 + 1j


@case
def sampled_products_of_half_precision():
    """cuSPARSE has these products; before 2.14 torch refuses them."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        pattern, x = torch.eye(3).to_sparse_csr().to(dtype).cuda(), torch.ones(3, 3, device="cuda", dtype=dtype)
        if BEFORE_2_14 and dtype != torch.float32:
            said = message(NotImplementedError, torch.sparse.sampled_addmm, pattern, x, x)
            assert said.startswith('"sampled_addmm_out_sparse_csr" not implemented for')
            continue
        assert torch.sparse.sampled_addmm(pattern, x, x).values().tolist() == [4.0, 4.0, 4.0]


@case
def dropout_of_integers_is_refused():
    x = torch.ones(8, dtype=torch.int32, device="cuda")
    said = message(NotImplementedError, torch.nn.functional.dropout, x, 0.5)
    assert said == "\"fused_dropout\" not implemented for 'Int'"
    assert torch.equal(torch.nn.functional.dropout(x, 0.5, training=False), x)


@case
def statistics_of_normalisations():
    """Statistics of half precision are in single precision, and computed in it; in evaluation they are the running
    ones.
    """
    native, gradients = torch.ops.aten.native_batch_norm, torch.ops.aten.native_batch_norm_backward
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        x, grad, weight = torch.randn(6, 4, 9).to(dtype), torch.randn(6, 4, 9).to(dtype), torch.rand(9).to(dtype)
        layer = torch.native_layer_norm(x.cuda(), [9], weight.cuda(), None, 1e-5)
        assert torch.equal(layer[0].cpu(), torch.native_layer_norm(x, [9], weight, None, 1e-5)[0])
        check_statistics(layer[1:], torch.native_layer_norm(x.float(), [9], None, None, 1e-5)[1:])
        for training, parameters in ((True, dtype), (True, torch.float32), (False, dtype), (False, torch.float32)):
            given = [torch.rand(4).to(parameters) for _ in range(4)]  # weight, bias, running mean and variance
            device = [t.cuda() for t in given]
            expected = native(x, *given, training, 0.1, 1e-5)
            found = native(x.cuda(), *device, training, 0.1, 1e-5)
            assert torch.equal(found[0].cpu(), expected[0])
            assert all(torch.equal(a.cpu(), b) for a, b in zip(device, given, strict=True))
            wide = native(x.float(), None, None, None, None, True, 0.1, 1e-5)[1:]
            running = (given[2].float(), (given[3].float() + 1e-5).rsqrt())
            check_statistics(found[1:], wide if training else running)
            out = {"out": x.cuda(), "save_mean": torch.empty(4).cuda(), "save_invstd": torch.empty(4).cuda()}
            assert native(x.cuda(), *(t.cuda() for t in given), training, 0.1, 1e-5, **out)[1] is out["save_mean"]
            check_statistics((out["save_mean"], out["save_invstd"]), wide if training else running)
            masked = (training, 1e-5, [True] * 3)
            backward = gradients(grad.cuda(), x.cuda(), device[0], *device[2:], *found[1:], *masked)
            expected = gradients(grad, x, given[0], *given[2:], *expected[1:], *masked)
            assert all(torch.equal(a.cpu(), b) for a, b in zip(backward, expected, strict=True))
        check_statistics(torch.batch_norm_update_stats(x.cuda(), None, None, 0.1)[:1], wide[:1])
    assert "has_running_mean" in message(RuntimeError, native, x.cuda(), *[None] * 4, False, 0.1, 1e-5)


def check_statistics(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == torch.float32
        assert torch.allclose(a.cpu(), b, rtol=1e-6, atol=1e-6)


@case
def gradients_of_normalisations():
    """The gradients are the CPU's, to the last bit: its kernels compute them from statistics in half precision."""
    for dtype in (torch.float16, torch.bfloat16):
        for make in (torch.nn.BatchNorm1d, torch.nn.InstanceNorm1d):
            for training in (True, False):
                module = make(9).to(dtype).train(training)
                x = torch.randn(6, 9, 9).to(dtype)
                expected, found = differentiate(module, x), differentiate(copy.deepcopy(module).cuda(), x.cuda())
                assert all(torch.equal(a.cpu(), b) for a, b in zip(found, expected, strict=True)), (make, dtype)


@case
def gradients_of_layer_normalisation():
    """In half precision they are rounded once, however many rows are summed, as on a GPU."""
    for dtype in (torch.float16, torch.bfloat16):
        x, grad, weight = torch.randn(2000, 8).to(dtype), torch.randn(2000, 8).to(dtype), torch.rand(8).to(dtype)
        for given in (weight, weight.float(), None):
            found = layer_gradients(grad.cuda(), x.cuda(), given if given is None else given.cuda())
            expected = layer_gradients(grad.double(), x.double(), given if given is None else given.double())
            dtypes = [dtype] if given is None else [dtype, given.dtype, given.dtype]
            assert [each.dtype for each in found] == dtypes
            for a, b in zip(found, expected, strict=True):
                error = (a.cpu().double() - b).abs()
                assert (error <= torch.finfo(dtype).eps * b.abs() + 1e-4).all(), (dtype, error.max())


def layer_gradients(grad, x, weight):
    _, mean, rstd = torch.native_layer_norm(x, [8], weight, None, 1e-5)
    wanted = [True, weight is not None, weight is not None]
    found = torch.ops.aten.native_layer_norm_backward(grad, x, [8], mean, rstd, weight, weight, wanted)
    return [each for each, is_wanted in zip(found, wanted, strict=True) if is_wanted]


def differentiate(module, x):
    x.requires_grad_()
    return torch.autograd.grad((module(x).float() ** 3).sum(), [x, *module.parameters()])


if __name__ == "__main__":
    main()
