"""Two processes with a simulated device each: training gives the weights of one process with all data (gloo)."""

import os
import sys
import tempfile
import traceback

import torch
import torch.distributed as dist
from torch import multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 3


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def data():
    torch.manual_seed(1)
    return torch.randn(6, 8), torch.randn(6, 4)


def train(module, x, y, **options):
    step = torch.optim.AdamW(module.parameters(), lr=0.01, **options)
    losses = []
    for _ in range(STEPS):
        step.zero_grad()
        loss = (module(x) - y).square().mean()
        loss.backward()
        step.step()
        losses.append(loss.item())
    return losses


def close(found, expected):
    return all(torch.allclose(a, b, atol=1e-6) for a, b in zip(found, expected, strict=True))


def collectives(rank):
    x = torch.full((3,), float(rank + 1), device=rank)
    dist.all_reduce(x)
    assert x.tolist() == [3.0] * 3
    gathered = [torch.zeros(3, device=rank) for _ in range(2)]
    dist.all_gather(gathered, torch.full((3,), float(rank), device=rank))
    assert [g[0].item() for g in gathered] == [0.0, 1.0]
    dist.broadcast(x := torch.full((2,), float(rank), device=rank), src=1)
    assert x.tolist() == [1.0, 1.0]


def data_parallel(rank):
    whole, (x, y) = model(), data()
    train(whole, x, y)
    ours = DistributedDataParallel(model().to(rank), device_ids=[rank])
    train(ours, x[rank::2].to(rank), y[rank::2].to(rank))
    assert close([p.detach().cpu() for p in ours.parameters()], list(whole.parameters()))


def fully_sharded(rank):
    from torch.distributed.fsdp import fully_shard

    whole, (x, y) = model(), data()
    train(whole, x, y)
    ours = model().to(rank)
    for layer in (ours[0], ours[2]):
        fully_shard(layer)
    fully_shard(ours)
    train(ours, x[rank::2].to(rank), y[rank::2].to(rank))
    # Compares only this rank's shards: for full_tensor(), gloo reads device memory as host memory, even on a GPU.
    assert close(
        [p.to_local().cpu() for p in ours.parameters()], [p.detach().chunk(2)[rank] for p in whole.parameters()]
    )


CASES = {case.__name__: case for case in (collectives, data_parallel, fully_sharded)}


def work(rank, folder, names):
    torch.cuda.set_device(rank)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    for name in names:
        try:
            CASES[name](rank)
            said = f"ok {name}"
        except Exception:
            said = f"failed {name} {traceback.format_exc()}"
        if rank == 0 or not said.startswith("ok"):
            print(said, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(work, (folder, sys.argv[1:] or list(CASES)), nprocs=2)
