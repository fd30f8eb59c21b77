"""Two processes with a simulated device each, over NCCL: collectives, and DDP's weights are those of one process."""

import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from distributed import STEPS, close, data, model, train
from torch import multiprocessing
from torch.nn.parallel import DistributedDataParallel


def work(rank, folder):
    begin = time.monotonic()
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=rank, world_size=2,
                            device_id=torch.device("cuda", rank))  # fmt: skip
    x = torch.full((3,), float(rank + 1), device=rank)
    dist.all_reduce(x)
    assert x.tolist() == [3.0] * 3
    said = ["all_reduce"]
    gathered = [torch.zeros(3, device=rank) for _ in range(2)]
    dist.all_gather(gathered, torch.full((3,), float(rank), device=rank))
    assert [g[0].item() for g in gathered] == [0.0, 1.0]
    dist.broadcast(y := torch.full((2,), float(rank), device=rank), src=1)
    assert y.tolist() == [1.0, 1.0]
    said += ["all_gather", "broadcast"]
    whole, (inputs, targets) = model(), data()
    train(whole, inputs, targets)
    ours = DistributedDataParallel(model().to(rank), device_ids=[rank])
    losses = train(ours, inputs[rank::2].to(rank), targets[rank::2].to(rank))
    assert len(losses) == STEPS
    assert close([p.detach().cpu() for p in ours.parameters()], list(whole.parameters()))
    said += ["data_parallel"]
    if rank == 0:
        print(*(f"ok {name}" for name in said), sep="\n", flush=True)
        print(f"{time.monotonic() - begin:.0f} s", file=sys.stderr)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(work, (folder,), nprocs=2)
