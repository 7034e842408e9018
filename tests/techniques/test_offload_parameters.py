"""Weights and states on the host and its disks: laws, and figures by hand."""

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
from gnomon.sim.training.side import COPY_IN
from gnomon.spec.answers import TrainingReport

CHIPS, LINK, READ, WRITE = 4, 25e9, 8e9, 2e9
PARAMETERS, LAYER, LAYERS = 6_738_415_616, 202_383_360, 32
"""Of Llama 2 7B, of one of its layers, and their number."""
ENDS = PARAMETERS - LAYERS * LAYER
DISKS = ("offload-optimizer:tier=nvme", "offload-parameters:tier=nvme")


def machine(*, chips: int = CHIPS, memory_gib: float = 512, nvme_tb: float = 3.2, sharing: int = 1) -> Any:
    one = host(cores=64, memory_gib=memory_gib, memory_gb_s=400, adam_gparam_s=3, link_gb_s=LINK / 1e9)
    disks = {"nvme_tb": nvme_tb, "nvme_read_gb_s": READ / 1e9, "nvme_write_gb_s": WRITE / 1e9}
    return cluster("A100-40GB", chips, chips, one | disks | {"link_sharing": sharing})


@cache
def step(*named: str, chips: int = CHIPS, sharing: int = 1, **more: Any) -> TrainingReport:
    load: dict[str, Any] = {"seq": 2048, "global_batch": 2 * chips, "zero": 3, "recompute": "full"}
    load |= {"engine": "deepspeed"} | more
    return gnomon.simulate_training(
        "llama-2-7b", on=machine(chips=chips, sharing=sharing), **load, techniques=list(named)
    )


def words(**values: object) -> str:
    return "offload-parameters:" + ",".join(f"{name}={value}" for name, value in values.items())


def chip_bytes(found: TrainingReport) -> float:
    return sum(found.memory_parts[0].values())


CASES: dict[str, dict[str, Any]] = {
    "DeepSpeed": {},
    "TorchTitan": {"engine": "torchtitan"},
    "one chip": {"chips": 1, "zero": 0},
    "one chip, Megatron": {"chips": 1, "zero": 0, "engine": "megatron"},
    "tensor parallel": {"tp": 2, "engine": "megatron", "sequence_parallel": True},
}


@pytest.mark.parametrize("case", CASES)
def test_no_weight_offloaded_is_the_plain_plan(case: str) -> None:
    plain, found = step(**CASES[case]), step(words(share=0), **CASES[case])
    assert found.step_time_s.value == plain.step_time_s.value
    assert list(found.step_time_s.draws) == list(plain.step_time_s.draws)
    assert found.memory_parts == plain.memory_parts and found.step.host_bytes == 0


@pytest.mark.parametrize("tier", ["host", "nvme"])
@pytest.mark.parametrize("case", CASES)
def test_more_weights_are_never_faster_and_never_take_more_memory(case: str, tier: str) -> None:
    found = [step(words(share=share, tier=tier), **CASES[case]) for share in (0, 0.25, 0.5, 1)]
    for fewer, more in pairwise(found):
        assert more.step_time_s.value >= fewer.step_time_s.value * (1 - 1e-12)
        assert chip_bytes(more) <= chip_bytes(fewer) * (1 + 1e-12)
        kept = [(one.step.host_bytes, one.nvme_bytes) for one in (fewer, more)]
        assert kept[1] > kept[0]
    assert found[-1].step_time_s.value > found[0].step_time_s.value
    assert chip_bytes(found[-1]) < chip_bytes(found[0])


@pytest.mark.parametrize("case", CASES)
def test_a_link_without_end_is_never_waited_for(case: str) -> None:
    plain = step(**CASES[case]).step_time_s.value
    assert step(words(link_gb_s=1e9), **CASES[case]).step_time_s.value == pytest.approx(plain, rel=1e-5)
    assert step(words(link_gb_s=1), **CASES[case]).step_time_s.value > 1.5 * plain


@pytest.mark.parametrize("case", CASES)
def test_looking_further_ahead_is_never_slower(case: str) -> None:
    seconds = [step(words(ahead=ahead, link_gb_s=5), **CASES[case]).step_time_s.value for ahead in (0, 1, 2, 8)]
    assert all(further <= near * (1 + 1e-12) for near, further in pairwise(seconds)) and seconds[1] < seconds[0]


def test_bytes_on_the_host_by_hand() -> None:
    """Two bytes of every weight, once per host; where the optimizer's own are the weights, four."""
    assert step("offload-parameters").step.host_bytes == pytest.approx(2 * PARAMETERS, rel=1e-9)
    assert step("offload-parameters", engine="torchtitan").step.host_bytes == pytest.approx(4 * PARAMETERS, rel=1e-9)
    both = step("offload-parameters", "offload-optimizer", engine="torchtitan").step.host_bytes
    assert both == pytest.approx((12 + 4) * PARAMETERS, rel=1e-9), "weights are among the states"
    disks = step(*DISKS)
    assert disks.nvme_bytes == pytest.approx((2 + 12 + 4) * PARAMETERS, rel=1e-9)
    layers, groups = 5 * 2 * LAYER, 4 * 1e8 * 16 * CHIPS
    assert disks.step.host_bytes == pytest.approx(layers + groups, rel=1e-9)


def test_weights_of_a_chip_by_hand() -> None:
    """Two gathered layers with embedding and head; of shards, the layer that runs and the one ahead."""
    (parts,) = step("offload-parameters").memory_parts
    assert parts["weights"] == pytest.approx(2 * (2 * LAYER + ENDS), rel=1e-9)
    assert parts["buffers"] == pytest.approx(2 * 2 * LAYER / CHIPS, rel=1e-9)
    (alone,) = step("offload-parameters", chips=1, zero=0).memory_parts
    assert alone["weights"] == pytest.approx(2 * (2 * LAYER + ENDS), rel=1e-9)


@pytest.mark.parametrize("chips", [1, CHIPS])
def test_every_pass_copies_every_weight(chips: int) -> None:
    """Layers forward and backward, embedding and head once per micro-batch."""
    found = step("offload-parameters", chips=chips, zero=3 if chips > 1 else 0)
    copied = sum(span.end_s - span.start_s for span in found.step.timeline.spans() if span.name == COPY_IN)
    each = 2 * (2 * LAYERS * LAYER + ENDS) / chips
    assert copied == pytest.approx(2 * each / (LINK_SHARE * LINK), rel=1e-9)


def test_disks_are_shared_by_the_ranks_of_a_host() -> None:
    found = step("offload-parameters:tier=nvme")
    copied = sum(span.end_s - span.start_s for span in found.step.timeline.spans() if span.name == COPY_IN)
    assert copied == pytest.approx(2 * 2 * (2 * LAYERS * LAYER + ENDS) / READ, rel=1e-9)
    assert found.step_parts["waits_s"] == pytest.approx(
        2 * PARAMETERS / WRITE + 2 * PARAMETERS / CHIPS / (LINK_SHARE * LINK), rel=1e-9
    )


def test_an_update_goes_at_the_pace_of_the_disks() -> None:
    """States and fp32 gradients are read and states written; gradients are written beside the last backward pass."""
    found = step("offload-optimizer:tier=nvme")
    table = found.step.figures
    backward = float((table.backward_s + table.first_backward_s + table.last_backward_s)[0])
    flush = 4 * PARAMETERS / WRITE - backward
    assert flush > 0
    update = PARAMETERS * (16 / READ + 12 / WRITE)
    assert found.step_parts["optimizer_s"] == pytest.approx(flush + update, rel=1e-9)
    assert step("offload-optimizer").step_parts["optimizer_s"] < update / 5


def test_weights_that_the_chip_updates_go_back() -> None:
    back = step("offload-parameters").step_parts["waits_s"]
    assert back == pytest.approx(2 * PARAMETERS / CHIPS / (LINK_SHARE * LINK), rel=1e-9)
    assert "waits_s" not in step("offload-parameters", "offload-optimizer").step_parts


@pytest.mark.parametrize(("more", "tier"), [({"memory_gib": 40}, "host"), ({"nvme_tb": 0.1}, "nvme")])
def test_a_tier_that_is_full_holds_no_more(more: dict[str, Any], tier: str) -> None:
    named = [f"{name}:tier={tier}" for name in ("offload-optimizer", "offload-parameters")]
    load: dict[str, Any] = {"seq": 2048, "global_batch": 8, "engine": "deepspeed"}
    with pytest.raises(gnomon.GnomonError, match="hosts' memory" if tier == "host" else "hosts' NVMe"):
        gnomon.plan_training("llama-2-7b", cluster=machine(**more), **load, techniques=named)
    assert gnomon.plan_training("llama-2-7b", cluster=machine(), **load, techniques=named).best.nvme_bytes >= 0


@pytest.mark.parametrize(
    ("named", "more", "why"),
    [
        ("offload-parameters", {"zero": 1}, "all weights under ZeRO 1"),
        ("offload-parameters", {"pp": 2, "zero": 0, "engine": "megatron"}, "with pipeline parallelism"),
        ("offload-optimizer:tier=nvme,stride=2", {}, "by the host alone"),
    ],
)
def test_it_says_why_not(named: str, more: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        step(named, **more)


@pytest.mark.parametrize(
    "values", [{"ahead": 1}, {"ahead": 0}, {"ahead": 4}, {"tier": "nvme"}, {"link_gb_s": 5}], ids=str
)
@pytest.mark.parametrize("case", CASES)
def test_bounds_are_bounds_and_close(case: str, values: dict[str, Any]) -> None:
    found = step(words(**values), **CASES[case]).step
    bound, line = float(step_bound_s(found.figures, found.traits)[0]), found.timeline.step_s
    assert bound <= line * (1 + 1e-9)
    assert bound >= line * (0.9 if values.get("ahead", 1) else 0.6)


def test_fp32_weights_among_offloaded_states_are_written_once() -> None:
    """FSDP2's weights are the optimizer's own: with the states on NVMe they are written with them."""
    alone, both = (step(*named, engine="torchtitan") for named in (DISKS[1:], DISKS))
    written = 4 * PARAMETERS / CHIPS / (WRITE / CHIPS)
    assert alone.step_parts["waits_s"] >= written
    assert "waits_s" not in both.step_parts
