"""Calls with tensors on different devices raise the errors that torch raises on a GPU."""

import ast

import pytest

from tests.torch.conftest import RunTorch

pytestmark = pytest.mark.client

SAME = "Expected all tensors to be on the same device, but "
EXPECTED = {
    "x + y": SAME + "found at least two devices, cuda:0 and cpu!",
    "y + x": SAME + "found at least two devices, cuda:0 and cpu!",
    "x.add_(y)": SAME + "found at least two devices, cuda:0 and cpu!",
    "torch.add(x, 1, out=y)": SAME + "found at least two devices, cuda:0 and cpu!",
    "torch.where(x > 0, y, x)": SAME + "found at least two devices, cuda:0 and cpu!",
    "x @ y": SAME + "got mat2 is on cpu, different from other tensors on cuda:0 "
    "(when checking argument in method wrapper_CUDA_mm)",
    "nn.Linear(4, 4)(x)": SAME + "got mat1 is on cuda:0, different from other tensors on cpu "
    "(when checking argument in method wrapper_CUDA_addmm)",
    "nn.Linear(4, 4).cuda()(y)": SAME + "got mat1 is on cpu, different from other tensors on cuda:0 "
    "(when checking argument in method wrapper_CUDA_addmm)",
    "torch.cat([x, y])": SAME + "got tensors is on cpu, different from other tensors on cuda:0 "
    "(when checking argument in method wrapper_CUDA_cat)",
    "nn.Embedding(4, 4).cuda()(torch.tensor([1]))": SAME
    + "got index is on cpu, different from other tensors on cuda:0 "
    "(when checking argument in method wrapper_CUDA__index_select)",
    "nn.Conv1d(4, 4, 1)(x[None])": "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be "
    "the same",
    "y[torch.tensor([1], device='cuda')]": "indices should be either on cpu or on the same device as the indexed "
    "tensor (cpu)",
    "x.masked_fill(y > 0, 0)": "expected self and mask to be on the same device, but got mask on cpu and "
    "self on cuda:0",
    "x @ z": SAME + "got mat2 is on cuda:1, different from other tensors on cuda:0 "
    "(when checking argument in method wrapper_CUDA_mm)",
    "x + z": SAME + "found at least two devices, cuda:0 and cuda:1!",
    "torch.special.hermite_polynomial_h(y, z)": SAME + "found at least two devices, cuda:1 and cpu!",
    "torch.segment_reduce(x[0], 'sum', lengths=torch.tensor([4]))": "Expected data.get_device() == "
    "lengths_value.get_device() to be true, but got false.  (Could this error message be improved?  If so, please "
    "report an enhancement request to PyTorch.)",
    "torch.searchsorted(x[0], x, sorter=torch.arange(4))": "torch.searchsorted(): sorter and boundary tensors should "
    "have same device type, but got sorter tensor device type cpu and input value tensor device type cuda:0",
    "x.long() @ x.long()": "\"addmm_cuda\" not implemented for 'Long'",
    "torch.bmm(x[None].int(), x[None].int())": "\"baddbmm_cuda\" not implemented for 'Int'",
    # No errors, as on a GPU: scalars and indices may be on the CPU.
    "x[torch.tensor([1])].shape": "torch.Size([1, 4])",
    "(x + torch.tensor(2.0)).device": "cuda:0",
    "(z.cpu() + 1).device": "cpu",
    "x.copy_(y).device": "cuda:0",
    "z.copy_(x).device": "cuda:1",
}
PROGRAM = """
import sys, torch
from torch import nn

torch.manual_seed(0)
x, y, z = torch.randn(4, 4, device="cuda"), torch.randn(4, 4), torch.randn(4, 4, device="cuda:1")
found = {}
for line in sys.argv[1].splitlines():
    try:
        found[line] = str(eval(line))
    except Exception as error:
        found[line] = str(error)
print(found)
"""


def test_the_errors_of_cuda(run_torch: RunTorch) -> None:
    program = PROGRAM.replace("sys.argv[1]", repr("\n".join(EXPECTED)))
    result = run_torch(code=program, gpu="h100:2")
    assert result.returncode == 0, result.stderr
    assert ast.literal_eval(result.stdout) == EXPECTED
