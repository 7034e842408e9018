"""The process of one rank of a training plan.

torchrun --nproc-per-node N -m gnomon.engines.torch.worker PLAN.yaml --steps 8 --warmup 3 --out result.json
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from gnomon.engines.torch.launch import STEPS, WARMUP, Measuring, check_runner
from gnomon.errors import GnomonError, InputError
from gnomon.paths import write_text
from gnomon.spec.plan_dict import plan_to_dict

FAILED = 2
SCHEMA = "gnomon.measured.train/1"
"""Schema that `gnomon verify` reads."""


def main(argv: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(argv)
    try:
        result = _run(options)
    except Exception as error:
        _end(error)
    if _rank() == 0:
        write_text(Path(options.out), json.dumps(result) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Runs some steps of a training plan on synthetic tokens.")
    parser.add_argument("plan", help="a plan file with a training load")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps to measure")
    parser.add_argument("--warmup", type=int, default=WARMUP, help="warm-up steps before them")
    parser.add_argument("--out", default="result.json", help="file for the measurements")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def _run(options: argparse.Namespace) -> dict[str, Any]:
    import torch

    from gnomon.engines.torch.train import train
    from gnomon.load.plan import read_plan
    from gnomon.load.training import job_of

    plan = read_plan(options.plan)
    job = job_of(plan)
    check_runner(job)
    if options.device == "cuda" and not torch.cuda.is_available():
        raise InputError("PyTorch finds no GPU here", where="--device", hint="Use --device cpu.")
    asked = Measuring(steps=options.steps, warmup=options.warmup, seed=options.seed, device=options.device)
    found = train(job, asked, _tell if _rank() == 0 else lambda text: None)
    return {"schema": SCHEMA, "plan": plan_to_dict(plan)} | found


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


def _tell(text: str) -> None:
    print(text, flush=True)


def _end(error: Exception) -> NoReturn:
    """Print one line and exit at once: torchrun then ends the ranks that wait in a collective."""
    print(f"error: {described(error, _rank())}", file=sys.stderr, flush=True)
    os._exit(FAILED)


def described(error: BaseException, rank: int) -> str:
    """The first cause on one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, GnomonError):
        return str(error)
    first = next(iter(str(error).strip().splitlines()), "")
    if type(error).__name__ == "OutOfMemoryError":
        return f"rank {rank} ran out of memory. Use a smaller micro_batch, recompute, or shard more ({first})"
    return f"rank {rank} failed: {type(error).__name__}: {first}"


if __name__ == "__main__":
    main()
