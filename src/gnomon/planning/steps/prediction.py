"""A priced step as an answer: seconds, memory, energy and dollars of all its ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.cost.draws import normals
from gnomon.cost.step import StepPrice
from gnomon.engines import MemoryUse
from gnomon.planning.shortage import shortage, tier_shortage
from gnomon.planning.steps.energy import carbon_g
from gnomon.spec import Estimate, Provenance, Strategy
from gnomon.spec.answers import Prediction

HALF_BAND = 1.645
"""Standard deviations between a normal distribution's middle and its 95% quantile."""


def prediction(
    price: StepPrice,
    strategy: Strategy,
    use: MemoryUse,
    *,
    title: str,
    made: float,
    parallel: Mapping[str, Any],
    inputs: Mapping[str, Any],
    cached: tuple[int, int],
) -> Prediction:
    """The answer for a priced step. `use` includes the step's KV cache, `made` is the tokens or samples of all ranks,
    `cached` the sequences of a data-parallel rank and the tokens per sequence. One pipeline stage is busy at a time."""
    total, pool = price.time_s, price.machine.pool
    ranks, pp, used = strategy.ranks, strategy.pp, sum(use.parts.values())
    waiting_w = (pp - 1) * price.machine.profile.power["idle_w"]
    energy = ranks / pp * (price.joules + total * waiting_w)
    bound, share = price.bound
    return Prediction(
        title=title,
        time_s=total,
        memory_bytes=_memory(used, use.slack_bytes),
        energy_j=energy,
        clock_slowdown=price.clock_slowdown,
        co2_g=carbon_g(pool, energy),
        cost_usd=total * (ranks * pool.chip.price_usd_h / 3600),
        tokens_per_s=made / total.value,
        bound=bound,
        bound_share=share,
        fits=used <= use.usable_bytes and not use.full_tier,
        cause=shortage(use.parts, use.usable_bytes, sequences=cached[0], tokens=cached[1]) or tier_shortage(use, pool),
        memory_parts=use.parts,
        memory_total_bytes=use.total_bytes,
        memory_usable_bytes=use.usable_bytes,
        breakdown=price.lines,
        parallel=parallel,
        inputs=inputs,
    )


def _memory(size: float, slack: float) -> Estimate:
    """Memory with its interval: weights and cache are exact, the engine's reserve is known to `slack` (90%)."""
    source = "weights, cache and the engine's reserve"
    if not slack:
        return Estimate.exact(size, source)
    return Estimate(size, size + slack / HALF_BAND * normals("memory"), Provenance.FITTED, source)
