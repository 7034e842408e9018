"""Local steps by hand: what is left of an all-reduce, and what a rank keeps."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import gnomon
from gnomon.cost.collective import sm_contention
from gnomon.errors import InputError
from gnomon.papers.machines import cluster
from gnomon.spec.answers import TrainingReport

SLOW = {"scaleout": {"name": "slow", "gb_s": 1.25, "latency_us": 30}, "adapters": 1}
FP32 = 4.0


@cache
def step(*techniques: str) -> TrainingReport:
    on = cluster("A100-SXM-80GB", 16, 8, links=SLOW)
    return gnomon.simulate_training(
        "llama-3.2-1b", on=on, seq=2048, global_batch=32, zero=0, dtype="bf16", techniques=techniques
    )


def all_reduce_s() -> float:
    """Of all weights in fp32 over both nodes."""
    case, held = step().step.case, float(step().step.figures.rank_parameters[0])
    shape = {"bytes": np.array([FP32 * held]), "ranks": np.array([16]), "stride": np.array([1])}
    return float(case.machine.seconds("all_reduce", "bf16", shape)[0])


def part(name: str, *techniques: str) -> float:
    return step(*techniques).step_parts.get(name, 0.0)


def test_no_gradients_are_reduced() -> None:
    assert part("gradient_reduction_s") > 0
    assert part("gradient_reduction_s", "local-steps") == 0


def test_a_step_that_waits_has_its_share_of_the_all_reduce() -> None:
    often, seldom = (part("waits_s", f"local-steps:average=synchronous,every={every}") for every in (10, 100))
    assert often == pytest.approx(10 * seldom, rel=1e-9)
    assert often > all_reduce_s() / 10


@pytest.mark.parametrize("every", [1, 2, 10, 1000])
def test_what_steps_overlap_of_it_is_not_waited_for(every: int) -> None:
    """The rest is, and contention for SMs."""
    waited, overlapping = (part("waits_s", f"local-steps:every={every}{how}") for how in (",average=synchronous", ""))
    plain = step(f"local-steps:every={every}").step_time_s.value - overlapping
    overlapped = min(all_reduce_s() / every, plain)
    assert waited - overlapping == pytest.approx(overlapped * (1 - sm_contention(108)), rel=1e-9)


def test_a_rank_keeps_copies_of_its_weights_in_fp32() -> None:
    held = float(step().step.figures.rank_parameters[0])
    plain, waited, overlapping = (
        step(*names).memory_parts[0]["optimizer"]
        for names in ((), ("local-steps:average=synchronous",), ("local-steps",))
    )
    assert waited - plain == pytest.approx(2 * FP32 * held, rel=1e-9)
    assert overlapping - waited == pytest.approx(FP32 * held, rel=1e-9)


@pytest.mark.parametrize(
    ("degrees", "why"),
    [({"zero": 1}, "ZeRO 1 shards states over the copies"), ({"cp": 2, "zero": 0}, "context-parallel ranks")],
)
def test_copies_that_need_each_other_in_every_step_are_refused(degrees: dict[str, int], why: str) -> None:
    with pytest.raises(InputError, match=why):
        gnomon.simulate_training(
            "llama-3.2-1b", on="A100-80GB:16", seq=2048, global_batch=32, techniques=["local-steps"], **degrees
        )
