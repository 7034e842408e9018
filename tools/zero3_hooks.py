"""Host seconds of DeepSpeed's ZeRO-3 hooks around one module in one pass: `python -m tools.zero3_hooks [plain]`.

Layers as small as can be, of the twelve modules that a layer of Megatron-DeepSpeed has, run on a CPU in two processes
over gloo, with and without ZeRO 3; what the main thread takes more of is the hooks. Nothing of CUDA is in it: streams,
events and launches come on top. Needs PyTorch and the version of DeepSpeed to measure, numactl and ninja. The figure of
`gnomon.engines.deepspeed.releases` is of DeepSpeed 0.14.4 with PyTorch 2.13, 2026-11-19: 82 us forward, 89 to 107 us in
recomputed backward passes, on one core of an AMD EPYC (family 26).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

LAYERS, WIDTH, HEADS, INNER, TOKENS = 24, 32, 2, 64, 8
MODULES = 12
STEPS, WARM = 14, 4
PORT = "29512"


def model() -> Any:
    """Layers of twelve modules each, recomputed in the backward pass."""
    import torch
    from torch import nn
    from torch.nn import functional
    from torch.utils.checkpoint import checkpoint

    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(WIDTH))

        def forward(self, x: Any) -> Any:
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight

    class Softmax(nn.Module):
        def forward(self, scores: Any, mask: Any) -> Any:
            return torch.softmax(scores.masked_fill(mask, -1e4), -1)

    class Core(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.softmax, self.dropout = Softmax(), nn.Dropout(0.0)

        def forward(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
            scores = torch.matmul(q, k.transpose(-1, -2)) / q.shape[-1] ** 0.5
            out = torch.matmul(self.dropout(self.softmax(scores, mask)), v)
            return out.transpose(1, 2).reshape(q.shape[0], q.shape[2], -1)

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.joined, self.core = nn.Linear(WIDTH, 3 * WIDTH, bias=False), Core()
            self.out = nn.Linear(WIDTH, WIDTH, bias=False)

        def forward(self, x: Any, mask: Any) -> Any:
            parts = self.joined(x).view(*x.shape[:2], HEADS, -1).transpose(1, 2).chunk(3, -1)
            return self.out(self.core(*parts, mask))

    class Feed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.Linear(WIDTH, 2 * INNER, bias=False)
            self.down = nn.Linear(INNER, WIDTH, bias=False)

        def forward(self, x: Any) -> Any:
            gate, up = self.up(x).chunk(2, -1)
            return self.down(functional.silu(gate) * up)

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.attention, self.second, self.feed = Norm(), Attention(), Norm(), Feed()

        def forward(self, x: Any, mask: Any) -> Any:
            x = x + self.attention(self.first(x), mask)
            return x + self.feed(self.second(x))

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

        def forward(self, x: Any, mask: Any) -> Any:
            for layer in self.layers:
                x = checkpoint(layer, x, mask, use_reentrant=True)
            return x.float().pow(2).mean()

    return Network()


def quartile(seconds: list[float]) -> float:
    """The lower quartile: what other processes take of the machine only makes some longer."""
    return sorted(seconds[WARM:])[len(seconds[WARM:]) // 4]


def timed(forward: Callable[[], Any], backward: Callable[[Any], Any], after: Callable[[], Any]) -> tuple[float, float]:
    there, back = [], []
    for _ in range(STEPS):
        start = time.thread_time()
        loss = forward()
        middle = time.thread_time()
        backward(loss)
        there.append(middle - start)
        back.append(time.thread_time() - middle)
        after()
    return quartile(there), quartile(back)


def measure(sharded: bool) -> tuple[float, float]:
    """Seconds of the main thread forward and backward."""
    import torch

    torch.set_num_threads(1)
    x, mask = torch.randn(1, TOKENS, WIDTH, requires_grad=True), torch.zeros(1, 1, TOKENS, TOKENS, dtype=torch.bool)
    if not sharded:
        plain = model()
        return timed(lambda: plain(x, mask), lambda loss: loss.backward(), plain.zero_grad)
    deepspeed: Any = import_module("deepspeed")

    deepspeed.init_distributed("gloo", verbose=False)
    network = model()
    settings = {
        "train_batch_size": int(os.environ["WORLD_SIZE"]),
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 2 * WIDTH},
        "bf16": {"enabled": True},
        "zero_allow_untested_optimizer": True,
    }
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-9)
    engine, *_ = deepspeed.initialize(model=network, optimizer=optimizer, config=settings)
    narrow = x.detach().bfloat16().requires_grad_()
    return timed(lambda: engine(narrow, mask), engine.backward, engine.step)


def main() -> None:
    if "RANK" in os.environ or "plain" in sys.argv:
        forward, backward = measure(sharded="RANK" in os.environ)
        if os.environ.get("RANK", "0") == "0":
            print(f"us a layer: {1e6 * forward / LAYERS:.0f} forward, {1e6 * backward / LAYERS:.0f} backward")
        return
    command = [sys.executable, "-m", "tools.zero3_hooks"]
    subprocess.run([*command, "plain"], check=True)
    common = os.environ | {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": PORT, "DS_ACCELERATOR": "cpu"}
    ranks = [subprocess.Popen(command, env=common | {"RANK": str(r), "LOCAL_RANK": str(r)}) for r in range(2)]
    for rank in ranks:
        rank.wait()
    print(f"the difference over {MODULES} modules, and over twice as many backward, is that of one in one pass")


if __name__ == "__main__":
    main()
