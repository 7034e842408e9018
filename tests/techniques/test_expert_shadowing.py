"""Popular experts on every rank: what travels, what does not, and what it holds."""

from __future__ import annotations

from typing import Any

import pytest

import gnomon
from gnomon.engines.training.layer_cost import tapes_of
from gnomon.errors import InputError
from gnomon.graph.ops import Collective
from gnomon.graph.popularity import visit_shares
from gnomon.spec import Batch

LOAD: dict[str, Any] = {
    "model": "qwen1.5-moe-a2.7b",
    "on": "H100:32",
    "seq": 4096,
    "global_batch": 128,
    "micro_batch": 4,
    "ep": 4,
}
"""Large enough not to wait for launches."""
EXPERT = 3 * 2048 * 1408


def step(*words: str, **more: Any) -> Any:
    return gnomon.simulate_training(**(LOAD | more), techniques=words)


def exchanged(found: Any, op: str) -> float:
    """Bytes of one micro-batch of one layer, forward and backward."""
    tape = tapes_of(found.step.job.model, found.step.cut, found.step.traits)["layer"]
    ops = [*tape.forward_ops(), *tape.backward_ops("none")]
    batch: Batch = found.step.batch
    return float(sum(one.bytes(batch)[0] for one in ops if isinstance(one, Collective) and one.op == op))


def test_fewer_tokens_travel_for_weights_that_do() -> None:
    plain, found = step(), step("expert-shadowing:share=0.25,skew=1")
    stays = sum(visit_shares(60, 4, 1.0)[:15])
    assert exchanged(found, "all_to_all") == pytest.approx((1 - stays) * exchanged(plain, "all_to_all"))
    weights = 15 * 2 * EXPERT
    assert exchanged(found, "all_gather") - exchanged(plain, "all_gather") == pytest.approx(2 * weights)
    assert exchanged(found, "reduce_scatter") - exchanged(plain, "reduce_scatter") == pytest.approx(weights)
    held = [one.memory_parts[0]["working"] for one in (plain, found)]
    assert held[1] - held[0] == pytest.approx(2 * weights)


def test_tensor_parallel_ranks_hold_their_cut_of_the_copies() -> None:
    held = [step(*words, tp=2).memory_parts[0]["working"] for words in ((), ("expert-shadowing:share=0.25",))]
    assert held[1] - held[0] == pytest.approx(2 * 15 * 2 * EXPERT / 2)


def test_no_copies_change_nothing_and_uneven_ranks_become_more_even() -> None:
    assert step("expert-shadowing:share=0").step_time_s.value == step().step_time_s.value
    times = [step("expert-shadowing:share=0.05,skew=2", imbalance=uneven).step_time_s.value for uneven in (1.0, 2.0)]
    plain = [step(imbalance=uneven).step_time_s.value for uneven in (1.0, 2.0)]
    assert times[1] - times[0] < plain[1] - plain[0]


def test_where_it_does_not_apply_it_says_why() -> None:
    with pytest.raises(InputError, match="none is copied"):
        step("expert-shadowing", ep=1)
    with pytest.raises(InputError, match="pipeline"):
        step("expert-shadowing", pp=2)
