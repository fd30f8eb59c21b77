"""Work for two GPUs, natively or through vgpud: `python tests/gpu/several.py TASK` prints one line of JSON.

`results` must equal the other side's bit for bit; `rates` (GB/s, or steps a second) are printed for both sides.
The frameworks are those installed on the machine.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

MB = 1 << 20
Report = dict[str, dict[str, Any]]


def rate(work: Callable[[], Any], wait: Callable[[], Any], amount: float, rounds: int = 5, repeat: int = 10) -> float:
    """`amount` of a call of `work` divided by the time of a call: the median over the rounds."""
    work()
    wait()
    rates = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(repeat):
            work()
        wait()
        rates.append(amount * repeat / (time.perf_counter() - begin))
    return round(sorted(rates)[rounds // 2], 3)


def torch_peers() -> Report:
    """Copies between devices, and peer access."""
    import torch

    count = 256 * MB // 4
    first = torch.arange(count, dtype=torch.int32, device="cuda:0")
    second = torch.zeros(count, dtype=torch.int32, device="cuda:1")
    second.copy_(first)
    back = (second * 3).to("cuda:0")
    results = {
        "access": [torch.cuda.can_device_access_peer(0, 1), torch.cuda.can_device_access_peer(1, 0)],
        "there": int(second.sum()),
        "back": bool(torch.equal(back, first * 3)),
    }

    def wait() -> None:
        torch.cuda.synchronize(0)
        torch.cuda.synchronize(1)

    return {
        "results": results,
        "rates": {
            "0 to 1, GB/s": rate(lambda: second.copy_(first), wait, 4 * count / 1e9),
            "1 to 0, GB/s": rate(lambda: first.copy_(second), wait, 4 * count / 1e9),
        },
    }


def cupy_peers() -> Report:
    """cudaMemcpyPeer, a kernel that reads the other device's memory, and CuPy's own copies."""
    import cupy

    runtime = cupy.cuda.runtime
    with cupy.cuda.Device(1):
        there = cupy.arange(64 * MB // 4, dtype=cupy.int32)
        cupy.cuda.Device().synchronize()
    with cupy.cuda.Device(0):
        here = cupy.zeros_like(there)
        runtime.memcpyPeer(here.data.ptr, 0, there.data.ptr, 1, here.nbytes)
        copied = int(here.sum())
        runtime.deviceEnablePeerAccess(1)
        add = cupy.RawKernel(
            r"extern \"C\" __global__ void add(int *a, const int *b, int n) {"
            r" int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) a[i] += b[i]; }".replace(r"\"", '"'),
            "add",
        )
        add((here.size // 256,), (256,), (here, there, here.size))
        kernel = bool((here == 2 * cupy.arange(here.size, dtype=cupy.int32)).all())
        own = int(cupy.asarray(there).sum())  # the array moves to the current device
        stream = cupy.cuda.get_current_stream()
        gbps = rate(
            lambda: runtime.memcpyPeerAsync(here.data.ptr, 0, there.data.ptr, 1, here.nbytes, stream.ptr),
            stream.synchronize,
            here.nbytes / 1e9,
        )
    return {"results": {"copied": copied, "kernel": kernel, "own": own}, "rates": {"1 to 0, GB/s": gbps}}


def nccl_one_process() -> Report:
    """NCCL with both devices in one process, and DataParallel."""
    import torch

    tensors = [torch.full((64 * MB,), float(device + 1), device=f"cuda:{device}") for device in range(2)]
    torch.cuda.nccl.all_reduce(tensors)
    sums = [float(t.sum()) for t in tensors]

    def wait() -> None:
        torch.cuda.synchronize(0)
        torch.cuda.synchronize(1)

    gbps = rate(lambda: torch.cuda.nccl.all_reduce(tensors), wait, tensors[0].nbytes / 1e9)
    torch.manual_seed(0)
    model = torch.nn.DataParallel(torch.nn.Linear(256, 256).cuda(), device_ids=[0, 1])
    loss = model(torch.ones(64, 256, device="cuda:0")).square().mean()
    loss.backward()
    return {
        "results": {"sums": sums, "loss": float(loss).hex(), "gradient": float(model.module.weight.grad.sum()).hex()},
        "rates": {"all-reduce, GB/s": gbps},
    }


def _ranks(work: Callable[[int], Report]) -> Report:
    """Run `work` in two processes, one for each device; returns both results, and the rates of the first process."""
    import torch
    import torch.multiprocessing

    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_rank, args=(work.__name__, folder), nprocs=2)
        with open(f"{folder}/0.json") as file:
            first: Report = json.load(file)
        with open(f"{folder}/1.json") as file:
            second: Report = json.load(file)
    return {"results": {"0": first["results"], "1": second["results"]}, "rates": first["rates"]}


def _rank(rank: int, name: str, folder: str) -> None:
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    report = globals()[name](rank)
    dist.barrier()
    dist.destroy_process_group()
    with open(f"{folder}/{rank}.json", "w") as file:
        json.dump(report, file)


def _collectives(rank: int) -> Report:
    import torch
    import torch.distributed as dist

    own = torch.arange(1 << 20, dtype=torch.float32, device="cuda") + rank
    results = {}
    reduced = own.clone()
    dist.all_reduce(reduced)
    results["all-reduce"] = bool(torch.equal(reduced, own * 2 + (1 - 2 * rank)))
    parts = [torch.empty_like(own) for _ in range(2)]
    dist.all_gather(parts, own)
    results["all-gather"] = [float(part[1]) for part in parts]
    half = torch.empty(1 << 19, device="cuda")
    dist.reduce_scatter_tensor(half, own)
    results["reduce-scatter"] = float(half[0])
    from_other = torch.empty_like(own)
    sending = dist.isend(own, 1 - rank) if rank == 0 else None
    dist.recv(from_other, 1 - rank) if rank else None
    if sending:
        sending.wait()
        dist.recv(from_other, 1)
    else:
        dist.send(own, 0)
    results["send and receive"] = float(from_other[0])
    big = torch.ones(64 * MB, device="cuda")
    gbps = rate(lambda: dist.all_reduce(big), torch.cuda.synchronize, big.nbytes / 1e9)
    small = torch.ones(1024, device="cuda")
    calls = rate(lambda: dist.all_reduce(small), torch.cuda.synchronize, 1, repeat=200)
    return {"results": results, "rates": {"all-reduce of 256 MB, GB/s": gbps, "of 4 KB, calls a second": calls}}


def _train(rank: int, wrap: Callable[[Any], Any]) -> Report:
    import torch

    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(1024, 1024), torch.nn.ReLU())]
    model = wrap(torch.nn.Sequential(*layers).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    data = torch.randn(64, 1024, device="cuda")
    losses = []

    def step() -> None:
        optimizer.zero_grad()
        loss = model(data).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    for _ in range(5):
        step()
    results = {"losses": [float(loss).hex() for loss in losses]}
    return {"results": results, "rates": {"steps a second": rate(step, torch.cuda.synchronize, 1, repeat=20)}}


def _ddp(rank: int) -> Report:
    from torch.nn.parallel import DistributedDataParallel

    return _train(rank, lambda model: DistributedDataParallel(model, device_ids=[rank]))


def _fsdp(rank: int) -> Report:
    from torch.distributed.fsdp import fully_shard

    def wrap(model: Any) -> Any:
        for layer in list(model)[::2]:
            fully_shard(layer)
        return fully_shard(model)

    return _train(rank, wrap)


def nccl_ranks() -> Report:
    """NCCL with a process for each device."""
    return _ranks(_collectives)


def ddp() -> Report:
    """Data-parallel training, two ranks."""
    return _ranks(_ddp)


def fsdp() -> Report:
    """Training with sharded parameters, two ranks."""
    return _ranks(_fsdp)


def jax_pmap() -> Report:
    """A sum over two devices, and a gradient with sharded data."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    total = jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i")(jnp.arange(2048.0).reshape(2, 1024))
    mesh = Mesh(jax.devices()[:2], ("data",))
    data = jax.device_put(jnp.arange(4096.0).reshape(64, 64) / 4096, NamedSharding(mesh, PartitionSpec("data")))
    weights = jax.device_put(jnp.eye(64), NamedSharding(mesh, PartitionSpec()))
    gradient = jax.jit(jax.grad(lambda w, x: jnp.mean((x @ w) ** 2)))(weights, data)
    big = jnp.ones((2, 64 * MB))
    reduce = jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i")
    kept = [reduce(big)]

    def again() -> None:
        kept[0] = reduce(big)

    gbps = rate(again, lambda: kept[0].block_until_ready(), 4 * 64 * MB / 1e9)
    results = {"sum": float(total[0].sum()), "same": bool((total[0] == total[1]).all())}
    results["gradient"] = float(gradient.sum()).hex()
    return {"results": results, "rates": {"psum, GB/s": gbps}}


TASKS = (torch_peers, nccl_ranks, nccl_one_process, ddp, jax_pmap, cupy_peers, fsdp)

if __name__ == "__main__":
    print(json.dumps({task.__name__: task for task in TASKS}[sys.argv[1]]()))
