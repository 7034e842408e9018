"""Fine-tuning steps that `gnomon verify` measures on an H200, and what Gnomon says of them before.

    python -m tools.finetune_verify predict FOLDER     plans with their predictions, written before anything is run
    python -m tools.finetune_verify run FOLDER         each plan in a process of its own, on the GPU at hand
    python -m tools.finetune_verify report FOLDER      measured beside the predictions that were written, with errors

Models, lengths and mixes are of no fit: adapters on frozen weights of 16 and of 4 bits, activations and optimizer
states on the host, narrow optimizers, and a mixture of experts. A run takes about fifteen minutes; a plan that has been
measured is not measured again, so that a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gnomon
from gnomon.execution.measured_training import read_training
from gnomon.load.plan import plan_to_yaml

MACHINE = Path(__file__).parents[1] / "measurements" / "h200-2026-11-19-finetune" / "machine.yaml"
SCHEMA = "gnomon.predicted.finetune/1"
PREDICTED = "predicted.json"
LIMIT_S = 120.0
"""A plan that takes longer is ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A training step of the built-in runner, `batch` sequences in micro-batches of `micro`."""

    part: str
    model: str
    seq: int
    batch: int
    micro: int
    technique: str = ""
    optimizer: str = "adamw"
    recompute: str = "none"

    @property
    def name(self) -> str:
        way = self.technique.split(":")[0] or self.optimizer
        return f"{self.part}-{self.model}-{self.seq}-{way}-{self.recompute}"

    def predicted(self) -> Any:
        return gnomon.simulate_training(
            self.model, on=str(MACHINE), engine="torch", dtype="bf16", seq=self.seq, global_batch=self.batch,
            micro_batch=self.micro, optimizer=self.optimizer, recompute=self.recompute,
            techniques=[self.technique] if self.technique else [],
        )  # fmt: skip


CASES = (
    Case(part="lora", model="qwen2.5-7b", seq=2048, batch=8, micro=4, technique="lora:rank=16"),
    Case(part="lora", model="qwen3-8b", seq=4096, batch=4, micro=2, technique="lora:rank=32"),
    Case(part="lora", model="qwen3-14b", seq=8192, batch=2, micro=1, technique="lora:rank=16", recompute="full"),
    Case(part="qlora", model="mistral-7b", seq=4096, batch=4, micro=2, technique="qlora:rank=16"),
    Case(part="qlora", model="qwen3-8b", seq=8192, batch=2, micro=1, technique="qlora:rank=64", recompute="full"),
    Case(part="qlora", model="qwen2.5-14b", seq=2048, batch=8, micro=2, technique="qlora:rank=16"),
    Case(part="activations", model="qwen3-4b", seq=8192, batch=2, micro=1, technique="offload-activations"),
    Case(part="activations", model="qwen2.5-7b", seq=4096, batch=4, micro=2, technique="offload-activations",
         optimizer="adamw-bf16"),
    Case(part="states", model="qwen3-4b", seq=2048, batch=8, micro=4, technique="offload-optimizer"),
    Case(part="optimizer", model="llama-3.2-3b", seq=4096, batch=4, micro=2, optimizer="muon"),
    Case(part="optimizer", model="qwen3-4b", seq=2048, batch=8, micro=4, optimizer="adam8bit"),
    Case(part="experts", model="olmoe-7b", seq=4096, batch=4, micro=2, optimizer="adamw-bf16"),
    Case(part="experts", model="olmoe-7b", seq=2048, batch=8, micro=2, optimizer="adamw-bf16", recompute="full"),
)  # fmt: skip


def predict(folder: Path) -> None:
    """Plans, and one file of predictions, which `report` reads and does not compute again."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for case in CASES:
        found = case.predicted()
        (folder / f"{case.name}.yaml").write_text(plan_to_yaml(found.plan), encoding="utf-8")
        seconds = found.step_time_s
        rows.append(
            {"name": case.name, **asdict(case)}
            | {name: round(getattr(seconds, name), 6) for name in ("value", "low", "high")}
            | {"peak_memory_bytes": round(found.peak_memory_bytes.value), "fits": found.fits}
        )
        print(f"{case.name:55} {seconds.value:7.3f} s, {rows[-1]['peak_memory_bytes'] / 2**30:6.1f} GiB", flush=True)
    text = json.dumps({"schema": SCHEMA, "cases": rows}, indent=1) + "\n"
    (folder / PREDICTED).write_text(text, encoding="utf-8")


def run(folder: Path) -> None:
    way = multiprocessing.get_context("spawn")
    for case in CASES:
        out, began = folder / f"{case.name}.json", time.perf_counter()
        if out.exists():
            continue
        process = way.Process(target=_measure, args=(folder / f"{case.name}.yaml", out))
        process.start()
        process.join(LIMIT_S)
        if process.is_alive():
            process.terminate()
            process.join()
        outcome = "measured" if out.exists() else "not measured"
        print(f"{case.name:55} {outcome} in {time.perf_counter() - began:.0f} s", flush=True)


def _measure(plan: Path, out: Path) -> None:
    try:
        gnomon.verify(plan, out=out, progress=print)
    except gnomon.GnomonError as error:
        print(f"{plan.stem}: {error}", flush=True)


def report(folder: Path) -> None:
    errors = defaultdict[tuple[str, str], list[float]](list)
    for row in json.loads((folder / PREDICTED).read_text(encoding="utf-8"))["cases"]:
        file = folder / f"{row['name']}.json"
        if not file.exists():
            print(f"{row['name']:55} not measured")
            continue
        found = read_training(file)
        steps = sorted(found.step_s)
        time_s, peak = steps[len(steps) // 2], max(found.peak_memory_bytes)
        apart = {"time": row["value"] / time_s - 1, "memory": row["peak_memory_bytes"] / peak - 1}
        inside = "inside" if row["low"] <= time_s <= row["high"] else "outside"
        said = ", ".join(f"{what} {error:+.1%}" for what, error in apart.items())
        print(f"{row['name']:55} {time_s:7.3f} s, {peak / 2**30:6.1f} GiB: {said}, {inside} the interval")
        for what, error in apart.items():
            errors[row["part"], what].append(error)
            errors["all", what].append(error)
    for (part, what), some in sorted(errors.items()):
        print(f"{part:12} {what:7} {len(some):3}: mean error {sum(map(abs, some)) / len(some):.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("predict", "run", "report"))
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    {"predict": predict, "run": run, "report": report}[options.action](options.folder)


if __name__ == "__main__":
    main()
