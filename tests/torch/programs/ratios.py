"""The same work on the CPU and on the simulated device, in turns: quartiles of the ratio.

It prints ratios of wall-clock time and of this process's processor time, which other load disturbs less; "least" is the
ratio of the smallest processor times of all turns, which other load disturbs least. For small operators it also prints
the additional processor time of one call, in microseconds.
"""

import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from train import Gpt

TURNS = int(sys.argv[1]) if len(sys.argv) > 1 else 15
CALLS = 200


def seconds(function):
    """Wall-clock time and processor time that a call of the function takes."""
    begin = time.perf_counter(), time.process_time()
    function()
    torch.cuda.synchronize()
    return time.perf_counter() - begin[0], time.process_time() - begin[1]


def report(name, on, calls=1):
    """Print one line; `on(device)` returns the function that is timed."""
    cpu, cuda = on("cpu"), on("cuda")
    cpu(), cuda()
    pairs = [(seconds(cpu), seconds(cuda)) for _ in range(TURNS)]
    line = f"{name:<24}"
    for clock, which in enumerate(("wall", "processor")):
        low, median, high = statistics.quantiles([b[clock] / a[clock] for a, b in pairs], n=4)
        line += f"  {which} {low:.2f} {median:.2f} {high:.2f}"
    line += f"  least {min(b[1] for _, b in pairs) / min(a[1] for a, _ in pairs):.2f}"
    more = statistics.median(b[1] - a[1] for a, b in pairs) / calls * 1e6
    print(line + (f"  {more:+.1f} us a call" if calls > 1 else ""), flush=True)


def training(model, x, y, **options):
    step = torch.optim.AdamW(model.parameters(), lr=1e-3, **options)

    def run():
        step.zero_grad()
        F.cross_entropy(model(x).flatten(0, -2), y.flatten()).backward()
        step.step()

    return run


def gpt(device, **options):
    torch.manual_seed(0)
    x = torch.randint(0, 256, (8, 64))
    return training(Gpt(width=128, length=64).to(device), x.to(device), x.roll(-1, 1).to(device), **options)


def mlp(device):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
    return training(model, torch.randn(64, 64).to(device), torch.randint(0, 10, (64,)).to(device), fused=True)


def calls(function):
    def on(device):
        x = torch.ones(8, 8, device=device)

        def run():
            for _ in range(CALLS):
                function(x)

        return run

    return on


report("GPT step, fused AdamW", lambda device: gpt(device, fused=True))
report("GPT step, foreach AdamW", lambda device: gpt(device, foreach=True))
report("MLP step, fused AdamW", mlp)
report("x + 1, 8 x 8", calls(lambda x: x + 1), CALLS)
report("x.add_(1), 8 x 8", calls(lambda x: x.add_(1)), CALLS)
report("x @ x, 8 x 8", calls(lambda x: x @ x), CALLS)
report("x.sum(), 8 x 8", calls(lambda x: x.sum()), CALLS)
