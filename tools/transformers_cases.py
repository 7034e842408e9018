"""Training steps under transformers that tools/transformers_training.py measures, and what Gnomon says of them.

    python -m tools.transformers_cases > predictions.txt
    python -m tools.transformers_cases MEASURED.jsonl    beside what tools/transformers_training.py measured

Timing cases over models, lengths, batches, checkpointing and both ways to keep weights; and cases around the edge of an
H200's memory, half of which are predicted just to fit. `fit` cases may set traits of the engine; `check` cases, of
other models, never. Needs neither PyTorch nor a GPU.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import gnomon

CHIP = "H200-SXM-141GB"


@dataclass(frozen=True, slots=True)
class Case:
    """One step: `batch` sequences of `seq` tokens at once; `optimizer` is adamw (fp32 weights, autocast) or
    adamw-bf16."""

    part: str
    kind: str
    model: str
    batch: int
    seq: int
    recompute: str
    optimizer: str = "adamw-bf16"

    @property
    def name(self) -> str:
        return f"{self.kind} {self.model} {self.batch}x{self.seq} {self.recompute} {self.optimizer}"


CASES = (
    Case("fit", "timing", "llama-3.2-1b", 8, 2048, "none"),
    Case("fit", "timing", "qwen2.5-0.5b", 1, 1024, "none"),
    Case("fit", "timing", "qwen3-1.7b", 4, 2048, "none"),
    Case("fit", "timing", "llama-3.1-8b", 2, 4096, "full"),
    Case("fit", "timing", "llama-3.2-1b", 4, 4096, "none", "adamw"),
    Case("check", "timing", "qwen2.5-1.5b", 4, 2048, "none"),
    Case("check", "timing", "qwen2.5-7b", 1, 4096, "none"),
    Case("check", "timing", "qwen3-4b", 1, 8192, "full"),
    Case("check", "timing", "mistral-7b", 2, 2048, "full"),
    Case("check", "timing", "smollm2-1.7b", 8, 1024, "none"),
    Case("check", "timing", "llama-3.2-3b", 2, 4096, "none", "adamw"),
    Case("check", "timing", "phi-4-mini", 2, 2048, "none"),
    Case("fit", "edge", "llama-3.2-1b", 8, 4928, "none"),
    Case("fit", "edge", "llama-3.2-1b", 8, 4224, "none", "adamw"),
    Case("fit", "edge", "qwen3-1.7b", 8, 3264, "none"),
    Case("fit", "edge", "llama-3.1-8b", 2, 5952, "none"),
    Case("fit", "edge", "llama-3.2-1b", 8, 5376, "none"),
    Case("fit", "edge", "qwen3-1.7b", 8, 3456, "none"),
    Case("fit", "edge", "llama-3.1-8b", 2, 6528, "none"),
    Case("check", "edge", "qwen2.5-14b", 4, 5504, "full"),
    Case("check", "edge", "llama-3.2-3b", 4, 3968, "none", "adamw"),
    Case("check", "edge", "smollm2-1.7b", 16, 2432, "none"),
    Case("check", "edge", "qwen2.5-14b", 4, 6272, "full"),
    Case("check", "edge", "llama-3.2-3b", 4, 4224, "none", "adamw"),
    Case("check", "edge", "smollm2-1.7b", 16, 2624, "none"),
    Case("check", "edge", "qwen2.5-7b", 2, 6336, "none"),
)


def main() -> None:
    if len(sys.argv) > 1:
        compare([json.loads(line) for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()])
        return
    for case in CASES:
        print(line(case))


def predicted(case: Case) -> Any:
    return gnomon.simulate_training(
        case.model, on=f"{CHIP}:1", seq=case.seq, global_batch=case.batch, micro_batch=case.batch,
        recompute=case.recompute, optimizer=case.optimizer, dtype="bf16", engine="transformers",
    )  # fmt: skip


def line(case: Case) -> str:
    found = predicted(case)
    seconds, peak, usable = found.step_time_s, found.peak_memory_bytes.value, found.usable_memory_bytes
    fits = "fits" if found.fits else "does not fit"
    return (
        f"{case.part:5} {case.name:55} {seconds.value * 1e3:8.1f} ms ({seconds.low * 1e3:.1f} to "
        f"{seconds.high * 1e3:.1f})  {peak / 1e9:7.2f} GB of {usable / 1e9:.2f} ({peak / usable - 1:+.1%}): {fits}"
    )


def compare(rows: Sequence[Mapping[str, Any]]) -> None:
    """Errors of every measured case, and their means over each part."""
    errors = defaultdict[tuple[str, str], list[float]](list)
    names = [one.name for one in fields(Case)]
    for row in rows:
        case = Case(**{name: row[name] for name in names})
        found, said = predicted(case), []
        figures = {"step": ("step_s", found.step_time_s.value), "sustained": ("sustained_s", found.step_time_s.value)}
        figures |= {"allocated": ("allocated_bytes", found.peak_memory_bytes.value)}
        figures |= {"reserved": ("reserved_bytes", found.reserved_memory_bytes)}
        for what, (key, value) in figures.items():
            if key in row and row["outcome"] == "ok":
                errors[case.part, what].append(value / row[key] - 1)
                said.append(f"{what} {value / row[key] - 1:+.1%}")
        right = found.fits == (row["outcome"] == "ok")
        errors[case.part, "called wrongly"].append(float(not right))
        print(f"{case.part:5} {case.name:55} {row['outcome']:14} {'right' if right else 'WRONG'}  {', '.join(said)}")
    for (part, what), some in sorted(errors.items()):
        size, bias = sum(map(abs, some)) / len(some), sum(some) / len(some)
        print(f"{part:5} {what:15} {len(some):3}: mean size {size:.1%}, bias {bias:+.1%}")


if __name__ == "__main__":
    main()
