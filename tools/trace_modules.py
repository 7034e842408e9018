"""Times the modules of zoo.py on the GPU at hand, to stand beside what `gnomon.trace` says of them.

python -m tools.trace_modules --out modules.json [--only unet,nerf]

Needs nothing but PyTorch, and takes about 75 seconds. Each case runs eagerly for a second after warming up, step by
step between CUDA events; the forward pass also as a captured graph, where no host is in the way.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from tools.zoo import MODULES, Built, Tensor
from torch import nn

SECONDS = 1.0
FORMATS = ("bf16", "fp32", "tf32")
SCHEMA = "gnomon.measured.modules/1"


def prepared(name: str, dtype: str) -> Built:
    """In the format asked for; tf32 is fp32 with PyTorch's leave to round GEMM inputs."""
    module, inputs = MODULES[name]()
    if dtype != "bf16":
        return module, inputs
    return module.bfloat16(), tuple(x.bfloat16() if x.is_floating_point() else x for x in inputs)


def roots(outputs: Any) -> tuple[Tensor, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def steps(module: nn.Module, inputs: tuple[Tensor, ...], phase: str) -> Callable[[], None]:
    """One forward pass without gradients, or one training step: forward, backward from ones, fused AdamW."""
    if phase == "forward":
        module.eval()

        def forward() -> None:
            with torch.no_grad():
                module(*inputs)

        return forward
    module.train()
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-9, fused=True)
    ones: list[Tensor] = []

    def train() -> None:
        optimizer.zero_grad(set_to_none=True)
        made = roots(module(*inputs))
        ones[:] = ones or [torch.ones_like(one) for one in made]
        torch.autograd.backward(made, ones)
        optimizer.step()

    return train


def timed(step: Callable[[], None]) -> dict[str, float]:
    """Medians over a second of steps that follow each other, and what the host alone needs to launch one."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    launched = []
    for _ in range(3):
        began = time.perf_counter()
        step()
        launched.append(time.perf_counter() - began)
        torch.cuda.synchronize()
    marks = [torch.cuda.Event(enable_timing=True)]
    marks[0].record()
    began = time.perf_counter()
    while time.perf_counter() - began < SECONDS and len(marks) < 20_000:
        step()
        marks.append(torch.cuda.Event(enable_timing=True))
        marks[-1].record()
        if len(marks) % 8 == 0:  # the queue of launches must not outgrow the second
            marks[-4].synchronize()
    torch.cuda.synchronize()
    each = [a.elapsed_time(b) * 1e-3 for a, b in pairwise(marks)]
    return {
        "time_s": statistics.median(each[len(each) // 3 :]),
        "first_s": statistics.median(each[:3]),
        "host_s": min(launched),
        "steps": len(each),
        "peak_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
    }


def captured(step: Callable[[], None]) -> Callable[[], None]:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def cases() -> Iterator[tuple[str, str, str]]:
    """Number format, phase, launch."""
    for dtype in FORMATS:
        for phase in ("forward", "train"):
            if dtype != "tf32" or phase == "train":
                yield dtype, phase, "eager"
    yield "bf16", "forward", "graph"


def measure(name: str, dtype: str, phase: str, launch: str) -> dict[str, Any]:
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    with torch.device("cuda"):
        module, inputs = prepared(name, dtype)
    step = steps(module, inputs, phase)
    row = {"module": name, "dtype": dtype, "phase": phase, "launch": launch}
    try:
        return row | timed(captured(step) if launch == "graph" else step)
    except (RuntimeError, torch.OutOfMemoryError) as error:
        return row | {"failed": str(error).splitlines()[0][:200]}
    finally:
        del module, inputs, step
        gc.collect()
        torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default=",".join(MODULES))
    options = parser.parse_args()
    torch.manual_seed(0)
    answer: dict[str, Any] = {
        "schema": SCHEMA,
        "date": datetime.now(UTC).date().isoformat(),
        "device": torch.cuda.get_device_name(),
        "versions": {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()},
        "rows": [],
    }
    for name in options.only.split(","):
        for case in cases():
            row = measure(name, *case)
            answer["rows"].append(row)
            options.out.write_text(json.dumps(answer, indent=1) + "\n")
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
