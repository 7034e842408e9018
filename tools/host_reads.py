"""GEMMs whose weights lie in pinned host memory, timed beside the same GEMMs with weights on the chip.

    python -m tools.host_reads OUT.csv

Needs a GPU and vLLM, whose UVA view of a pinned tensor is what `cpu_offload_gb` gives its linear layers. Each shape is
a projection of a served model; rows of activations go from a decode of one sequence to a step of 8,192 tokens. A row of
the file is the median of some runs, with the kernel that cuBLAS picked by the profiler.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROWS = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
SHAPES = {
    "qwen2.5-7b": ((4608, 3584), (3584, 3584), (37888, 3584), (3584, 18944)),
    "qwen2.5-14b": ((7168, 5120), (5120, 5120), (27648, 5120), (5120, 13824)),
    "llama-3.1-8b": ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)),
    "llama-3.1-70b": ((10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672)),
}
"""By model, the outputs and inputs of qkv, o, gate_up and down."""
COLUMNS = ("model", "m", "n", "k", "host_us", "chip_us", "runs", "kernel")


def timed(torch: Any, x: Any, weight: Any, most_s: float) -> tuple[float, int]:
    """Median microseconds of a run, and how many there were."""
    torch.nn.functional.linear(x, weight)
    torch.cuda.synchronize()
    found: list[float] = []
    end = time.monotonic() + most_s
    while len(found) < 3 or (len(found) < 9 and time.monotonic() < end):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        torch.nn.functional.linear(x, weight)
        stop.record()
        torch.cuda.synchronize()
        found.append(1e3 * start.elapsed_time(stop))
    return statistics.median(found), len(found)


def kernel(torch: Any, x: Any, weight: Any) -> str:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        torch.nn.functional.linear(x, weight)
        torch.cuda.synchronize()
    names = [event.key for event in profile.key_averages() if "mem" not in event.key.lower()]
    return max(names, key=len, default="")[:120]


def copy_gb_s(torch: Any, source: Any) -> float:
    """A copy of pinned memory to the chip."""
    there = torch.empty_like(source, device="cuda")
    there.copy_(source, non_blocking=True)
    torch.cuda.synchronize()
    begin = time.monotonic()
    for _ in range(4):
        there.copy_(source, non_blocking=True)
    torch.cuda.synchronize()
    return float(4 * source.numel() * source.element_size() / (time.monotonic() - begin) / 1e9)


def main() -> None:
    import torch
    from vllm.utils.torch_utils import get_accelerator_view_from_cpu_tensor

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--budget", type=float, default=150.0, help="seconds; models that are left then are not timed")
    asked = parser.parse_args()
    end = time.monotonic() + asked.budget
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    with asked.out.open("w", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS)
        rows.writeheader()
        for model, shapes in SHAPES.items():
            for n, k in shapes:
                host = torch.randn(n, k, dtype=torch.bfloat16).pin_memory()
                seen, chip = get_accelerator_view_from_cpu_tensor(host), host.cuda()
                print(f"{model} {n} x {k}: copied at {copy_gb_s(torch, host):.1f} GB/s", file=sys.stderr, flush=True)
                for m in ROWS:
                    if time.monotonic() > end:
                        return
                    x = torch.randn(m, k, dtype=torch.bfloat16, device="cuda")
                    host_us, runs = timed(torch, x, seen, 0.25)
                    row = {"host_us": host_us, "chip_us": timed(torch, x, chip, 0.02)[0], "runs": runs}
                    rows.writerow({"model": model, "m": m, "n": n, "k": k, **row, "kernel": kernel(torch, x, seen)})
                    file.flush()


if __name__ == "__main__":
    main()
