"""What a GPU's kernels assert about values: `PROGRAM [NAME ...]` prints for each operator how the call ends.

`NAME TAB call TAB next` are the exceptions of the call and of the next synchronisation, `-` where there is none. Each
call runs in a process of its own, because the context may be lost.
"""

import os
import sys

import torch
from torch.nn import functional as F  # noqa: N812

OPERATORS = {
    "bernoulli": lambda x, bad: torch.bernoulli(x * 2),
    "binary_cross_entropy": lambda x, bad: F.binary_cross_entropy(x * 2, x),
    "cross_entropy": lambda x, bad: F.cross_entropy(x.expand(2, 3), bad),
    "embedding": lambda x, bad: F.embedding(bad, x[:, None]),
    "embedding_bag": lambda x, bad: F.embedding_bag(bad[None], x[:, None]),
    "gather": lambda x, bad: x.gather(0, bad),
    "index": lambda x, bad: x[bad],
    "index_add": lambda x, bad: x.index_add(0, bad, x[:2]),
    "index_copy": lambda x, bad: x.index_copy(0, bad, x[:2]),
    "index_fill": lambda x, bad: x.index_fill(0, bad, 1.0),
    "index_put": lambda x, bad: x.index_put((bad,), x[:2]),
    "index_select": lambda x, bad: x.index_select(0, bad),
    "max_unpool2d": lambda x, bad: F.max_unpool2d(x.view(1, 1, 3), bad.new_full((1, 1, 3), 700), 2),
    "multi_margin_loss": lambda x, bad: F.multi_margin_loss(x.expand(2, 3), bad),
    "multinomial": lambda x, bad: torch.multinomial(-x, 2),
    "one_hot": lambda x, bad: F.one_hot(bad, 3),
    "put": lambda x, bad: x.clone().put_(bad, x[:2]),
    "scatter": lambda x, bad: x.scatter(0, bad, 1.0),
    "scatter_add": lambda x, bad: x.scatter_add(0, bad, x[:2]),
    "scatter_reduce": lambda x, bad: x.scatter_reduce(0, bad, x[:2], "amax"),
    "take": lambda x, bad: x.take(bad),
    "_assert_async": lambda x, bad: torch._assert_async(x[0] == 0),
}


def ended(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        return type(error).__name__
    return "-"


def run(name):
    x, bad = torch.ones(3, device="cuda"), torch.tensor([7, 1], device="cuda")
    print(name, ended(OPERATORS[name], x, bad), ended(torch.cuda.synchronize), sep="\t", flush=True)


for name in sys.argv[1:] or OPERATORS:
    child = os.fork()
    if child == 0:
        run(name)
        os._exit(0)
    os.waitpid(child, 0)
