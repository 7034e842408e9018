"""Times training steps under transformers on the GPU at hand, and takes their memory, to stand beside Gnomon's engine.

    python -m tools.transformers_training --out training.jsonl [--seconds 8] [--part fit] [--kind edge]

Cases are those of tools/transformers_cases.py. Networks are made from the catalog's configs with weights that mean
nothing and trained on random tokens, as the Trainer does it: the model's own loss, gradients clipped to a norm of 1,
fused AdamW, gradients freed after each step. Each case runs in a process of its own, so that one without enough memory
is a row too. One JSON line per case. Needs PyTorch and transformers and downloads nothing; under five minutes on an
H200.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # looking for a GPU must not touch it before the fork

import torch
import transformers
from tools.transformers_cases import CASES, Case
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from gnomon.catalog import model_config_path

SCHEMA = "gnomon.measured.transformers/1"
WARMUP, TIMED, EDGE_STEPS = 3, 10, 3
"""Steps before the timed ones, those timed one by one, and steps at the edge, the second of which has all states."""
QUERIED = "memory.used,clocks.sm,power.draw.instant"
LIMIT_S = 90.0
"""A case that takes longer is ended."""


def configured(case: Case) -> Any:
    """The config of a case's network; its class is imported, which takes seconds."""
    config = json.loads(model_config_path(case.model).read_text())
    made = CONFIG_MAPPING[config["model_type"]].from_dict(config)
    MODEL_FOR_CAUSAL_LM_MAPPING[type(made)]
    return made


def trained(case: Case) -> Callable[[], None]:
    """One training step, ready to run."""
    made = configured(case)
    wide = case.optimizer == "adamw"
    with torch.device("cuda"):
        dtype = torch.float32 if wide else torch.bfloat16
        net = AutoModelForCausalLM.from_config(made, dtype=dtype, attn_implementation="sdpa")
        ids = torch.randint(made.vocab_size, (case.batch, case.seq))
    net.train()
    if case.recompute == "full":
        net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-9, fused=True)

    def step() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16) if wide else nullcontext():
            loss = net(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def measured(case: Case, seconds: float) -> dict[str, Any]:
    torch.manual_seed(0)
    step = trained(case)
    for _ in range(WARMUP if case.kind == "timing" else EDGE_STEPS):
        step()
    torch.cuda.synchronize()
    found = {} if case.kind == "edge" else timed(step, seconds)
    used, _, _ = queried()
    return found | {
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "nvml_used_mib": used,
        "total_bytes": torch.cuda.get_device_properties(0).total_memory,
        "retries": torch.cuda.memory_stats()["num_alloc_retries"],
    }


def timed(step: Callable[[], None], seconds: float) -> dict[str, Any]:
    """Steps one by one, then for some seconds on end, with what the board says over the last half of them."""
    each = []
    for _ in range(TIMED):
        began = time.perf_counter()
        step()
        torch.cuda.synchronize()
        each.append(time.perf_counter() - began)
    boards: list[tuple[float, float, float]] = []
    ends = [time.perf_counter()]
    while ends[-1] - ends[0] < seconds:
        step()
        if ends[-1] - ends[0] > seconds / 2 and len(boards) < 3:
            boards.append(queried())
        torch.cuda.synchronize()
        ends.append(time.perf_counter())
    late = [b - a for a, b in pairwise(ends)][len(ends) // 2 :]
    return {
        "step_s": statistics.median(each),
        "steps_s": each,
        "sustained_s": statistics.median(late),
        "clock_mhz": statistics.median(board[1] for board in boards),
        "power_w": statistics.median(board[2] for board in boards),
    }


def queried() -> tuple[float, float, float]:
    """Memory in MiB, clock in MHz and power in W, by NVML."""
    command = ["nvidia-smi", f"--query-gpu={QUERIED}", "--format=csv,noheader,nounits", "-i", "0"]
    used, clock, power = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split(",")
    return float(used), float(clock), float(power)


def run(case: Case, seconds: float, answers: Any) -> None:
    """In a process of its own."""
    try:
        answers.send(measured(case, seconds))
    except torch.OutOfMemoryError as error:
        held = {
            "allocated_bytes": torch.cuda.max_memory_allocated(),
            "reserved_bytes": torch.cuda.max_memory_reserved(),
        }
        answers.send({"outcome": "out of memory", "error": str(error).splitlines()[0][:300], **held})
    except Exception as error:
        answers.send({"outcome": "failed", "error": f"{type(error).__name__}: {error}"[:300]})


def alone(case: Case, seconds: float, start: str = "fork") -> dict[str, Any]:
    """The case in a process that was forked before anything touched the GPU, or in a new one where that fails."""
    way: Any = multiprocessing.get_context(start)
    ours, theirs = way.Pipe(duplex=False)
    process = way.Process(target=run, args=(case, seconds, theirs))
    process.start()
    found = ours.recv() if ours.poll(LIMIT_S) else {"outcome": "failed", "error": f"no answer in {LIMIT_S:g} s"}
    if process.is_alive() and "error" in found:
        process.terminate()
    process.join()
    if start == "fork" and "forked subprocess" in found.get("error", ""):
        return alone(case, seconds, "spawn")
    return {"outcome": "ok"} | found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=8.0, help="Of sustained steps in each timing case.")
    parser.add_argument("--part", choices=("fit", "check"))
    parser.add_argument("--kind", choices=("timing", "edge"))
    options = parser.parse_args()
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "transformers": transformers.__version__}
    about = {"schema": SCHEMA, "date": datetime.now(UTC).date().isoformat(), "versions": versions}
    about |= {"allocator": os.environ.get("PYTORCH_ALLOC_CONF", "")}
    chosen = [c for c in CASES if options.part in (None, c.part) and options.kind in (None, c.kind)]
    for case in chosen:  # before the first fork
        configured(case)
    with options.out.open("a", encoding="utf-8") as out:
        for case in chosen:
            began = time.perf_counter()
            row = about | asdict(case) | alone(case, options.seconds)
            row["wall_s"] = round(time.perf_counter() - began, 2)
            out.write(json.dumps(row) + "\n")
            out.flush()
            print(
                case.part,
                case.name,
                {k: v for k, v in row.items() if k.endswith(("_s", "_bytes", "outcome"))},
                flush=True,
            )


if __name__ == "__main__":
    main()
