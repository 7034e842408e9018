"""Router GEMMs in fp32, as PyTorch runs them on a GPU: `python tools/router_gemms.py OUT.csv`.

Some mixtures keep the matrix of their router in fp32 (MiniMax-M2, ERNIE 4.5): vLLM widens the tokens and calls cuBLAS
without TF32. Needs a GPU and PyTorch alone. Times are medians of 20 runs, each over other tensors than the one before.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

ROWS = (1, 4, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
SHAPES = ((256, 3072), (128, 6144), (64, 2560), (512, 4096))
RUNS, COPIES = 20, 4


def main(path: str) -> None:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    chip = torch.cuda.get_device_name()
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(("gpu", "torch", "op", "m", "n", "k", "time_us"))
        for n, k in SHAPES:
            for m in ROWS:
                given = [torch.randn(m, k, device="cuda", dtype=torch.bfloat16) for _ in range(COPIES)]
                wide = [one.float() for one in given]
                weights = [torch.randn(n, k, device="cuda") for _ in range(COPIES)]
                gemm = torch.nn.functional.linear
                for op, calls in (
                    ("widen", [one.float for one in given]),
                    ("gemm", [partial(gemm, *pair) for pair in zip(wide, weights, strict=True)]),
                ):
                    table.writerow((chip, torch.__version__, op, m, n, k, f"{timed(torch, calls):.2f}"))


def timed(torch: Any, calls: Sequence[Callable[[], object]]) -> float:
    """Microseconds of one call, from a captured graph of many, so that the host's launches do not count."""
    cuda = torch.cuda
    for call in calls:
        call()
    cuda.synchronize()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        for i in range(RUNS):
            calls[i % len(calls)]()
    found: list[float] = []
    for _ in range(5):
        begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) * 1e3 / RUNS)
    return median(found)


if __name__ == "__main__":
    main(sys.argv[1])
