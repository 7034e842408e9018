"""Small plans with adapters, run one after another by the same four processes.

Started by torchrun: `torchrun --nproc-per-node 4 -m tests.oracles.adapter_ranks OUT.json`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from tests.oracles.torch_ranks import LLAMA, LOAD

from gnomon.engines.torch.launch import Measuring
from gnomon.load import parse_pool
from gnomon.spec import Recipe, Strategy
from gnomon.spec.training_job import TrainingJob
from gnomon.techniques import TRAINING, applied

ASKED = Measuring(steps=5, warmup=0, seed=7, device="cpu")
LEARNT = 0.01
"""What losses fall by at least."""
JOB = TrainingJob(model=LLAMA, pool=parse_pool("H100:8"), strategy=Strategy(), recipe=Recipe(), load=LOAD, dtype="fp32")
ALONE = replace(JOB, recipe=Recipe(micro_batch=4))
PLANS = {
    "dp4": (Strategy(dp=4), Recipe(micro_batch=2)),
    "zero1": (Strategy(dp=4), Recipe(micro_batch=2, zero=1)),
    "zero2": (Strategy(dp=4), Recipe(micro_batch=2, zero=2)),
    "zero3": (Strategy(dp=4), Recipe(micro_batch=2, zero=3)),
    "tp4": (Strategy(tp=4), Recipe(micro_batch=8)),
    "tp4 whole": (Strategy(tp=4), Recipe(micro_batch=8, sequence_parallel=False)),
    "tp2 zero3": (Strategy(tp=2, dp=2), Recipe(micro_batch=4, zero=3)),
    "pp4": (Strategy(pp=4), Recipe(micro_batch=2)),
    "pp2 vp2 dp2": (Strategy(pp=2, vp=2, dp=2), Recipe(micro_batch=2, schedule="interleaved")),
    "pp4 full": (Strategy(pp=4), Recipe(micro_batch=2, recompute="full")),
    "zero3 selective": (Strategy(dp=4), Recipe(micro_batch=2, zero=3, recompute="selective")),
}


def asked(job: TrainingJob, *techniques: str) -> TrainingJob:
    """A job with techniques."""
    values = applied(TRAINING, techniques).values
    return replace(job, strategy=replace(job.strategy, techniques=techniques), techniques=values)


def cases() -> dict[str, TrainingJob]:
    """Every plan with each kind of adapter that runs so, by name."""
    found = {}
    for name, (strategy, recipe) in PLANS.items():
        job = replace(JOB, strategy=strategy, recipe=recipe)
        found[f"lora {name}"] = asked(job, "lora:rank=8")
        if strategy.tp == 1:
            found[f"dora {name}"] = asked(job, "dora:rank=8")
        if strategy.tp == 1 and recipe.zero < 2:
            found[f"qlora {name}"] = asked(job, "qlora:rank=8")
    for dtype in ("bf16",):
        found[f"lora zero3 {dtype}"] = asked(replace(JOB, dtype=dtype, **_of("zero3")), "lora:rank=8")
    return found


def _of(name: str) -> dict[str, object]:
    return dict(zip(("strategy", "recipe"), PLANS[name], strict=True))


def main(out: str) -> None:
    import torch.distributed as dist

    from gnomon.engines.torch.train import train

    dist.init_process_group("gloo")
    results = {name: train(job, ASKED) for name, job in cases().items()}
    if dist.get_rank() == 0:
        Path(out).write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
