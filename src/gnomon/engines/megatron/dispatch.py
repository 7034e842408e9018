"""How tokens reach experts, as Megatron-LM's options, and back."""

from __future__ import annotations

from typing import Any

from gnomon.engines.megatron.options import Value
from gnomon.engines.training.imported import TrainingOptions
from gnomon.spec import Strategy
from gnomon.spec.training import ALL_TO_ALL, ONCE
from gnomon.spec.training_job import TrainingJob

SETTINGS = ("capacity_factor", "pad_to_capacity", "ep_overlap", "dispatch")
FLEX = "flex"
BACKENDS = ("deepep", "hybridep")


def options(job: TrainingJob) -> dict[str, Value]:
    """Of a mixture of experts. Without a choice DeepEP's across nodes, as it is priced: a token crosses once for all
    its experts there. It takes fp32 shares."""
    recipe, inside = job.recipe, _inside(job.strategy, job.recipe.expert_tp, job.pool.per_node)
    plain = recipe.dispatch == ALL_TO_ALL or (not recipe.dispatch and inside)
    once: dict[str, Value] = {"--moe-flex-dispatcher-backend": "deepep", "--moe-router-dtype": "fp32"}
    return {
        "--moe-token-dispatcher-type": ALL_TO_ALL if plain else FLEX,
        **({} if plain else once),
        "--moe-expert-capacity-factor": recipe.capacity_factor or False,
        "--moe-pad-expert-input-to-capacity": recipe.pad_to_capacity,
        "--overlap-moe-expert-parallel-comm": overlaps(job),
    }


def overlaps(job: TrainingJob) -> bool:
    return job.recipe.ep_overlap and job.strategy.ep > 1


def not_expressed(job: TrainingJob) -> list[str]:
    """What its options do not say."""
    if not job.model.is_moe or job.strategy.ep == 1:
        return []
    found = []
    if job.recipe.imbalance != 1:
        found.append(f"imbalance {job.recipe.imbalance:g}: your routers decide it")
    if job.recipe.dispatch not in ("", ALL_TO_ALL, ONCE):
        found.append(f"dispatch {job.recipe.dispatch}: Megatron-LM sends tokens in 16 bits")
    return found


def _inside(strategy: Strategy, expert_tp: int, per_node: int) -> bool:
    """Whether tokens meet all experts in their own node."""
    return strategy.ep * (expert_tp or strategy.tp) <= per_node


def imported(options: TrainingOptions, strategy: Strategy, expert_tp: int) -> dict[str, Any]:
    """Settings of a recipe."""
    capacity = options.number("moe-expert-capacity-factor", default=0.0)
    found: dict[str, Any] = {"dispatch": _dispatch(options, strategy, expert_tp)}
    found["capacity_factor"] = capacity
    found["pad_to_capacity"] = options.flag("moe-pad-expert-input-to-capacity") and capacity > 0
    found["ep_overlap"] = options.flag("overlap-moe-expert-parallel-comm") and strategy.ep > 1
    if found["ep_overlap"] and options.flag("delay-wgrad-compute"):
        told = "--delay-wgrad-compute"
        options.unmodelled(told, "priced with gradients of weights beside those of inputs")
    return found


def _dispatch(options: TrainingOptions, strategy: Strategy, expert_tp: int) -> str:
    kind = options.text("moe-token-dispatcher-type")
    backend = options.text("moe-flex-dispatcher-backend", default=BACKENDS[0])
    options.flag("moe-enable-deepep")
    if strategy.ep == 1 or not kind:
        return ""
    if kind == FLEX:
        if backend != BACKENDS[0]:
            options.unmodelled(f"--moe-flex-dispatcher-backend {backend}", "priced as DeepEP's")
        if (expert_tp or strategy.tp) > 1:
            told = f"--moe-token-dispatcher-type {FLEX} with experts cut over ranks"
            options.unmodelled(told, "priced with all-to-alls inside a node")
            return ""
        return ONCE
    if kind != ALL_TO_ALL:
        options.unmodelled(f"--moe-token-dispatcher-type {kind}", f"priced as {ALL_TO_ALL}")
    return ALL_TO_ALL
