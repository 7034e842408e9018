"""Activations on the host: laws of copies beside passes, and figures by hand."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import pytest

import gnomon
from gnomon.cost.host_link import LINK_SHARE
from gnomon.errors import InputError
from gnomon.papers.machines import cluster, host
from gnomon.planning.training.step import step_bound_s
from gnomon.report.train import spent_s
from gnomon.sim.training.side import COPY_IN, COPY_OUT
from gnomon.spec.answers import TrainingReport

LAYERS, TOKENS, LINK = 32, 4096, 25e9
SAVED = 139_392
"""Bytes of a token in a layer of Llama 3.1 8B: inputs of both norms and of both GEMMs behind them (8,192 each), queries
and their result (8,192 each), keys and values (2,048 each), a number per head (128), gate, up and their product (28,672
each)."""
CORE = 3 * 8192 - 8192 + 2 * 2048 + 128
"""Of them, what attention and the projection behind it keep: queries, keys, values, result, numbers per head."""
PLANS: dict[str, dict[str, Any]] = {
    "data parallel": {},
    "two sequences": {"micro_batch": 2},
    "pipeline": {"pp": 4},
    "interleaved": {"pp": 4, "vp": 2},
    "tensor parallel": {"tp": 4},
    "recomputed": {"recompute": "full"},
    "sharded weights": {"engine": "torchtitan", "zero": 3},
    "one micro-batch": {"engine": "torchtitan", "zero": 3, "global_batch": 8},
    "uneven stages": {"pp": 3, "dp": 2, "on": "H100:6", "global_batch": 12},
    "experts": {"model": "mixtral-8x7b", "ep": 8},
}


@cache
def asked(plan: str, words: str | None) -> TrainingReport:
    named = () if words is None else (f"offload-activations:{words}" if words else "offload-activations",)
    load = {"model": "llama-3.1-8b", "on": "H100:8", "seq": TOKENS, "global_batch": 32, "micro_batch": 1, "zero": 1}
    return gnomon.simulate_training(**load | PLANS[plan], techniques=named)


def chip_bytes(found: TrainingReport) -> list[float]:
    return [sum(parts.values()) for parts in found.memory_parts]


@pytest.mark.parametrize("copies", ["streams", "blocking"])
@pytest.mark.parametrize("plan", PLANS)
def test_no_layer_offloaded_is_the_plain_plan(plan: str, copies: str) -> None:
    plain, found = asked(plan, None), asked(plan, f"share=0,copies={copies}")
    assert found.step_time_s.value == plain.step_time_s.value
    assert list(found.step_time_s.draws) == list(plain.step_time_s.draws)
    assert found.memory_parts == plain.memory_parts and found.step.host_bytes == 0


@pytest.mark.parametrize("copies", ["streams", "blocking"])
@pytest.mark.parametrize("plan", PLANS)
def test_more_layers_are_never_faster_and_never_take_more_memory(plan: str, copies: str) -> None:
    found = [asked(plan, f"share={share},copies={copies}") for share in (0, 0.25, 0.5, 0.75, 1)]
    for fewer, more in pairwise(found):
        assert more.step_time_s.value >= fewer.step_time_s.value * (1 - 1e-12)
        for before, after in zip(chip_bytes(fewer), chip_bytes(more), strict=True):
            assert after <= before * (1 + 1e-12)
        assert more.step.host_bytes > fewer.step.host_bytes
    assert found[-1].memory_parts[0]["activations"] < 0.8 * found[0].memory_parts[0]["activations"]


@pytest.mark.parametrize("plan", PLANS)
def test_a_link_without_end_is_never_waited_for(plan: str) -> None:
    plain, found = asked(plan, None).step_time_s.value, asked(plan, "link_gb_s=1e9").step_time_s.value
    assert plain * (1 - 1e-9) <= found < plain * (1 + 1e-5)
    assert asked(plan, "link_gb_s=1").step_time_s.value > 1.1 * plain


@pytest.mark.parametrize("plan", PLANS)
def test_what_leaves_the_chip_is_on_the_host(plan: str) -> None:
    plain, found = asked(plan, None), asked(plan, "")
    for before, after, rank in zip(plain.memory_parts, found.memory_parts, range(8), strict=False):
        away = float(found.step.memory(rank).host[0])
        left = before["activations"] - after["activations"]
        assert 0 < left <= away * (1 + 1e-12)
        assert away <= before["activations"]


@pytest.mark.parametrize("plan", ["data parallel", "pipeline", "interleaved", "uneven stages"])
def test_all_that_goes_out_comes_back(plan: str) -> None:
    for words in ("", "share=0.5,in_flight=1"):
        spans = list(asked(plan, words).step.timeline.spans())
        out, back = ([(s.rank, s.chunk, s.micro, s.end_s - s.start_s) for s in spans if s.name == name]
                     for name in (COPY_OUT, COPY_IN))  # fmt: skip
        assert len(out) == len(back) > 0
        assert sum(one[-1] for one in out) == pytest.approx(sum(one[-1] for one in back), rel=1e-9)
        assert sorted(one[:3] for one in out) == sorted(one[:3] for one in back)


def machine(link_gb_s: float = LINK / 1e9, memory_gib: float = 4096, sharing: int = 1) -> Any:
    one = host(cores=64, memory_gib=memory_gib, memory_gb_s=800, adam_gparam_s=3, link_gb_s=link_gb_s)
    return cluster("H100", 4, 4, one | {"link_sharing": sharing})


def step(on: Any, words: str = "", **more: Any) -> TrainingReport:
    named = [f"offload-activations:{words}" if words else "offload-activations"] if words != "none" else []
    load = {"seq": TOKENS, "global_batch": 8, "micro_batch": 1, "zero": 1}
    return gnomon.simulate_training("llama-3.1-8b", on=on, **load | more, techniques=named)


def test_host_bytes_by_hand() -> None:
    assert step(machine()).step.host_bytes == pytest.approx(4 * LAYERS * TOKENS * SAVED, rel=1e-12)
    assert step(machine(), "layers=8").step.host_bytes == pytest.approx(4 * 8 * TOKENS * SAVED, rel=1e-12)
    some = step(machine(), "modules=core_attn+attn_proj").step.host_bytes
    assert some == pytest.approx(4 * LAYERS * TOKENS * CORE, rel=1e-12)
    assert step(machine(), "modules=attn_proj").step.host_bytes == 0, "attention keeps its result too"


def test_blocking_copies_by_hand() -> None:
    on, micros = machine(), 2
    waits = step(on, "copies=blocking").step_parts["pipeline_s"] - step(on, "none").step_parts["pipeline_s"]
    assert waits == pytest.approx(micros * 2 * LAYERS * TOKENS * SAVED / (LINK_SHARE * LINK), rel=1e-9)


def test_a_slow_link_is_the_pace_by_hand() -> None:
    """Forward, all layers but the last go out, and backward they come in, each micro-batch after the other."""
    on, micros = machine(link_gb_s=1), 2
    copy = (LAYERS - 1) * TOKENS * SAVED / (LINK_SHARE * 1e9)
    found, plain = step(on), step(on, "none")
    assert micros * 2 * copy < found.step_parts["pipeline_s"] < micros * 2 * copy + plain.step_parts["pipeline_s"]


def test_chips_behind_one_uplink_share_its_bandwidth() -> None:
    alone, shared = (step(machine(sharing=n), "copies=blocking").step_parts["pipeline_s"] for n in (1, 2))
    half = step(machine(link_gb_s=LINK / 2e9), "copies=blocking").step_parts["pipeline_s"]
    assert shared == pytest.approx(half, rel=1e-12) and shared > alone


def test_a_host_that_is_full_holds_no_more() -> None:
    """A sequence of 131,072 tokens leaves the inputs of 28 layers of 3,072 channels at least, 21 GiB."""
    load = {"model": "llama-3.2-3b", "seq": 131072, "global_batch": 4, "techniques": ["offload-activations"]}
    with pytest.raises(gnomon.GnomonError, match=r"hosts' memory: .* 21\.0 GiB there, of 14\.4 GiB"):
        gnomon.plan_training(cluster=machine(memory_gib=16), **load)
    found = gnomon.plan_training(cluster=machine(memory_gib=24), **load)
    assert found.best.host_bytes == pytest.approx(21 * 2**30, rel=1e-9)


def test_a_sequence_fits_that_did_not() -> None:
    load = {"model": "llama-3.2-3b", "on": "H100:8", "seq": 16384, "global_batch": 8, "zero": 1}
    assert not gnomon.simulate_training(**load).fits
    assert gnomon.simulate_training(**load, techniques=["offload-activations"]).fits


@pytest.mark.parametrize(
    ("words", "more", "why"),
    [
        ("layers=8,share=0.5", {}, "both say how many"),
        ("layers=33", {}, "has 32 layers"),
        ("modules=all+core_attn", {}, "are all, or some"),
        ("modules=moe_act", {}, "no experts"),
        ("", {"pp": 2, "schedule": "zb-h1"}, "splits them"),
    ],
)
def test_it_says_why_not(words: str, more: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        step(machine(), words, **more)


@pytest.mark.parametrize("value", ["core", "core_attn+core_attn", "", "+", "all+"])
def test_lists_of_operators_are_checked(value: str) -> None:
    with pytest.raises(InputError, match="modules cannot be") as caught:
        step(machine(), f"modules={value}")
    assert "core_attn+" in caught.value.hint


@pytest.mark.parametrize("words", ["", "share=0.5", "in_flight=1", "link_gb_s=5", "link_gb_s=200"])
@pytest.mark.parametrize("plan", PLANS)
def test_bounds_are_bounds_and_close_where_one_rank_is_alone(plan: str, words: str) -> None:
    found = asked(plan, words).step
    bound, line = float(step_bound_s(found.figures, found.traits)[0]), found.timeline.step_s
    assert bound <= line * (1 + 1e-9)
    assert bound >= line * (0.9 if PLANS[plan].get("pp", 1) == 1 and words != "in_flight=1" else 0.45)


def test_the_answer_says_what_a_step_waits_for() -> None:
    found, plain = asked("data parallel", ""), asked("data parallel", None)
    waits = dict(spent_s(found))["waiting for copies"]
    assert waits == pytest.approx(found.step_time_s.value - plain.step_time_s.value, rel=1e-9)
    assert "waiting for copies" not in dict(spent_s(plain))
    assert found.exposed_communication_s == pytest.approx(waits + plain.exposed_communication_s, rel=1e-9)
