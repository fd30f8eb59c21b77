"""`random_numbers.py > FILE`, then `random_numbers.py FILE`: are a card's random numbers those of the simulated GPU?

Run it with one device kind on both: on a card with its own driver, and under `vgpu run --gpu h100` (or h200). Normal
numbers may differ by 1e-5, for a GPU computes sine with fewer bits; everything else is equal.
"""

import json
import sys

import torch
from torch.nn import functional as F  # noqa: N812

SIZES = (5, 1000, 132 * 2048 * 4 + 5)  # the last needs a second round of the grid-stride loop
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "float64": torch.float64}


def empty(n, dtype):
    return torch.empty(n, dtype=dtype, device="cuda")


CASES = {
    "uniform": lambda n, dtype: empty(n, dtype).uniform_(),
    "uniform_range": lambda n, dtype: empty(n, dtype).uniform_(-2, 3),
    "normal": lambda n, dtype: empty(n, dtype).normal_(1, 2),
    "log_normal": lambda n, dtype: empty(n, dtype).log_normal_(),
    "exponential": lambda n, dtype: empty(n, dtype).exponential_(2),
    "cauchy": lambda n, dtype: empty(n, dtype).cauchy_(),
    "geometric": lambda n, dtype: empty(n, dtype).geometric_(0.3),
    "bernoulli": lambda n, dtype: empty(n, dtype).bernoulli_(0.3),
    "bernoulli_tensor": lambda n, dtype: torch.bernoulli(torch.full((n,), 0.3, dtype=dtype, device="cuda")),
    "dropout": lambda n, dtype: F.dropout(torch.ones(n, dtype=dtype, device="cuda"), 0.3),
    "dropout_vector": lambda n, dtype: F.dropout(torch.ones(n - n % 8 + 8, dtype=dtype, device="cuda"), 0.3),
    "randint": lambda n, dtype: torch.randint(0, 1000, (n,), device="cuda"),
    "randint_wide": lambda n, dtype: torch.randint(-(1 << 40), 1 << 40, (n,), device="cuda"),
    "random": lambda n, dtype: torch.empty(n, dtype=torch.int32, device="cuda").random_(),
    "transposed": lambda n, dtype: empty((n, 3), dtype).t().uniform_(),
    "channels_last": lambda n, dtype: (
        empty((2, 3, n % 50 + 2, 7), dtype).to(memory_format=torch.channels_last).normal_()
    ),
}


def draw():
    found = {}
    for name, case in CASES.items():
        for size in SIZES:
            for dtype_name, dtype in DTYPES.items():
                torch.manual_seed(1234)
                first, second = case(size, dtype), case(size, dtype)  # the second at an offset
                values = torch.cat([second.flatten()[:8], second.flatten()[-8:], first.flatten()[-4:]]).double()
                state = int.from_bytes(bytes(torch.cuda.get_rng_state()[8:].tolist()), "little")
                found[f"{name} {size} {dtype_name}"] = [*values.tolist(), second.double().sum().item(), float(state)]
    return found


def main():
    found = draw()
    if len(sys.argv) == 1:
        json.dump(found, sys.stdout)
        return
    with open(sys.argv[1]) as file:
        other = json.load(file)
    bad = 0
    for name, values in found.items():
        close = "normal" in name or "channels_last" in name or "exponential" in name or "cauchy" in name
        for x, y in zip(values, other[name], strict=True):
            if x != y and not (
                close and abs(x - y) <= 1e-5 * max(1.0, abs(x), abs(y)) * (1000 if x == values[-2] else 1)
            ):
                bad += 1
                print(f"{name}: {x!r} here, {y!r} there")
                break
    print(f"{len(found) - bad} of {len(found)} cases agree on {torch.cuda.get_device_name()}")
    sys.exit(bad > 0)


main()
