"""One job on two kinds of chips against a loop over all layouts and ways to share the batch, each part simulated."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest

from gnomon.api.plan_training import _site, plan_training
from gnomon.api.simulate_training import simulate_training
from gnomon.errors import GnomonError, InputError
from gnomon.load import parse_pool
from gnomon.planning.training.mixed import Mixture, _solved
from gnomon.planning.training.search import search_of
from gnomon.sim.training import SCHEDULES
from gnomon.spec.questions.objectives import PlanTrainingQuestion

JOB: dict[str, Any] = {"model": "llama-3.2-1b", "seq": 4096}


@cache
def alone(kind: tuple[str, int], ranks: int, batch: int, layout: tuple[tuple[str, Any], ...]) -> tuple[float, bool]:
    """Seconds of a step whose replicas are all of one kind, in nodes as the cluster has them, and whether it fits."""
    pool = replace(parse_pool(f"{kind[0]}:{kind[1]}"), count=ranks)
    found = simulate_training(on=pool, global_batch=batch, **JOB, **dict(layout))
    return found.step_time_s.value, found.fits


def looped(first: tuple[str, int], second: tuple[str, int], batch: int) -> float:
    """The shortest step of all mixtures of powers of two."""
    best = float("inf")
    powers = (1, 2)
    for tp, pp, vp, micro, zero, full, cut in product(powers, powers, powers, (1, 2, 3, 4), range(4), (0, 1), (0, 1)):
        each = tp * pp
        counts = first[1] // each, second[1] // each
        dp = sum(counts)
        if not all(counts) or (cut and tp == 1) or (vp > 1 and pp == 1) or (zero and dp == 1):
            continue
        schedules = [one for one in ("gpipe", "1f1b", "interleaved") if SCHEDULES[one].takes_chunks(vp)]
        for schedule in schedules if pp > 1 else ["1f1b"]:
            layout = {"tp": tp, "pp": pp, "vp": vp, "dp": dp, "micro_batch": micro, "zero": zero, "schedule": schedule}
            layout |= {"recompute": "full" if full else "none", "sequence_parallel": bool(cut)}
            for share in range(1, batch):
                rest = batch - share * micro * counts[0]
                if rest <= 0 or rest % (micro * counts[1]):
                    continue
                other = rest // (micro * counts[1])
                try:
                    parts = [
                        alone(kind, each * dp, own * micro * dp, tuple(layout.items()))
                        for kind, own in ((first, share), (second, other))
                    ]
                except GnomonError:
                    continue
                if all(fits for _, fits in parts):
                    best = min(best, max(seconds for seconds, _ in parts))
    return best


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("first", "second", "batch"),
    [
        (("H100", 1), ("H200", 1), 6),
        pytest.param(("H100", 2), ("A100", 1), 6, marks=pytest.mark.slow),
        pytest.param(("A100", 2), ("H200", 2), 12, marks=pytest.mark.slow),
        pytest.param(("H100", 2), ("A100", 4), 12, marks=pytest.mark.slow),
    ],
)
def test_the_fastest_mixture_of_all(first: tuple[str, int], second: tuple[str, int], batch: int) -> None:
    cluster = "+".join(f"{chip}:{count}" for chip, count in (first, second))
    answer = plan_training(cluster=cluster, global_batch=batch, **JOB)
    expected = looped(first, second, batch)
    if not answer.mixture:
        assert answer.best.step_time_s.value <= expected
        return
    assert answer.best.step_time_s.value == pytest.approx(expected, rel=1e-9)
    parts = answer.mixture["parts"]
    assert sum(part["replicas"] * part["sequences_per_replica"] for part in parts) == batch
    assert max(part["step_time_s"] for part in parts) == answer.best.step_time_s.value
    assert all(part["peak_memory_bytes"] <= part["usable_memory_bytes"] for part in parts)
    assert len(answer.best.ranks) == sum(int(part["cluster"].partition(":")[2]) for part in parts)
    assert [row["cluster"] for row in answer.objective["compared"]] == [
        one.bound.pool.words for one in _sites(cluster, batch)
    ]
    fastest = min(row["value"] for row in answer.objective["compared"])
    assert answer.best.step_time_s.value < fastest


def _sites(cluster: str, batch: int) -> list[Any]:
    question = PlanTrainingQuestion(cluster=cluster, global_batch=batch, **JOB)
    return [_site(question, question.model, kind) for kind in question.kinds]


def test_bounds_are_below_the_best_way_to_share() -> None:
    sites = _sites("H100:4+A100:4", 16)
    first, second = (search_of(one.bound, one.bound.load(_load(16)), "adamw", None) for one in sites)
    mixture = Mixture((first, second))
    ways = mixture.ways[-1]
    assert ways.min() >= 1
    for row in range(0, mixture.grid.size, 97):
        if mixture.bounds_s[row] < float("inf"):
            assert mixture.bounds_s[row] <= mixture.best_way(row)[0]
        begin, other = mixture.micros(ways - 1)
        count = mixture.replicas(row)
        taken = begin[row] * count[0] + other[row] * count[1]
        assert taken * mixture.grid.micro_batch[row] == 16


def _load(batch: int) -> Any:
    return PlanTrainingQuestion(cluster="H100", global_batch=batch, **JOB).load


@pytest.mark.parametrize("units", [3, 8, 12, 25])
@pytest.mark.parametrize(("first", "second", "least"), [(1, 1, 1), (2, 3, 1), (4, 6, 1), (3, 2, 2), (5, 1, 3)])
def test_all_ways_to_share(units: int, first: int, second: int, least: int) -> None:
    begin, other, up, down, count = _solved(units, first, second, 1, least)
    found = [(begin + n * up, other - n * down) for n in range(count)]
    assert found == [
        (one, rest // second)
        for one in range(least, units + 1)
        if (rest := units - one * first) >= least * second and rest % second == 0
    ]


def test_money_and_work_are_those_of_both_kinds() -> None:
    answer = plan_training(cluster="H100:4+A100:4", global_batch=32, tokens=1e9, **JOB)
    best, (fast, slow) = answer.best, answer.mixture["parts"]
    assert fast["micro_batches"] > slow["micro_batches"], "in proportion of their speed"
    prices = [one.bound.pool.chip.price_usd_h for one in _sites("H100:4+A100:4", 32)]
    gpus = [int(part["cluster"].partition(":")[2]) for part in (fast, slow)]
    hourly = sum(count * price for count, price in zip(gpus, prices, strict=True))
    assert best.cost_usd == pytest.approx(best.step_time_s.value / 3600 * hourly)
    assert best.run["cost_usd"] == pytest.approx(best.run["steps"] * best.cost_usd)
    assert best.run["steps"] == -(-1e9 // (32 * JOB["seq"]))
    assert best.tokens_per_s_per_gpu == pytest.approx(32 * JOB["seq"] / best.step_time_s.value / 8)
    assert "4 x H100-SXM-80GB + 4 x A100-SXM-80GB" in answer.title
    assert "a step of 32 sequences" in answer.title
    assert f"together  H100-SXM-80GB:4: {fast['replicas']} replicas of" in str(answer)


def test_a_kind_that_would_slow_the_other_down_is_left_out() -> None:
    answer = plan_training(cluster="H100:4+L4:1", global_batch=5, **JOB)
    assert not answer.mixture
    assert {part["on"] for part in [answer.best.inputs]} == {"H100-SXM-80GB:4"} or answer.best.inputs["on"].startswith(
        "H100"
    )
    assert "together" in answer.objective["compared"][-1]["why"] or "kinds" in answer.objective["compared"][-1]["why"]


BOTH = "H100:4+A100:4"
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "twice": ({"cluster": "H100:4+H100:4"}, r"--cluster: H100-SXM-80GB is given twice"),
    "formats": ({"cluster": "H100:4+V100:4"}, r"--cluster: .*bf16.*fp16.*--dtype"),
    "three": ({"cluster": "H100:4+A100:4+L4:1"}, r"--cluster: names more than two kinds"),
    "a choice beside": ({"cluster": "H100:4+A100:4,L4:1"}, r"--cluster: names more than two kinds"),
    "failures": ({"cluster": BOTH, "failures": "default", "tokens": 1e9}, r"--failures: is not planned on two"),
    "an objective": ({"cluster": BOTH, "fewest_gpus": True}, r"--objective: is not planned on two"),
    "an engine": ({"cluster": BOTH, "engine": "torchtitan"}, r"--engine: mixed chips .*TorchTitan.*megatron"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_mixed_is_refused(name: str) -> None:
    given, message = REFUSED[name]
    with pytest.raises(InputError, match=message):
        plan_training(global_batch=16, **given, **JOB)
