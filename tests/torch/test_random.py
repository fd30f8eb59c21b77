"""A seed gives the random numbers of a real GPU: Philox, with the launch layout of torch's own kernels."""

import ast
from pathlib import Path

import pytest

from tests.torch.conftest import RunTorch

pytestmark = pytest.mark.client
CARD = Path(__file__).parent / "card_random.json"
"""What programs/random_numbers.py printed on an H200 under NVIDIA's driver 580.159.04, 2026-11-28."""

PROGRAM = """
import torch

def seeded(draw):
    torch.manual_seed(0)
    return [round(x, 4) for x in draw().flatten().tolist()]

empty = torch.empty(3, device="cuda")
large = 132 * 2048 * 4 + 5  # a second round of the grid-stride loop
torch.manual_seed(0)
wide = torch.rand(large, device="cuda")
torch.manual_seed(0)
generator = torch.Generator("cuda").manual_seed(0)
state = torch.cuda.get_rng_state()
first = torch.rand(3, device="cuda")
torch.cuda.set_rng_state(state)
mask = torch.nn.functional.dropout(torch.ones(64, device="cuda"))
torch.manual_seed(0)
uniform = torch.rand(64, device="cuda")
print({
    "rand": seeded(lambda: torch.rand(5, device="cuda")),
    "randn": seeded(lambda: torch.randn(6, device="cuda")),
    "generator": [round(x, 4) for x in torch.rand(2, generator=generator, device="cuda").tolist()],
    "randint": seeded(lambda: torch.randint(0, 10, (8,), device="cuda")),
    "exponential": seeded(lambda: torch.empty(2, device="cuda").exponential_()),
    "bernoulli": seeded(lambda: torch.full((5,), 0.5, device="cuda").bernoulli_(0.5)),
    "half": seeded(lambda: torch.rand(2, device="cuda", dtype=torch.half)),
    "transposed": seeded(lambda: torch.empty(2, 3, device="cuda").t().uniform_()),
    "contiguous": seeded(lambda: torch.empty(2, 3, device="cuda").uniform_().t()),
    "prefix": torch.equal(wide[:64], uniform),
    "distinct": wide.unique().numel() > large * 0.9,
    "state": torch.equal(first, uniform[:3]),
    "kept": 16 < (mask > 0).sum().item() < 48,
    "offset": int.from_bytes(bytes(torch.cuda.get_rng_state()[8:].tolist()), "little"),
})
"""


def test_the_numbers_of_a_gpu(run_torch: RunTorch) -> None:
    """`rand` and `randn` as a GPU prints them after torch.manual_seed(0); the others follow from the same layout."""
    result = run_torch(code=PROGRAM)
    assert result.returncode == 0, result.stderr
    found = ast.literal_eval(result.stdout)
    assert found["rand"] == [0.399, 0.5167, 0.0249, 0.9401, 0.9459]
    assert found["randn"] == [-0.9247, -0.4253, -2.6438, 0.1452, -0.1209, -0.5797]
    assert found["generator"] == found["rand"][:2]
    assert found["exponential"] == [0.9187, 0.6603]  # -ln of rand
    assert found["bernoulli"] == [float(x < 0.5) for x in found["rand"]]
    assert found["half"] == pytest.approx(found["rand"][:2], abs=1e-3)
    assert found["transposed"] == found["contiguous"]
    assert found["randint"] == [1, 7, 1, 2, 3, 4, 3, 3]
    assert (found["prefix"], found["distinct"], found["state"], found["kept"]) == (True, True, True, True)
    assert found["offset"] == 4


@pytest.mark.parametrize("sizes", [2, pytest.param(3, marks=pytest.mark.ecosystem)])
def test_the_numbers_of_an_h200(run_torch: RunTorch, sizes: int) -> None:
    """The third size needs several rounds of a kernel's loop."""
    result = run_torch("random_numbers.py", str(CARD), str(sizes), gpu="h200", timeout_s=350)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{64 * sizes} of {64 * sizes} cases agree" in result.stdout
