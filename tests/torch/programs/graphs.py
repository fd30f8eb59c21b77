"""CUDA graphs: what is captured runs at each replay, on the graph's own memory (cases.py)."""

import gc

import torch
from cases import case, main, message
from torch import nn
from torch.nn import functional as F  # noqa: N812


@case
def replay():
    x = torch.ones(4, device="cuda")
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = (x + 1) * 2
        z = y.sum()
    x.fill_(2)
    g.replay()
    assert (y.tolist(), z.item()) == ([6.0] * 4, 24)
    x.copy_(torch.arange(4.0))
    g.replay()
    g.replay()
    assert (y.tolist(), z.item()) == ([2.0, 4.0, 6.0, 8.0], 20)


@case
def capture_changes_nothing():
    x = torch.zeros(4, device="cuda")
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        x.add_(1)
    assert x.tolist() == [0.0] * 4
    for _ in range(3):
        g.replay()
    assert x.tolist() == [3.0] * 4


@case
def training_step():
    """As in torch's documentation: losses and weights are those of the same steps without a graph."""

    def run(graphed):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).cuda()
        step = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        data = [(torch.randn(8, 16, device="cuda"), torch.randint(0, 4, (8,), device="cuda")) for _ in range(6)]
        x, y = torch.empty_like(data[0][0]), torch.empty_like(data[0][1])

        def train():
            step.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            step.step()
            return loss

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for i in range(2):
                x.copy_(data[i][0])
                y.copy_(data[i][1])
                train()
        torch.cuda.current_stream().wait_stream(side)
        losses = []
        if graphed:
            g = torch.cuda.CUDAGraph()
            step.zero_grad(set_to_none=True)
            with torch.cuda.graph(g):
                loss = train()
        for a, b in data[2:]:
            x.copy_(a)
            y.copy_(b)
            if graphed:
                g.replay()
            else:
                loss = train()
            losses.append(loss.item().hex())
        return losses, [p.detach().double().sum().item().hex() for p in model.parameters()]

    assert run(True) == run(False)


@case
def random_numbers():
    """Each replay draws the numbers that the same operators without a graph draw next."""

    def draw():
        return (
            torch.rand(5, device="cuda"),
            F.dropout(torch.ones(64, device="cuda")),
            torch.randn(3, device="cuda"),
            torch.randperm(6, device="cuda"),
        )

    torch.cuda.manual_seed(3)
    eager = [[t.tolist() for t in draw()] for _ in range(3)]
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        drawn = draw()
    torch.cuda.manual_seed(3)
    for i in range(3):
        g.replay()
        assert [t.tolist() for t in drawn] == eager[i], (i, [t.tolist() for t in drawn], eager[i])


@case
def callables():
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 2)).cuda()
    x = torch.randn(4, 8, device="cuda", requires_grad=True)
    expected = model(x)
    expected.sum().backward()
    expected = expected.detach()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    graphed = torch.cuda.make_graphed_callables(model, (torch.randn(4, 8, device="cuda", requires_grad=True),))
    y = graphed(x)
    y.sum().backward()
    assert torch.equal(y, expected)
    assert all(torch.equal(a, p.grad) for a, p in zip(gradients, model.parameters(), strict=True))


@case
def forks_and_joins():
    x, g, side = torch.ones(4, device="cuda"), torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(g):
        a = x + 1
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            b = x * 3
        torch.cuda.current_stream().wait_stream(side)
        c = a + b
    g.replay()
    assert c.tolist() == [5.0] * 4


@case
def pools_are_shared():
    x, first, second = torch.ones(1000, device="cuda"), torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        y = x + 1
    with torch.cuda.graph(second, pool=first.pool()):
        z = y * 2
    first.replay()
    second.replay()
    assert z.sum().item() == 4000


@case
def what_waits_is_refused():
    x = torch.ones(4, device="cuda")

    def capture(f):
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g):
            f()

    def put():
        x[x > 0] = torch.ones(4, device="cuda")

    for f in (lambda: x.nonzero(), lambda: x.sum().item(), lambda: x.cpu(), lambda: x[x > 0], put):
        said = message(RuntimeError, capture, f)
        assert "captur" in said, said
        torch.cuda.synchronize()
    assert (x + 1).sum().item() == 8


@case
def memory_comes_back():
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    g = torch.cuda.CUDAGraph()
    x = torch.ones(1 << 20, device="cuda")
    with torch.cuda.graph(g):
        y = x * 2
    g.replay()
    g.reset()
    del g, x, y
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == before, (torch.cuda.memory_reserved(), before)


@case
def division_by_what_is_zero_when_recorded():
    n, g = torch.tensor([7, 9], device="cuda"), torch.cuda.CUDAGraph()
    d = torch.tensor([2, 4], device="cuda")
    with torch.cuda.graph(g):
        q, e = n // d, F.embedding(d - 2, torch.arange(6.0, device="cuda").view(3, 2))
    g.replay()
    assert q.tolist() == [3, 2]
    assert e.tolist() == [[0, 1], [4, 5]]


@case
def indices_are_read_at_each_replay():
    """Indexing with integer tensors does not wait for the device, nor does writing one number through a mask."""
    x, i = torch.arange(6.0, device="cuda"), torch.tensor([1, 2], device="cuda")
    y, g = x.clone(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        picked = x[i]
        y[i] = picked + 10
        y[y > 20] = 0
    i.add_(2)
    x.mul_(4)
    g.replay()
    assert (picked.tolist(), y.tolist()) == ([12, 16], [0, 1, 2, 0, 0, 5])


@case
def compiled_by_graphs_alone():
    f = torch.compile(lambda x: (x.sin() + 1).sum(), backend="cudagraphs")
    for i in range(4):
        x = torch.full((5,), float(i), device="cuda")
        assert torch.equal(f(x), (x.sin() + 1).sum())


if __name__ == "__main__":
    main()
