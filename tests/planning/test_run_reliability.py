"""A training run with failures: what may never happen, and what must, whatever the figures are."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

import gnomon
from gnomon.catalog.failures import failure_rate
from gnomon.errors import GnomonError, InfeasibleError, InputError
from gnomon.load.answers import answer_from_dict
from gnomon.spec.answers import TrainingReport
from gnomon.spec.answers.run import RunReliability

RATE = "2e-4/gpu-hour"
"""Of a small cluster that fails as often as a large one."""
JOB: dict[str, Any] = {"seq": 4096, "global_batch": 256, "tp": 2, "zero": 1, "recompute": "selective", "tokens": 2e11}


def run_of(on: str = "H100:128", **options: Any) -> TrainingReport:
    return gnomon.simulate_training("llama-3.1-8b", on=on, **JOB | {"failures": RATE} | options)


def found(on: str = "H100:128", **options: Any) -> RunReliability:
    answer = run_of(on, **options).reliability
    assert answer is not None
    return answer


def test_goodput_falls_as_failures_become_more_frequent() -> None:
    shares = [found(failures=f"{rate:g}/gpu-hour").goodput.value for rate in (1e-6, 1e-5, 1e-4, 1e-3, 3e-3)]
    assert shares == sorted(shares, reverse=True)
    assert len(set(shares)) == len(shares)


def test_goodput_falls_with_the_size_of_the_cluster() -> None:
    shares = [found(f"H100:{count}").goodput.value for count in (64, 128, 256, 512)]
    assert shares == sorted(shares, reverse=True)
    assert len(set(shares)) == len(shares)


@pytest.mark.parametrize("options", [{}, {"checkpoint_mode": "synchronous"}, {"checkpoint_to": "shared:5GB/s"}])
def test_best_interval_is_near_youngs(options: dict[str, Any]) -> None:
    """sqrt(2 x stall x mean time between failures), unless the checkpoint takes longer to be written."""
    told = found(**options).checkpoints
    young = math.sqrt(2 * told["stall_s"] / (2e-4 * 128 / 3600))
    assert told["young_interval_s"] == pytest.approx(young)
    step = told["best_interval_s"] / told["best_every_steps"]
    assert told["best_interval_s"] == pytest.approx(max(young, told["write_s"]), abs=step, rel=0.05)
    assert told["every_steps"] == told["best_every_steps"]


@pytest.mark.parametrize("to", ["shared", "shared:20GB/s", "local"])
def test_checkpoints_in_the_background_are_never_worse(to: str) -> None:
    blocking, copied, lazy = (
        found(checkpoint_to=to, checkpoint_mode=mode, checkpoint_every="20min").goodput.value
        for mode in ("synchronous", "asynchronous", "lazy")
    )
    assert blocking <= copied <= lazy
    best = [found(checkpoint_to=to, checkpoint_mode=mode).goodput.value for mode in ("synchronous", "asynchronous")]
    assert best[0] <= best[1]


def test_an_interval_of_ones_own_is_no_better_than_the_best() -> None:
    best = found()
    steps = best.checkpoints["best_every_steps"]
    for every in (steps // 2, 2 * steps, 10 * steps):
        own = found(checkpoint_every=every)
        assert own.checkpoints["every_steps"] == every
        assert own.goodput.value < best.goodput.value
        assert own.checkpoints["goodput_at_best"] == best.goodput.value


@pytest.mark.parametrize("worse", [
    {"detection_time_s": 1800.0}, {"restart_time_s": 1800.0}, {"checkpoint_to": "shared:1GB/s"}, {"spares": 0},
    {"spares": 1, "repair_time_s": 1e6}, {"checkpoint_every": "3h"},
])  # fmt: skip
def test_what_takes_longer_costs_goodput(worse: dict[str, Any]) -> None:
    assert found(**worse).goodput.value < found().goodput.value


def test_more_spares_are_never_worse() -> None:
    runs = [run_of(spares=spares) for spares in range(4)]
    shares = [one.reliability.goodput.value for one in runs if one.reliability]
    assert shares == sorted(shares)
    assert shares[0] < 0.8 < shares[-1]  # a day without the node that failed, ten times in the run
    assert [one.reliability.spares for one in runs if one.reliability] == [0, 1, 2, 3]


def test_the_fewest_spares_that_leave_hardly_any_wait() -> None:
    auto = found()
    assert auto.lost["repairs"] <= 1e-3
    assert found(spares=auto.spares - 1).lost["repairs"] > 1e-3


@pytest.mark.parametrize("options", [{}, {"checkpoint_to": "local"}, {"spares": 0, "checkpoint_mode": "lazy"}])
def test_time_money_and_energy_add_up(options: dict[str, Any]) -> None:
    answer = run_of(grid="FR", **options)
    told = answer.reliability
    assert told is not None
    assert math.fsum([told.goodput.value, *told.lost.values()]) == pytest.approx(1, abs=1e-9)
    days, step = answer.run["days"], answer.step_time_s.value
    assert told.days_without_failures == pytest.approx(answer.run["steps"] * step / 86400)
    assert days == pytest.approx(told.days_without_failures / told.goodput.value)
    assert told.failures["count"] == pytest.approx(2e-4 * 128 * 24 * days * (1 - told.lost["repairs"]), rel=1e-9)
    paid = len(answer.ranks) + 8 * told.spares
    price = answer.cost_usd / step * 3600 / len(answer.ranks)
    assert answer.run["cost_usd"] == pytest.approx(paid * price * 24 * days)
    steps_kwh = answer.energy_j * answer.run["steps"] / 3.6e6
    assert steps_kwh < answer.run["energy_kwh"] < steps_kwh / told.goodput.value * 1.05
    assert answer.run["co2_kg"] == pytest.approx(answer.run["energy_kwh"] * float(answer.grid["g_co2_kwh"]) / 1e3)


def test_intervals_hold_what_chance_and_another_cluster_do() -> None:
    """A given rate leaves chance and the step time; a published one, what clusters differ by."""
    given, taken = (run_of("H100:512", tokens=1e13, failures=rate) for rate in ("1.97e-5/gpu-hour", "default"))
    for answer in (given, taken):
        low, high = answer.bands["run"]["days"]
        assert low < answer.run["days"] < high
    chance, cluster = (one.reliability.goodput for one in (given, taken) if one.reliability)
    assert cluster.high - cluster.low > 1.5 * (chance.high - chance.low)


@pytest.mark.heavy
def test_large_runs_lie_inside_their_interval() -> None:
    """Thousands of failures at an unknown rate: the outcome at the middle rate is in the middle of them all, and
    the edges are the closed form's but for checkpoints."""
    answer = gnomon.simulate_training(
        "llama-3.1-405b", on="H100:65536", seq=8192, global_batch=4096, tp=8, pp=16, zero=1, tokens=15e12,
        failures="default", restart_time_s=3600.0,
    )  # fmt: skip
    told = answer.reliability
    assert told is not None
    assert 0.4 < (told.goodput.draws < told.goodput.value).mean() < 0.6
    assert told.goodput.low < 0.5 * told.goodput.value < 0.5 * told.goodput.high
    low, high = answer.bands["run"]["days"]
    assert low < answer.run["days"] / 1.5 and answer.run["days"] * 1.5 < high
    restart_s, rate = 3600 + 600, 65536 / 50_677 / 3600  # beside loading
    assert told.goodput.value < math.exp(-rate * restart_s)
    for share, away in ((told.goodput.low, 1.645), (told.goodput.high, -1.645)):
        cluster = rate * math.exp(away * failure_rate("default").spread)
        assert 0.5 < share / math.exp(-cluster * restart_s) < 1


GIVEN = {
    "detection_time_s": (600.0, "to detect a failure"),
    "restart_time_s": (300.0, "to restart beside loading"),
    "repair_time_s": (86400.0, "for a day"),
}


@pytest.mark.parametrize("name", GIVEN)
def test_what_was_given_is_not_assumed(name: str) -> None:
    """Not even where it is the usual, or nothing."""
    usual, words = GIVEN[name]
    assert words in " ".join(run_of().assumed)
    for seconds in (usual, 0.0):
        answer = run_of(**{name: seconds})
        told = " ".join(answer.assumed)
        assert words not in told
        assert "78% of failures take a node out" in told
        assert answer.inputs[name] == seconds
        assert all(other in told for field, (_, other) in GIVEN.items() if field != name)


def test_short_runs_mostly_do_not_fail() -> None:
    """Less than one failure in ten runs: half of them lose nothing but the stalls."""
    told = found(tokens=1e9, failures="1e-5/gpu-hour", checkpoint_every=200)
    assert told.failures["count"] < 0.1
    assert told.goodput.high == pytest.approx(1 - told.lost["checkpoint_stalls"], abs=2e-3)


def test_the_same_question_has_the_same_answer() -> None:
    first, second = (json.dumps(run_of(failures="default").to_dict()) for _ in range(2))
    assert first == second
    again = answer_from_dict(json.loads(first))
    assert json.loads(json.dumps(again.to_dict()))["reliability"] == json.loads(first)["reliability"]


def test_a_grid_acts_without_failures() -> None:
    plain, french = (run_of(failures=None, grid=grid) for grid in (None, "FR"))
    assert plain.co2_g is None and french.co2_g
    assert french.inputs["grid"] == "FR"
    assert french.reliability is None
    assert french.run["days"] == plain.run["days"]


def test_plan_train_has_the_run_of_its_best_plan() -> None:
    words = {"seq": 2048, "global_batch": 64, "tokens": 1e11, "failures": "default", "checkpoint_every": "1h"}
    planned = gnomon.plan_training("llama-3.2-1b", cluster="H100:16", **words)
    best = planned.best
    assert best.reliability is not None
    assert best.reliability.checkpoints["interval_s"] == pytest.approx(3600, rel=0.01)
    again = gnomon.simulate_training(
        "llama-3.2-1b", on="H100:16", **words, **{name: best.inputs[name] for name in ("tp", "zero", "micro_batch")}
    )
    assert again.reliability is not None
    assert again.reliability.goodput.value == pytest.approx(best.reliability.goodput.value)


def test_bytes_of_a_checkpoint_are_blooms() -> None:
    """2.3 TiB for 176.2 billion parameters, with the optimizer's states (BigScience; its bf16 weights are 329 GiB)."""
    answer = gnomon.simulate_training(
        "gpt3-175b", on="A100-80GB:384", seq=2048, global_batch=2048, tp=4, pp=12, micro_batch=2, recompute="full",
        zero=1, tokens=366e9, failures="bloom", checkpoint_mode="synchronous",
    )  # fmt: skip
    assert answer.reliability is not None
    each = answer.reliability.checkpoints["bytes"] / answer.step.job.model.parameters
    assert each == pytest.approx(2.3 * 1024**4 / 176.247e9, rel=0.05)


def test_rates_are_the_same_in_any_unit() -> None:
    """A node of H100s has eight."""
    rates = ["2e-4/gpu-hour", "1.6e-3/node-hour", "38.4/1000-node-days", "1/5000-gpu-hours", "1.7532/gpu-year"]
    told = [found(failures=rate).failures["per_gpu_hour"] for rate in rates]
    assert told == pytest.approx([2e-4] * len(rates))


def test_own_disks_are_faster_and_lost_with_their_node() -> None:
    shared, local = (found(checkpoint_to=to, checkpoint_mode="synchronous") for to in ("shared", "local"))
    assert local.checkpoints["stall_s"] < shared.checkpoints["stall_s"]
    copied = found().checkpoints["write_s"]
    assert local.checkpoints["write_s"] == pytest.approx(copied)  # uploaded in the background
    assert local.goodput.value > shared.goodput.value


REFUSED = {
    "checkpoint_to=local": ({"failures": None, "checkpoint_to": "local"}, "does nothing without --failures"),
    "spares=0": ({"failures": None, "spares": 0}, "does nothing without --failures"),
    "detection=0": ({"failures": None, "detection_time_s": 0.0}, "does nothing without --failures"),
    "spares=2": ({"failures": None, "spares": 2}, "does nothing without --failures"),
    "repair": ({"failures": None, "repair_time_s": 5.0}, "does nothing without --failures"),
    "tokens": ({"tokens": None}, "does nothing without --tokens"),
    "technique": ({"techniques": ["async-checkpointing"]}, "counts checkpoints in the step time"),
    "name": ({"failures": "llama-33"}, "unknown published failure rate"),
    "megascale": ({"failures": "megascale"}, "unknown published failure rate"),
    "number": ({"failures": "0"}, "Known: bloom, default, .* Write a rate as 2e-5/gpu-hour"),
    "no rate": ({"failures": "x/gpu-hour"}, "--failures"),
    "zero": ({"failures": "0/gpu-hour"}, "not a rate above zero"),
    "none of them": ({"failures": "1/0-gpu-hours"}, "not a rate above zero"),
    "unit": ({"failures": "1/gpu-fortnight"}, "not a rate of failures"),
    "often": ({"failures": "61/gpu-hour"}, "more than 60 failures per GPU-hour"),
    "place": ({"checkpoint_to": "tape"}, "unknown place for checkpoints"),
    "slow": ({"checkpoint_to": "shared:0GB/s"}, "not a bandwidth above zero"),
    "no unit": ({"checkpoint_to": "shared:100"}, "'100' has no unit. Write shared:100GB/s"),
    "no unit of a disk": ({"checkpoint_to": "local: 1.5/s"}, "'1.5/s' has no unit. Write local:1.5GB/s"),
    "nothing": ({"checkpoint_to": "shared:0"}, "not a bandwidth above zero"),
    "words": ({"checkpoint_to": "shared:fast"}, "--checkpoint-to"),
    "every": ({"checkpoint_every": "often"}, "--checkpoint-every"),
    "no step": ({"checkpoint_every": 0}, "--checkpoint-every"),
    "no time": ({"checkpoint_every": "0s"}, "not above zero"),
    "long": ({"checkpoint_every": 10**9}, "more than the"),
    "mode": ({"checkpoint_mode": "eager"}, "unknown checkpoint mode"),
    "spares": ({"spares": -1}, "--spares"),
    "grid": ({"grid": "Atlantis"}, "unknown grid"),
    "memory": (
        {"on": "H100:8", "tokens": 1e9, "model": "llama-3.1-405b", "tp": 8, "pp": 1},
        "do not fit the memory of a host",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    options, message = REFUSED[case]
    asked = {"on": "H100:128", "model": "llama-3.1-8b", "failures": RATE} | JOB | options
    with pytest.raises(InputError, match=message):
        gnomon.simulate_training(**asked)


def test_a_run_that_never_ends_is_infeasible() -> None:
    with pytest.raises(InfeasibleError, match="hardly move"):
        run_of(failures="2/gpu-hour")


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous", "lazy"])
@pytest.mark.parametrize("to", ["shared:100B/s", "local:100B/s"])
def test_a_run_that_storage_holds_up_names_it(to: str, mode: str) -> None:
    with pytest.raises(InfeasibleError, match=r"hardly move: .* days to load") as refused:
        run_of(checkpoint_to=to, checkpoint_mode=mode)
    assert refused.value.where == "--checkpoint-to"
    with pytest.raises(InfeasibleError, match=r"hardly move: .* restarts of") as refused:
        run_of(checkpoint_to=to, checkpoint_mode=mode, failures="2/gpu-hour")
    assert refused.value.where == "--failures"


def test_unknown_hosts() -> None:
    """A chip that stands in no known machine: the copy to its host cannot be timed, the write to storage can."""
    chip = next(name for name in (one["name"] for one in gnomon.chips().chips) if _without_host(name))
    asked: dict[str, Any] = {"on": f"{chip}:8", "failures": RATE, **JOB}
    with pytest.raises(GnomonError, match="is not known"):
        gnomon.simulate_training("llama-3.2-1b", **asked)
    answer = gnomon.simulate_training("llama-3.2-1b", **asked, checkpoint_mode="synchronous")
    assert answer.reliability is not None


def _without_host(name: str) -> bool:
    from gnomon.load import parse_pool

    pool = parse_pool(f"{name}:8")
    return pool.machine is None and not pool.chip.unified and "bf16" in pool.chip.rates_flops
