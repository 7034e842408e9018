"""Fine-tuning steps that the built-in runner measures on an H200, and what Gnomon says of them before.

    python -m tools.finetune_verify predict FOLDER     plans with their predictions, written before anything is run
    python -m tools.finetune_verify run FOLDER         each plan in a process of its own, on the GPU at hand
    python -m tools.finetune_verify report FOLDER      measured beside the predictions that were written, with errors

Models, lengths and mixes are of no fit: adapters on frozen weights of 16 and of 4 bits, activations and optimizer
states on the host, narrow optimizers, and a mixture of experts. All take about ten minutes. What was measured is in
FOLDER/measured.json after every plan, and in the file that --out names; a plan that is there is not run again, so that
a run that was stopped goes on. `run --device cpu` is for plans of small networks, to try the same way without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import gnomon
from gnomon.engines.torch.launch import Measuring
from gnomon.execution.measured_training import measure
from gnomon.load.plan import plan_to_yaml, read_plan
from gnomon.paths import write_text

ROOT = Path(__file__).parents[1]
MACHINE = ROOT / "measurements" / "h200-2026-11-19-finetune" / "machine.yaml"
PREDICTED_SCHEMA, MEASURED_SCHEMA = "gnomon.predicted.finetune/1", "gnomon.measured.finetune/1"
PREDICTED, MEASURED = "predicted.json", "measured.json"
LIMIT_S = 180.0
"""A plan that takes longer is ended, with every process that it has started."""
SECONDS = 540.0
"""Of a run; a plan that would not be done by then is left to the next run."""
SETUP_S, HOST_SETUP_S = 30.0, 60.0
"""Until the first step, and what pinned memory takes beside that, at most."""
RUN_STEPS = 13
"""Warm-up and measured steps, and two that the first ones take longer."""
PACKED = "qlora"
NF4_LIBRARY = "bitsandbytes"
"""Whose kernel packed weights are priced with."""


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
        return f"{self.part}-{Path(self.model).name}-{self.seq}-{way}-{self.recompute}"

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


def predict(folder: Path, cases: Sequence[Case] = CASES) -> None:
    """Plans, and one file of predictions, which `report` reads and does not compute again."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for case in cases:
        found = case.predicted()
        (folder / f"{case.name}.yaml").write_text(plan_to_yaml(found.plan), encoding="utf-8")
        seconds = found.step_time_s
        rows.append(
            {"name": case.name, **asdict(case)}
            | {name: round(getattr(seconds, name), 6) for name in ("value", "low", "high")}
            | {"peak_memory_bytes": round(found.peak_memory_bytes.value), "fits": found.fits}
        )
        print(f"{case.name:55} {seconds.value:7.3f} s, {rows[-1]['peak_memory_bytes'] / 2**30:6.1f} GiB", flush=True)
    text = json.dumps({"schema": PREDICTED_SCHEMA, "cases": rows}, indent=1) + "\n"
    (folder / PREDICTED).write_text(text, encoding="utf-8")


def predictions(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((folder / PREDICTED).read_text(encoding="utf-8"))["cases"]
    return rows


def measurements(file: Path) -> dict[str, Any]:
    """What was measured of plans by name, or why it was not."""
    if not file.exists():
        return {}
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["runs"]
    return found


def in_turn(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The first plan of every part, then the second of each: a run that ends early has some of all."""
    parts = defaultdict[str, list[dict[str, Any]]](list)
    for row in rows:
        parts[row["part"]].append(row)
    for place in range(max(map(len, parts.values()), default=0)):
        yield from (own[place] for own in parts.values() if place < len(own))


def run(folder: Path, options: argparse.Namespace) -> None:
    """Every plan that has not been measured, as long as there is time."""
    began, file = time.monotonic(), folder / MEASURED
    runs = (measurements(options.out) if options.out else {}) | measurements(file)
    for row in in_turn(predictions(folder)):
        name = row["name"]
        if "step_s" in runs.get(name, {}) or (name in runs and not options.again):
            continue
        left = options.seconds - (time.monotonic() - began)
        if left < expected_s(row):
            print(f"{name:55} left to the next run: {left:.0f} s of {expected_s(row):.0f} s", flush=True)
            continue
        started = time.monotonic()
        runs[name] = measured(folder, row, options, min(LIMIT_S, left))
        said = runs[name].get("error", "measured")
        print(f"{name:55} {time.monotonic() - started:4.0f} s: {said}", flush=True)
        text = json.dumps({"schema": MEASURED_SCHEMA, "runs": runs}, indent=1) + "\n"
        for target in filter(None, (file, options.out)):
            write_text(target, text)


def expected_s(row: dict[str, Any]) -> float:
    """What a plan's process takes, as far as is known before it is run."""
    host = HOST_SETUP_S if row["technique"].startswith("offload") else 0.0
    return SETUP_S + host + RUN_STEPS * float(row["high"])


def measured(folder: Path, row: dict[str, Any], options: argparse.Namespace, limit_s: float) -> dict[str, Any]:
    """What a process of its own measured of a plan, or why it did not."""
    if row["technique"].startswith(PACKED) and options.device == "cuda" and find_spec(NF4_LIBRARY) is None:
        return {"error": f"{NF4_LIBRARY} is not installed, whose kernel is priced; PYTHONPATH may name its folder"}
    out, log = folder / f".{row['name']}.json", folder / f".{row['name']}.log"
    words = [sys.executable, "-m", "tools.finetune_verify", "one", str(folder / f"{row['name']}.yaml")]
    words += ["--out", str(out), "--device", options.device, "--steps", str(options.steps)]
    try:
        with log.open("w+", encoding="utf-8") as said:
            ended = _ended(words, _environment(folder), said, limit_s)
            if ended and out.exists():
                found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
                return found
            said.seek(0)
            lines = [line.strip() for line in said if line.strip()]
        why = "no result" if ended else f"ended after {limit_s:.0f} s"
        return {"error": ": ".join([why, *lines[-1:]])[:500]}
    finally:
        for left in (out, log):
            left.unlink(missing_ok=True)


def _environment(folder: Path) -> dict[str, str]:
    """Of a plan's process: this checkout before any other, without profiles of the user's own."""
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": path, "GNOMON_HOME": str((folder / ".home").resolve())}


def _ended(words: Sequence[str], environment: dict[str, str], said: Any, limit_s: float) -> bool:
    """Whether a command was done in time; if not, all that it has started is killed, and frees the GPU."""
    started = subprocess.Popen(words, stdout=said, stderr=said, env=environment, start_new_session=True)
    try:
        started.wait(limit_s)
        return True
    except subprocess.TimeoutExpired:
        return False
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()


def one(plan: Path, options: argparse.Namespace) -> None:
    """The process of one plan: its steps, and what the first rank said of them."""
    asked = Measuring(steps=options.steps, device=options.device)
    try:
        found = measure(read_plan(plan), lambda text: print(text, flush=True), asked)
    except gnomon.GnomonError as error:
        sys.exit(str(error))
    write_text(options.out, json.dumps(found.to_dict()))


def report(folder: Path) -> None:
    errors = defaultdict[tuple[str, str], list[float]](list)
    runs, inside = measurements(folder / MEASURED), 0
    for row in predictions(folder):
        found = runs.get(row["name"], {"error": "not run yet"})
        if "error" in found:
            print(f"{row['name']:55} not measured: {found['error']}")
            continue
        time_s, peaks = median(found["step_s"]), [peak for peak in found["peak_memory_bytes"] if peak]
        apart = {"time": row["value"] / time_s - 1}
        if peaks:
            apart["memory"] = row["peak_memory_bytes"] / max(peaks) - 1
        here = row["low"] <= time_s <= row["high"]
        inside += here
        said = ", ".join(f"{what} {error:+.1%}" for what, error in apart.items())
        memory = f"{max(peaks) / 2**30:6.1f} GiB" if peaks else "memory unknown"
        kernel = found.get("techniques", {}).get(PACKED, {}).get("nf4_kernel", "")
        tail = [f"{'inside' if here else 'outside'} the interval", *([kernel] if kernel else [])]
        print(f"{row['name']:55} {time_s:7.3f} s, {memory}: {said}, {', '.join(tail)}")
        for what, error in apart.items():
            errors[row["part"], what].append(error)
            errors["all", what].append(error)
    for (part, what), some in sorted(errors.items()):
        print(f"{part:12} {what:7} {len(some):3}: mean error {sum(map(abs, some)) / len(some):.1%}")
    print(f"{inside} of {len(errors['all', 'time'])} inside the 90% interval")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("predict", "run", "report", "one"))
    parser.add_argument("folder", type=Path, help="the folder of the plans; of `one`, a plan")
    parser.add_argument("--out", type=Path, help="a second file for what is measured, which is read too")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long a run may take")
    parser.add_argument("--again", action="store_true", help="run plans again that failed")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--steps", type=int, default=Measuring().steps, help="measured steps of each plan")
    options = parser.parse_args()
    if options.action in ("run", "one"):
        {"run": run, "one": one}[options.action](options.folder, options)
    else:
        {"predict": predict, "report": report}[options.action](options.folder)


if __name__ == "__main__":
    main()
