"""Results that are allocated in device memory at once, in repeated calls (core/result_memory.cc)."""

import torch
from cases import case, main, message
from torch import nn

CALLS = 4
SIZE = 64  # 64 x 64 floats are 16 KiB, above ResultMemory::MIN_NBYTES


def square(device):
    torch.manual_seed(1)
    return torch.randn(SIZE, SIZE, device="cpu").to(device)


def again(function):
    """Repeat a call and keep all results: each call must allocate as much memory, and give the CPU's values."""
    x = square("cuda")
    expected = function(square("cpu"))
    expected = expected if isinstance(expected, (tuple, list)) else [expected]
    kept, taken, peaks = [], [], []
    for _ in range(CALLS):
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        results = function(x)
        taken.append(torch.cuda.memory_allocated() - before)
        peaks.append(torch.cuda.max_memory_allocated() - before)
        kept.append(results if isinstance(results, (tuple, list)) else [results])
    assert len(set(taken)) == len(set(peaks)) == 1, (taken, peaks)
    for results in kept:
        for result, wanted in zip(results, expected, strict=True):
            assert result.is_cuda
            assert result.stride() == wanted.stride()
            assert torch.equal(result.cpu(), wanted)
    if x.is_floating_point() and kept[0][0].is_floating_point():
        before = kept[1][0].clone()
        kept[2][0].zero_()  # each result has memory of its own
        assert torch.equal(kept[1][0], before)


@case
def one_result():
    for function in (torch.exp, lambda x: x @ x, lambda x: x.sum(0), lambda x: torch.cat([x, x]), lambda x: x.t() + 1):
        again(function)


@case
def several_results():
    for function in (torch.linalg.qr, torch.linalg.svd, lambda x: x.sort(dim=0), lambda x: torch.unique(x.round()),
                     lambda x: x.topk(9), lambda x: torch.native_layer_norm(x, (SIZE,), None, None, 1e-5),
                     lambda x: torch._foreach_exp([x, x[0], x]), torch.aminmax):  # fmt: skip
        again(function)


@case
def results_that_depend_on_values():
    x = square("cuda")
    for threshold in (0.0, 1.0, -1.0, 0.0):
        assert torch.equal(x[x > threshold].cpu(), x.cpu()[x.cpu() > threshold])
        assert torch.equal((x > threshold).nonzero().cpu(), (x.cpu() > threshold).nonzero())


@case
def the_same_shapes_with_other_numbers():
    x = square("cuda")
    for dim in (0, 1, 0, 1):
        assert torch.equal(x.cumsum(dim).cpu(), x.cpu().cumsum(dim))
    for k in (0, 1, 2, 0):
        assert torch.equal(x.rot90(k).triu(k).cpu(), x.cpu().rot90(k).triu(k))


@case
def results_may_grow_and_be_recorded():
    x, stream = square("cuda"), torch.cuda.Stream()
    for _ in range(CALLS):
        y = x.exp()
        y.record_stream(stream)
        y.resize_(2 * SIZE, SIZE)
        assert torch.equal(y[:SIZE].cpu(), x.cpu().exp())
        out = torch.empty(0, device="cuda")
        assert torch.equal(torch.mm(x, x, out=out).cpu(), x.cpu() @ x.cpu())


@case
def the_same_error_each_time():
    x = torch.zeros(8 << 20, device="cuda")  # 32 MiB: an allocation of its own
    for _ in range(2):
        x.exp()
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1e-9)
    texts = [message(torch.OutOfMemoryError, torch.exp, x) for _ in range(CALLS)]
    texts.append(message(torch.OutOfMemoryError, torch.empty_like, x))
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert len(set(texts)) == 1, texts
    assert x.exp().sum().item() == x.numel()


@case
def inference_mode_and_other_threads():
    import threading

    model, x = nn.Linear(SIZE, SIZE).cuda(), square("cuda")
    wanted = model(x).detach().cpu()
    found = []

    def run():
        with torch.inference_mode():
            found.extend(model(x) for _ in range(CALLS))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2 * CALLS
    assert all(result.is_inference() and torch.equal(result.cpu(), wanted) for result in found)


main()
