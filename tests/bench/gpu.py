"""Remoted over native time on a real card: `python tests/bench/gpu.py [--rounds N] [--socket]`.

Two processes stay alive, one on the real driver and one on ours; windows of the same work alternate between them, so
that a machine whose speed drifts hurts both alike. A figure is the median of the paired ratios, with its quartiles.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ROOT / "daemon/vgpud/_lib"


def torch_work() -> tuple[dict, object]:
    import torch
    from torch import nn

    torch.manual_seed(1)
    work: dict = {}
    x, a = torch.randn(1024, device="cuda"), torch.randn(256, 256, device="cuda")
    work["torch add"] = (lambda: x + 1, 1000)
    work["torch matmul 256"] = (lambda: a @ a, 500)
    work["torch item"] = (lambda: x[0].item(), 300)

    def transformer():
        layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.0)
        return nn.TransformerEncoder(layer, 6).cuda().bfloat16()

    model = transformer()
    data = torch.randn(8, 128, 512, device="cuda", dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(data).float().square().mean().backward()
        optimizer.step()

    work["torch train step, 6 layers bf16"] = (step, 10)
    decoder, token = transformer().eval(), torch.randn(1, 1, 512, device="cuda", dtype=torch.bfloat16)

    @torch.no_grad()
    def decode():
        return decoder(token)

    work["torch decode, batch 1"] = (decode, 60)
    decode()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        decoder(token)
    work["torch decode as CUDA graph"] = (graph.replay, 100)
    try:
        from torchvision.models import resnet18

        resnet, images = resnet18().cuda().eval(), torch.randn(8, 3, 224, 224, device="cuda")
        work["torch resnet18, batch 8"] = (torch.no_grad()(lambda: resnet(images)), 30)
    except ImportError:
        pass
    big = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    work["gemm 4096 bf16"] = (lambda: big @ big, 40)
    host = torch.randn(16 << 20)
    pinned, device = host.pin_memory(), host.cuda()
    landing = torch.empty_like(host)
    small = torch.ones(1000)
    work["H2D 64 MB pageable"] = (lambda: device.copy_(host), 4)
    work["D2H 64 MB pageable, touched pages"] = (lambda: landing.copy_(device), 4)
    work["D2H 64 MB pageable, fresh pages"] = (lambda: device.cpu(), 2)
    work["H2D 64 MB pinned"] = (lambda: device.copy_(pinned, non_blocking=True), 10)
    work["D2H 64 MB pinned"] = (lambda: pinned.copy_(device, non_blocking=True), 10)
    work["H2D 4 KB pageable"] = (lambda: small.cuda(), 200)
    event = torch.cuda.Event()
    work["event record + wait"] = (lambda: (event.record(), torch.cuda.current_stream().wait_event(event)), 300)
    return work, torch.cuda.synchronize


def cupy_work() -> tuple[dict, object]:
    import cupy

    x = cupy.random.rand(1024, 1024)
    return {
        "cupy add": (lambda: x + 1, 300),
        "cupy sum": (lambda: float(x.sum()), 200),
        "cupy matmul": (lambda: x @ x, 50),
    }, cupy.cuda.Device().synchronize


def child(framework: str) -> None:
    """Serve windows: a name on stdin, its time per iteration in ms on stdout."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    work, synchronize = {"torch": torch_work, "cupy": cupy_work}[framework]()
    for function, _ in work.values():
        for _ in range(3):
            function()
        synchronize()  # type: ignore[operator]
    print(json.dumps(list(work)), file=out, flush=True)
    for line in sys.stdin:
        function, count = work[line.strip()]
        function()
        synchronize()  # type: ignore[operator]
        start = time.perf_counter()
        for _ in range(count):
            function()
        synchronize()  # type: ignore[operator]
        print((time.perf_counter() - start) / count * 1e3, file=out, flush=True)


def start(framework: str, env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__, "--child", framework], stdin=-1, stdout=-1, text=True, env={**os.environ, **env}
    )


def compare(framework: str, endpoint: str, rounds: int) -> None:
    pair = {
        "native": start(framework, {}),
        "remoted": start(framework, {"VGPU_ENDPOINT": endpoint, "LD_LIBRARY_PATH": str(LIBRARIES)}),
    }
    names = {side: json.loads(process.stdout.readline()) for side, process in pair.items() if process.stdout}
    times: dict[str, dict[str, list[float]]] = {name: {side: [] for side in pair} for name in names["native"]}
    for i in range(rounds):
        for name in times:
            for side in ("native", "remoted") if i % 2 == 0 else ("remoted", "native"):
                process = pair[side]
                assert process.stdin
                assert process.stdout
                process.stdin.write(name + "\n")
                process.stdin.flush()
                times[name][side].append(float(process.stdout.readline()))
    for name, sides in times.items():
        ratios = sorted(r / n for n, r in zip(sides["native"], sides["remoted"], strict=True))
        native, remoted = (statistics.median(sides[side]) for side in ("native", "remoted"))
        low, high = ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]
        print(
            f"| {name} | {native:.4f} | {remoted:.4f} | {statistics.median(ratios):.2f} | {low:.2f}-{high:.2f} |",
            flush=True,
        )
    for process in pair.values():
        assert process.stdin
        process.stdin.close()
        process.wait(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--socket", action="store_true", help="without shared memory")
    parser.add_argument("--libcuda", default="libcuda.so.1")
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "vgpud.toml"
        config.write_text(
            f"listen = ['unix:{directory}/s']\nadmin = '{directory}/a'\nbackend = 'cuda'\n"
            f"libcuda = '{options.libcuda}'\nshared_memory = {str(not options.socket).lower()}\n"
        )
        env = {**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT / 'guest'}:{os.environ.get('PYTHONPATH', '')}"}
        daemon = subprocess.Popen([sys.executable, "-m", "vgpud", "--config", str(config)], env=env, stderr=-3)
        try:
            deadline = time.monotonic() + 60
            while not (Path(directory) / "s").exists() and time.monotonic() < deadline:
                time.sleep(0.1)
            print("| work | native ms | remoted ms | ratio | quartiles |\n|---|---|---|---|---|")
            for framework in ("torch", "cupy"):
                compare(framework, f"unix:{directory}/s", options.rounds)
        finally:
            daemon.terminate()
            daemon.wait(30)


if __name__ == "__main__":
    main()
