"""Latency of a plan against the rate, up to and a little beyond the highest one that meets its goals."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.planning.serving.evaluator import ServingEvaluator
from gnomon.search import Level, Score, SearchJob
from gnomon.spec.answers.serving import RatePoint

SHARES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.95, 1.0, 1.06, 1.12)
"""Of the highest rate that meets the goals."""


def latency_by_rate(best: Score, most: float, evaluator: ServingEvaluator, job: SearchJob) -> Iterator[RatePoint]:
    """The plan at shares of the highest rate, each simulated to its end; the rate that is asked for is among them."""
    asked = {best.rate_per_s} if best.rate_per_s < most else set()
    for rate in sorted({share * most for share in SHARES} | asked):
        score = evaluator.evaluate(best.plan, rate, Level.TO_THE_END)
        yield RatePoint(
            rate_per_s=rate,
            ttft_s=score.detail.ttft_s,
            tpot_s=score.detail.tpot_s,
            output_tokens_per_s=score.detail.output_tokens_per_s,
            meets=score.sure_room(job.goals) >= 0,
        )
