"""Plans of a serving search in words: two that differ have two labels."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.graph.dtypes import width
from gnomon.planning.serving.disaggregated import pools_of
from gnomon.planning.serving.task import PlanTask
from gnomon.search import Candidate
from gnomon.spec.plan import BOTH


def label(question: PlanTask, plan: Candidate) -> str:
    """`2 x (H100, TP 4, fp8, chunked prefill 2048, 256 sequences)`; of prefill and decode replicas, one after the
    other."""
    pools = [(role, pool_label(question, pool)) for role, pool in pools_of(plan)]
    return " + ".join(text if role == BOTH else f"{role} {text}" for role, text in pools)


def pool_label(question: PlanTask, plan: Candidate) -> str:
    """Equal replicas."""
    family = plan.family
    labels = {knob.name: knob.label for knob in question.bindings[family.chip].engine.knobs}
    budgets = [labels.get(name, f"{name} {{}}").format(value) for name, value in reversed(family.settings)]
    others = {"PP": family.pp, "DP": family.dp, "EP": family.ep}
    degrees = [f"TP {family.tp}", *(f"{name} {degree}" for name, degree in others.items() if degree > 1)]
    parts = [question.chip(family.chip).short, *degrees, family.dtype, *_beside_weights(question), *budgets]
    return f"{plan.replicas} x ({', '.join(parts)})"


def _beside_weights(question: PlanTask) -> Iterator[str]:
    """A narrow KV cache, techniques, and options that were weighed."""
    if question.kv_dtype and width(question.kv_dtype) < width("bf16"):
        yield f"{question.kv_dtype} KV cache"
    yield from question.techniques
    yield from question.chosen
