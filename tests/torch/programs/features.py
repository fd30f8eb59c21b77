"""Features of torch.cuda that programs use besides operators: one function for each feature (cases.py)."""

import io
import os
import warnings

import torch
from cases import case, main, message
from torch import nn
from torch.nn import functional as F  # noqa: N812


@case
def streams_and_events():
    stream, begin, end = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    x = torch.zeros(10000, device="cuda")
    begin.record()
    with torch.cuda.stream(stream):
        stream.wait_event(begin)
        x.add_(1)
        x.record_stream(stream)
        end.record(stream)
    torch.cuda.current_stream().wait_stream(stream)
    end.synchronize()
    assert x.sum().item() == 10000
    assert end.query()
    assert begin.elapsed_time(end) >= 0


@case
def pinned_memory_and_loader():
    data = torch.utils.data.TensorDataset(torch.arange(64.0).view(64, 1))
    total = 0
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=16, pin_memory=True, num_workers=2):
        assert batch.is_pinned()
        total += batch.to("cuda", non_blocking=True).sum().item()
    assert total == 2016


@case
def save_and_load():
    model, file = nn.Linear(4, 4).cuda(), io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    again = torch.load(file)
    file.seek(0)
    assert again["weight"].is_cuda
    assert torch.equal(again["weight"].cpu(), torch.load(file, map_location="cpu")["weight"])


def scaled_training(device, dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2)).to(device)
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler(device)
    x, losses = torch.randn(8, 32).to(device), []
    for _ in range(5):
        optimizer.zero_grad()
        with torch.autocast(device, dtype=dtype):
            y = model(x)
            loss = y.float().square().mean()
        assert y.dtype == dtype
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses, model, optimizer, scaler, x


@case
def autocast_and_scaler():
    for dtype in (torch.bfloat16, torch.float16):
        losses, model, optimizer, scaler, x = scaled_training("cuda", dtype)
        assert losses == scaled_training("cpu", dtype)[0]
        assert losses[-1] < losses[0]
    optimizer.zero_grad()
    scaler.scale(model(x).sum() * float("inf")).backward()
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == before / 2  # an overflow was found, and the step left out


@case
def memory_statistics():
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    x = torch.empty(1 << 20, device="cuda")
    assert torch.cuda.memory_allocated() - before == 4 << 20
    x + 1
    assert torch.cuda.max_memory_allocated() - before == 8 << 20
    assert torch.cuda.memory_snapshot()


@case
def out_of_memory():
    said = message(torch.cuda.OutOfMemoryError, torch.empty, 1 << 40, device="cuda")
    assert "CUDA out of memory. Tried to allocate 4096.00 GiB" in said
    assert torch.ones(2, device="cuda").sum().item() == 2


@case
def recurrent_networks():
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        torch.manual_seed(0)
        model, x = kind(6, 5, 2, batch_first=True, bidirectional=True), torch.randn(3, 7, 6)
        cpu = model(x)[0]
        cpu.sum().backward()
        gradient = model.weight_ih_l0.grad.clone()
        model.zero_grad()
        model.cuda()
        cuda = model(x.cuda())[0]
        cuda.sum().backward()
        assert torch.allclose(cpu, cuda.cpu(), atol=1e-6)
        assert torch.allclose(gradient, model.weight_ih_l0.grad.cpu(), atol=1e-5)


@case
def packed_sequences():
    sequences = [torch.randn(3, 4), torch.randn(2, 4)]
    model = nn.LSTM(4, 4)
    cpu = model(nn.utils.rnn.pack_sequence(sequences))[0].data
    packed = nn.utils.rnn.pack_sequence([s.cuda() for s in sequences])
    assert torch.allclose(cpu, model.cuda()(packed)[0].data.cpu(), atol=1e-6)


@case
def batch_norm_keeps_its_statistics():
    """native_batch_norm writes to arguments that its schema does not mark as written."""
    cpu, x = nn.BatchNorm2d(4), torch.randn(3, 4, 5, 5)
    cuda = nn.BatchNorm2d(4).cuda()
    cpu(x)
    cuda(x.cuda())
    assert torch.equal(cpu.running_mean, cuda.running_mean.cpu())
    assert torch.equal(cpu.running_var, cuda.running_var.cpu())
    assert cuda.running_mean.abs().sum() > 0


@case
def attention_kernels():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q = torch.randn(1, 2, 8, 16, device="cuda", dtype=torch.half)
    sums = []
    backends = (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION)
    for backend in backends:
        with sdpa_kernel(backend):
            leaf = q.clone().requires_grad_()
            out = F.scaled_dot_product_attention(leaf, leaf, leaf, is_causal=True)
            out.float().sum().backward()
            sums.append((out.float().sum().item(), leaf.grad.float().sum().item()))
    for value, gradient in sums[1:]:
        assert abs(value - sums[0][0]) < 0.1
        assert abs(gradient - sums[0][1]) < 0.3


@case
def attention_with_grouped_queries():
    q, k, v = (torch.randn(2, heads, 16, 16) for heads in (4, 2, 2))
    results = []
    for device in ("cpu", "cuda"):
        leaves = [t.to(device).detach().requires_grad_() for t in (q, k, v)]
        out = F.scaled_dot_product_attention(*leaves, is_causal=True, enable_gqa=True)
        out.square().sum().backward()
        results.append([out, *(leaf.grad for leaf in leaves)])
    for cpu, cuda in zip(*results, strict=True):
        assert torch.equal(cpu, cuda.cpu())


@case
def checkpointing():
    from torch.utils.checkpoint import checkpoint

    x = torch.randn(4, 4, device="cuda", requires_grad=True)
    kept = []

    def body(value):
        result = F.dropout(value.tanh(), 0.5)
        kept.append(result.detach() != 0)
        return result.sum()

    checkpoint(body, x, use_reentrant=False).backward()
    assert torch.equal(kept[0], x.grad != 0)  # the recomputation draws the same random numbers


@case
def transforms():
    from torch.func import grad, jacrev, vmap

    x = torch.randn(3, 2, device="cuda")
    assert torch.allclose(vmap(grad(lambda v: (v**3).sum()))(x), 3 * x**2)
    assert jacrev(torch.sin)(x[0]).is_cuda


@case
def sparse_tensors():
    eye = torch.eye(4, device="cuda")
    assert (eye.to_sparse() @ torch.ones(4, 2, device="cuda")).sum().item() == 8
    assert (eye.to_sparse_csr() @ torch.ones(4, 2, device="cuda")).sum().item() == 8
    assert (eye.to_sparse() + eye.to_sparse()).coalesce().values().tolist() == [2.0] * 4
    model = nn.Embedding(10, 4, sparse=True).cuda()
    optimizer = torch.optim.SparseAdam(model.parameters())
    model(torch.tensor([1, 2, 1], device="cuda")).sum().backward()
    optimizer.step()


@case
def linear_algebra():
    x = torch.randn(8, 8, device="cuda")
    assert torch.allclose(torch.linalg.inv(x) @ x, torch.eye(8, device="cuda"), atol=1e-2)
    assert torch.fft.fft2(x).dtype == torch.complex64
    assert torch.linalg.svd(x)[1].is_cuda


@case
def low_precision():
    x = torch.randn(16, 16, device="cuda")
    f = x.to(torch.float8_e4m3fn)
    one = torch.tensor(1.0, device="cuda")
    assert torch._scaled_mm(f, f.t(), one, one, out_dtype=torch.bfloat16).dtype == torch.bfloat16
    ones = torch.ones(32, 32, dtype=torch.int8, device="cuda")
    assert torch._int_mm(ones, ones).sum().item() == 32**3


@case
def optimizers():
    kinds = (
        (torch.optim.Adam, {"foreach": True}),
        (torch.optim.AdamW, {"fused": True}),
        (torch.optim.AdamW, {"capturable": True}),
        (torch.optim.SGD, {"momentum": 0.9, "fused": True}),
        (torch.optim.Adagrad, {}),
        (torch.optim.RMSprop, {}),
        (torch.optim.LBFGS, {}),
    )
    for kind, options in kinds:
        model, x = nn.Linear(4, 4).cuda(), torch.randn(3, 4, device="cuda")
        optimizer = kind(model.parameters(), lr=0.01, **options)

        def loss(model=model, x=x, optimizer=optimizer):
            optimizer.zero_grad()
            value = model(x).square().sum()
            value.backward()
            return value

        first = loss().item()
        for _ in range(3):
            optimizer.step(loss)
        assert loss().item() < first, kind


@case
def distributed_over_gloo():
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    store = dist.HashStore()
    dist.init_process_group("gloo", rank=0, world_size=1, store=store)
    try:
        model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4).cuda())
        model(torch.randn(2, 4, device="cuda")).sum().backward()
        x = torch.ones(3, device="cuda")
        dist.all_reduce(x)
        assert x.tolist() == [1.0] * 3
    finally:
        dist.destroy_process_group()


@case
def interchange():
    x = torch.arange(4.0, device="cuda")
    assert torch.from_dlpack(x).data_ptr() == x.data_ptr()
    assert x.__cuda_array_interface__["data"][0] == x.data_ptr()


@case
def half_convolution_with_batch_norm():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        y = model(torch.randn(2, 3, 8, 8, device="cuda").to(memory_format=torch.channels_last))
    y.float().sum().backward()
    assert y.dtype == torch.bfloat16
    assert model[0].weight.grad.dtype == torch.float32


@case
def refusals_by_name():
    x = torch.ones(1, 1, 4, 4, device="cuda")
    arguments = (x, x, None, [0, 0], [1, 1], [1, 1], 1, False, False)
    said = message(NotImplementedError, torch.ops.aten.miopen_convolution, *arguments)
    assert "vgpu: aten::miopen_convolution is not simulated" in said


@case
def synchronisations_are_named():
    """With set_sync_debug_mode("error"), calls that wait for the device raise, and all others run."""
    x, i = torch.arange(4.0, device="cuda"), torch.tensor([0, 1], device="cuda")
    z, two = x.clone(), x[2:].clone()
    torch.cuda.set_sync_debug_mode("error")
    try:
        y = (x + 1).sum()
        z[i] = x[i + 1] * two
        z[x > 2] = 0.0
        waiting = (
            y.item,
            x.nonzero,
            x.cpu,
            lambda: x[x > 1],
            lambda: torch.unique(x),
            lambda: z.index_put_((x > 1,), two),
        )
        for function in waiting:
            assert message(RuntimeError, function) == "called a synchronizing CUDA operation"
        assert x.to("cpu", non_blocking=True).shape == (4,)
        torch.cuda.set_sync_debug_mode("warn")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert y.item() == 10
        assert "called a synchronizing CUDA operation" in str(caught[0].message)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@case
def nondeterministic_algorithms_are_refused():
    image = torch.ones(1, 1, 6, 6, device="cuda", requires_grad=True)
    volume = torch.ones(1, 1, 4, 4, 4, device="cuda", requires_grad=True)
    x, index = torch.ones(6, device="cuda"), torch.tensor([1], device="cuda")
    classes = torch.zeros(1, 6, 6, dtype=torch.long, device="cuda")
    pooled, where = F.max_pool2d(image.detach(), 2, return_indices=True)
    refused = {
        "adaptive_avg_pool2d_backward_cuda": lambda: F.adaptive_avg_pool2d(image, 2).sum().backward(),
        "avg_pool3d_backward_cuda": lambda: F.avg_pool3d(volume, 2).sum().backward(),
        "reflection_pad2d_backward_cuda": lambda: F.pad(image, (1, 1, 1, 1), mode="reflect").sum().backward(),
        "upsample_bicubic2d_backward_out_cuda": lambda: (
            F.interpolate(image, scale_factor=2, mode="bicubic").sum().backward()
        ),
        "grid_sampler_2d_backward_cuda": lambda: (
            F.grid_sample(image, torch.zeros(1, 2, 2, 2, device="cuda")).sum().backward()
        ),
        "nll_loss2d_forward_out_cuda_template": lambda: F.nll_loss(image.expand(1, 2, 6, 6), classes),
        "max_unpooling2d_forward_out": lambda: F.max_unpool2d(pooled, where, 2),
        "median CUDA with indices output": lambda: x.median(0),
        "_bincount_cuda": lambda: torch.bincount(index, weights=x[:1]),
        "_histc_cuda with floating point input": lambda: torch.histc(x, 4),
        "kthvalue CUDA": lambda: x.kthvalue(2),
        "put_": lambda: x.clone().put_(index, x[:1], accumulate=True),
    }
    torch.use_deterministic_algorithms(True)
    try:
        for kernel, function in refused.items():
            assert message(RuntimeError, function).startswith(f"{kernel} does not have a deterministic implementation")
        F.nll_loss(image.expand(1, 2, 6, 6), classes, reduction="none")
        torch.bincount(index)
        x.median()
        x.cumsum(0), x.index_add(0, index, x[:1]), x.scatter_add(0, index, x[:1])
    finally:
        torch.use_deterministic_algorithms(False)
    for function in refused.values():
        function()


@case
def memory_of_the_process_has_a_limit():
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total == torch.cuda.get_device_properties(0).total_memory
    before = torch.cuda.memory_stats()
    torch.cuda.set_per_process_memory_fraction(0.001)
    try:
        said = message(torch.cuda.OutOfMemoryError, torch.empty, total // 500, dtype=torch.uint8, device="cuda")
        for text in ("Tried to allocate", "GPU 0 has a total capacity of", "allowed; Of the allocated memory"):
            assert text in said, said
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    x = torch.empty(3 << 20, device="cuda")
    after = torch.cuda.memory_stats()
    assert after["num_ooms"] == before["num_ooms"] + 1
    assert after["allocation.all.current"] == before["allocation.all.current"] + 1
    assert after["active_bytes.all.current"] == before["active_bytes.all.current"] + (12 << 20)
    assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
    assert "Allocated memory" in torch.cuda.memory_summary()
    assert any(b["state"] == "active_allocated" for s in torch.cuda.memory_snapshot() for b in s["blocks"])
    del x


@case
def a_step_has_its_peak():
    """Peak memory is that of a GPU, where an operator's result is allocated while its arguments still exist."""
    torch.cuda.empty_cache()
    x = torch.ones(1 << 20, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    ((x * 2) + 1).sum().item()
    assert torch.cuda.max_memory_allocated() - before == 8 << 20
    torch.cuda.reset_peak_memory_stats()
    x.mul_(2).add_(1)
    assert torch.cuda.max_memory_allocated() == before


def quantized_alike(cpu, cuda):
    """Whether the CPU's and the device's results agree: integers, quantizer and device."""
    assert cuda.is_cuda
    assert (cpu.dtype, cpu.shape) == (cuda.dtype, cuda.shape)
    if not cpu.is_quantized:
        return torch.equal(cpu, cuda.cpu())
    assert cpu.qscheme() == cuda.qscheme()
    assert torch.equal(cpu.dequantize(), cuda.dequantize().cpu())
    return torch.equal(cpu.int_repr(), cuda.int_repr().cpu())


@case
def quantized():
    x, scales, zeros = torch.randn(4, 6, 8, 8), torch.rand(6) + 0.1, torch.arange(6)

    def per_channel(x):
        return torch.quantize_per_channel(x, scales.to(x.device), zeros.to(x.device), 1, torch.qint8)

    def written(x):
        copied = x.clone()
        copied[0] = x[1]
        copied.masked_fill_(x.int_repr() > 3, 0.5)
        copied[1].fill_(1.0)
        return copied.relu_()

    for make in (lambda x: torch.quantize_per_tensor(x, 0.1, 3, torch.qint8), per_channel):
        cpu, cuda = make(x), make(x.cuda())
        assert quantized_alike(cpu, cuda)
        assert quantized_alike(cpu, cpu.cuda())
        assert torch.equal(cuda.cpu().int_repr(), cpu.int_repr())
        for change in (lambda x: x.clone(), lambda x: torch.empty_like(x).copy_(x)):
            assert quantized_alike(change(cpu), change(cuda))
    assert per_channel(x.cuda()).q_per_channel_scales().is_cuda
    cpu, cuda = (torch.quantize_per_tensor(t, 0.1, 3, torch.qint8) for t in (x, x.cuda()))
    other = torch.quantize_per_tensor(x, 0.3, 1, torch.qint8)
    for change in (
        written,
        lambda x: x.relu(),
        lambda x: x.flip(0),
        lambda x: x[1:3].transpose(0, 1).contiguous(),
        lambda x: x.index_select(0, torch.tensor([2, 0], device=x.device)),
        lambda x: x.max(1)[0],
        lambda x: x.view(4, -1),
        lambda x: F.max_pool2d(x, 2),
        lambda x: F.adaptive_avg_pool2d(x, (2, 2)),
        lambda x: F.gelu(x),
        lambda x: torch.ops.quantized.add(x, x, 0.2, 0),
        lambda x: torch.empty_like(x).copy_(x.dequantize()),
        lambda x: x.clone().transpose(2, 3).copy_(other.to(x.device)),  # copy_ adopts the source's quantizer
        lambda x: torch.quantize_per_tensor_dynamic(x.dequantize(), torch.quint8, False),
        lambda x: torch.fake_quantize_per_tensor_affine(x.dequantize(), 0.1, 0, -128, 127),
    ):
        assert quantized_alike(change(cpu), change(cuda)), change
    refused = message(NotImplementedError, torch.ops.quantized.linear_prepack, cuda[0, 0], None)
    assert "quantized::linear_prepack is not simulated" in refused
    assert "aten::cos" in message(NotImplementedError, torch.cos, cuda)


if __name__ == "__main__":
    main()
