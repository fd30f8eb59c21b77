"""`random_numbers.py > FILE`, then `random_numbers.py FILE [SIZES]`: does the simulated GPU draw a card's numbers?

Use the same model of GPU for both runs: on a card with its own driver, and under `vgpu run --gpu h200`. SIZES is how
many of the sizes are compared. A GPU computes sines, logarithms and tangents with fewer bits: normal, exponential and
Cauchy numbers may differ by 1e-5, and one of a million geometric numbers by 1. All other numbers are equal; sums differ
by the order of additions.
"""

import json
import math
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


def draw(sizes):
    found = {}
    for name, case in CASES.items():
        for size in sizes:
            for dtype_name, dtype in DTYPES.items():
                torch.manual_seed(1234)
                first, second = case(size, dtype), case(size, dtype)  # the second begins at a generator offset
                values = torch.cat([second.flatten()[:8], second.flatten()[-8:], first.flatten()[-4:]]).double()
                state = int.from_bytes(bytes(torch.cuda.get_rng_state()[8:].tolist()), "little")
                found[f"{name} {size} {dtype_name}"] = [*values.tolist(), second.double().sum().item(), float(state)]
    return found


def agree(name, x, y, is_sum):
    if x == y or (math.isnan(x) and math.isnan(y)):
        return True
    distribution = name.split()[0]
    close = distribution in ("normal", "log_normal", "channels_last", "exponential", "cauchy")
    tolerance = 1e-5 if close else 0
    if is_sum:
        if distribution == "cauchy":
            return True  # the largest numbers dominate it, and their tangents are imprecise
        tolerance = 1e-2 if close else 1e-6 if distribution == "geometric" else 1e-12
    return abs(x - y) <= tolerance * max(1.0, abs(x), abs(y))


def main():
    found = draw(SIZES[: int(sys.argv[2])] if len(sys.argv) > 2 else SIZES)
    if len(sys.argv) == 1:
        json.dump(found, sys.stdout)
        return
    with open(sys.argv[1]) as file:
        other = json.load(file)
    bad = 0
    for name, values in found.items():
        pairs = list(zip(values, other[name], strict=True))
        for i, (x, y) in enumerate(pairs):
            if not agree(name, x, y, is_sum=i == len(pairs) - 2):
                bad += 1
                print(f"{name}: {x!r} here, {y!r} there")
                break
    print(f"{len(found) - bad} of {len(found)} cases agree on {torch.cuda.get_device_name()}")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
