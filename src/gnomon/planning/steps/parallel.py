"""Effects of parallel degrees on a step: the stages of a pipeline, and the busiest expert-parallel rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.engines import Deployment, Engine
from gnomon.graph import Experts
from gnomon.spec import Batch


def parallel(
    engine: Engine, deployment: Deployment, steps: Batch, tokens: float, *, sustained: bool = False
) -> Mapping[str, Any]:
    """Empty where there is neither; `tokens` are those of all data-parallel ranks. `sustained` is at the clock that
    the chips keep."""
    found: dict[str, Any] = {}
    if deployment.strategy.pp > 1:
        found["pipeline"] = _pipeline(engine, deployment, steps, tokens, sustained)
    uneven = [op for op in engine.graph(deployment).ops if isinstance(op, Experts) and op.ranks > 1]
    if uneven:
        padded = engine.host(deployment).steps(steps).padded
        worst = max(float(op.imbalance(padded).max()) for op in uneven)
        found["experts"] = {"ranks": uneven[0].ranks, "held": max(op.held for op in uneven), "busiest_over_mean": worst}
        if any(op.excess for op in uneven):
            found["experts"]["uneven"] = True
    return found


def _pipeline(engine: Engine, deployment: Deployment, steps: Batch, tokens: float, sustained: bool) -> dict[str, Any]:
    """Seconds of each stage with the engine's overhead, and the throughput with as many batches in flight as stages,
    which the busiest stage limits."""
    stages = engine.stages(deployment)
    prices = [engine.step_model(deployment, stage).price(steps) for stage in stages]
    times = [(price.sustained if sustained else price).time_s.value for price in prices]
    busiest = max(times)
    return {
        "layers": [stage.layers for stage in stages],
        "stage_s": times,
        "busiest_stage_s": busiest,
        "batches": len(stages),
        "most_tokens_per_s": tokens / busiest,
    }
