"""Run the measurements into a CSV that grows line by line, so that a run cut short goes on where it was."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gnomon.calibrate import kernels
from gnomon.calibrate.shapes import Task, tasks
from gnomon.errors import CalibrationError, MissingExtraError

COLUMNS = (
    "op", "dtype", "m", "n", "k", "batch", "tokens", "hidden", "inter", "experts", "topk", "heads", "kv_heads",
    "q_len", "kv_len", "head_dim", "causal", "bytes_read", "bytes_written", "kernel", "time_us", "spread",
    "burst_us", "watts", "sm_hz", "flops", "bytes", "task",
)  # fmt: skip
FAMILIES = ("elementwise", "attention", "gemm", "fp8", "moe", "sustained")


def torch_module() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtraError("torch", "torch", "calibration") from None
    if not torch.cuda.is_available():
        raise CalibrationError("no CUDA device is visible", hint="run `gnomon calibrate` on the machine with the GPU")
    return torch


def done(path: Path) -> set[str]:
    """Tasks a table already holds; a last line cut short is dropped from the file."""
    if not path.exists():
        return set()
    text = path.read_text()
    if text and not text.endswith("\n"):
        path.write_text(text[: text.rfind("\n") + 1])
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames is not None and tuple(reader.fieldnames) != COLUMNS:
            raise CalibrationError("the file holds another table", where=str(path), hint="give --out a new file")
        return {row["task"] for row in reader}


def _key(task: Task) -> str:
    return json.dumps([task[0], task[1]], sort_keys=True, separators=(",", ":"))


def collect(
    path: Path,
    families: tuple[str, ...] = FAMILIES,
    *,
    budget_s: float = 480.0,
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, int]:
    """Measure what the table lacks; returns how many rows each outcome got."""
    torch = torch_module()
    have = done(path)
    todo = [task for task in tasks(tuple(f for f in families if f != "sustained")) if _key(task) not in have]
    counts = {"kept": len(have), "measured": 0, "failed": 0, "left": 0}
    start = time.monotonic()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if file.tell() == 0:
            writer.writeheader()
        for index, task in enumerate(todo):
            if time.monotonic() - start > budget_s:
                counts["left"] = len(todo) - index
                break
            outcome = _measure(torch, task, writer)
            counts[outcome] += 1
            file.flush()
            if progress:
                progress(index + 1, len(todo), task[0])
        if "sustained" in families and "sustained" not in have:
            for row in kernels.sustained(torch):
                writer.writerow(row | {"task": "sustained"})
    return counts


def _measure(torch: Any, task: Task, writer: Any) -> str:
    name, shape = task
    try:
        row = getattr(kernels, name)(torch, **shape)
    except torch.OutOfMemoryError:
        return "failed"
    except (RuntimeError, ImportError, AttributeError, TypeError) as failure:
        _check_alive(torch, name, shape)
        print(f"skipped {name} {shape}: {type(failure).__name__}: {str(failure)[:160]}", file=sys.stderr)
        return "failed"
    writer.writerow(row | {"task": _key(task)})
    return "measured"


def _check_alive(torch: Any, name: str, shape: dict[str, Any]) -> None:
    """A fault on the card poisons every later call of the process: stop, with what is measured kept."""
    try:
        torch.cuda.synchronize()
    except RuntimeError as fault:
        reason = str(fault).splitlines()[0]
        raise CalibrationError(f"the card failed on {name} {shape}: {reason}", hint="run again to go on") from None
