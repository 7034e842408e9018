"""DeepSeek-V3's pre-training as published (arXiv:2412.19437): 180,000 H800 hours per trillion tokens, 2.664 million."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from gnomon.engines.megatron.engine import Megatron
from gnomon.engines.training import Traits
from gnomon.load.reliability import fault_tolerance
from gnomon.load.training import bind_training
from gnomon.planning.run.reliability import planned_run
from gnomon.planning.training.asked import step_of
from gnomon.spec import Model, Recipe, Strategy
from gnomon.spec.questions.objectives import PlanTrainingQuestion

PUBLISHED = 2.664e6
"""Table 1: GPU-hours of pre-training on 14.8 trillion tokens."""
CHIPS = 2048


@dataclass(frozen=True)
class WithDualPipe(Megatron):
    """Megatron-LM's kernels under DeepSeek's schedule, which it does not have."""

    def traits(self, model: Model, optimizer: str = "adamw", dtype: str = "bf16") -> Traits:
        return replace(super().traits(model, optimizer, dtype), schedules=("1f1b", "dualpipe"))


def gpu_hours(schedule: str) -> float:
    """PP 16, EP 64 over 8 nodes, ZeRO-1, scales per 128 values, an MTP layer (sections 2.2, 3.2 and 3.3), for which the
    last stage has three others less; failures as often as Llama 3's. Tokens go to experts in 16 bits, as Megatron-LM
    sends them, not in eight as there, and experts get equal shares."""
    question = PlanTrainingQuestion(
        model="deepseek-v3", cluster=f"H800:{CHIPS}", seq=4096, global_batch=15360, tokens=14.8e12, mtp_layers=1,
        dtype="fp8-blocks", failures="default",
    )  # fmt: skip
    bound = bind_training("deepseek-v3", f"H800:{CHIPS}", "megatron", "--cluster", None, question.load)
    engine = WithDualPipe()
    recipe = Recipe(
        schedule=schedule, zero=1, sequence_parallel=False, recompute="modules=layernorm+mla_up_proj+moe_act",
        layers_per_stage=",".join(["4"] * 15 + ["1"]),
    )  # fmt: skip
    strategy = Strategy(pp=16, ep=64, dp=128)
    job = replace(bound, engine=engine).job(strategy, recipe, question.load, question.dtype)
    asked = fault_tolerance(question, bound.pool)
    assert asked is not None
    return planned_run(step_of(job, engine, bound.profile, {}), asked).wall_s / 3600 * CHIPS


def test_gpu_hours_are_those_published() -> None:
    assert gpu_hours("dualpipe") == pytest.approx(PUBLISHED, rel=0.1)


def test_a_plain_pipeline_leaves_the_exchange_of_experts_exposed() -> None:
    assert gpu_hours("1f1b") > 1.2 * gpu_hours("dualpipe")
