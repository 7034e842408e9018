"""An update on the host, by hand: what a step waits for, and what lies where."""

from __future__ import annotations

from typing import Any

import pytest

import gnomon
from gnomon.errors import InputError
from gnomon.papers.machines import cluster, host
from gnomon.spec.answers import TrainingReport

CHIPS, LINK, ADAM, MEMORY, NVME = 4, 25e9, 3e9, 400e9, 4e9
PARAMETERS = 6_738_415_616 / CHIPS
"""Of Llama 2 7B, whose states one of four chips holds."""


def step(
    *, memory_gb_s: float = MEMORY / 1e9, adam_gparam_s: float = ADAM / 1e9, batch: int = CHIPS, words: str = "",
    zero: int = 2,
) -> TrainingReport:  # fmt: skip
    machine = host(
        cores=64, memory_gib=512, memory_gb_s=memory_gb_s, adam_gparam_s=adam_gparam_s, link_gb_s=LINK / 1e9
    )  # fmt: skip
    on = cluster("A100-40GB", CHIPS, CHIPS, machine)
    load: dict[str, Any] = {"seq": 2048, "global_batch": batch, "zero": zero, "recompute": "full"}
    return gnomon.simulate_training(
        "llama-2-7b", on=on, **load, techniques=[f"offload-optimizer:{words}" if words else "offload-optimizer"]
    )


def together(processors: float, memory: float) -> float:
    """Both at once, which share the host's memory."""
    return float((processors**4 + memory**4) ** 0.25)


def test_an_update_goes_at_the_hosts_pace() -> None:
    last, moved = 1e8 * 2 / LINK, PARAMETERS * (30 + 2)
    update = together(PARAMETERS / (ADAM / CHIPS), moved / (0.8 * MEMORY / CHIPS))
    assert step().step_parts["optimizer_s"] == pytest.approx(update + last, rel=1e-9)
    assert update == pytest.approx(PARAMETERS / (ADAM / CHIPS), rel=0.01)


def test_turns_halve_it_until_copies_and_processors_fill_the_hosts_memory() -> None:
    last, turns = 1e8 * 2 / LINK, 8 / 17  # of 17 subgroups every second
    own = PARAMETERS * (1 - turns) / (ADAM / CHIPS)
    moved = PARAMETERS * ((1 - turns) * (30 + 2) + turns * 2 * 12)
    update = step(words="stride=2").step_parts["optimizer_s"]
    assert update == pytest.approx(together(own, moved / (0.8 * MEMORY / CHIPS)) + last, rel=1e-9)
    slow = 60e9
    update = step(words="stride=2", memory_gb_s=slow / 1e9).step_parts["optimizer_s"]
    assert update == pytest.approx(together(own, moved / (0.8 * slow / CHIPS)) + last, rel=1e-9)


@pytest.mark.parametrize("micros", [1, 3])
def test_every_backward_pass_waits_for_its_flush(micros: int) -> None:
    beside = step(batch=CHIPS * micros).step_parts["pipeline_s"]
    waits = step(batch=CHIPS * micros, words="flush=waits,flush_gb_s=5").step_parts["pipeline_s"]
    assert waits - beside == pytest.approx(micros * PARAMETERS * 2 / 5e9, rel=1e-6)


def test_gradients_that_are_whole_until_the_end_stay_and_leave_once() -> None:
    """Only ranks that share gradients out as they come have less of them, for a reduction a micro-batch."""
    whole, shared = step(batch=3 * CHIPS, zero=1), step(batch=3 * CHIPS)
    assert whole.memory_parts[0]["gradients"] == 4 * PARAMETERS * CHIPS > 10 * shared.memory_parts[0]["gradients"]
    flush = PARAMETERS * 2 / LINK
    assert whole.step_parts["optimizer_s"] == pytest.approx(shared.step_parts["optimizer_s"] + flush, rel=1e-9)
    assert whole.step_parts["pipeline_s"] < shared.step_parts["pipeline_s"]


def test_states_and_gradients_move_to_the_host() -> None:
    found = step()
    (parts,) = found.memory_parts
    layer = 202_383_360
    assert parts["optimizer"] == 0 and parts["gradients"] == 2 * 2 * layer
    assert found.step.host_bytes == pytest.approx((12 + 4) * PARAMETERS * CHIPS, rel=1e-9)


def test_a_host_that_is_full_holds_no_more() -> None:
    small = host(cores=8, memory_gib=100, memory_gb_s=200, adam_gparam_s=3, link_gb_s=25)
    on = cluster("A100-80GB", CHIPS, CHIPS, small)
    with pytest.raises(gnomon.GnomonError, match=r"hosts' memory: .* 100\.4 GiB there, of 90\.0 GiB"):
        gnomon.plan_training("llama-2-7b", cluster=on, seq=2048, global_batch=8, techniques=["offload-optimizer"])


def test_the_built_in_runner_overlaps_none_of_it() -> None:
    """fp32 gradients go, the host updates, and fp32 weights come back, which are cast there."""
    machine = host(cores=64, memory_gib=512, memory_gb_s=400, adam_gparam_s=3, link_gb_s=LINK / 1e9)
    on = cluster("A100-40GB", CHIPS, CHIPS, machine)
    found = gnomon.simulate_training(
        "llama-2-7b", on=on, seq=2048, global_batch=CHIPS, zero=1, recompute="full", engine="torch", dtype="bf16",
        techniques=["offload-optimizer"],
    )  # fmt: skip
    copies = 2 * 4 * PARAMETERS / LINK
    update = together(PARAMETERS / (ADAM / CHIPS), PARAMETERS * 30 / (0.8 * MEMORY / CHIPS))
    assert found.step_parts["optimizer_s"] == pytest.approx(copies + update, rel=1e-9)
    assert found.memory_parts[0]["gradients"] == pytest.approx(4 * PARAMETERS * CHIPS, rel=1e-9)


def beside(*, batch: int = CHIPS, tier: str = "host", words: str = "update=beside", **more: float) -> TrainingReport:
    return step(batch=batch, words=f"tier={tier},{words}", **more)


@pytest.mark.parametrize("tier", ["host", "nvme"])
@pytest.mark.parametrize("micros", [1, 3])
def test_an_update_beside_the_last_backward_pass_leaves_what_goes_beyond_it(tier: str, micros: int) -> None:
    after = beside(batch=CHIPS * micros, tier=tier, words="update=after")
    found = beside(batch=CHIPS * micros, tier=tier)
    table = found.step.figures
    backward = float((table.backward_s + table.first_backward_s + table.last_backward_s)[0])
    moved = PARAMETERS * (4 / (NVME / CHIPS) * 2 if tier == "nvme" else 0)  # gradients that never go there
    update = after.step_parts["optimizer_s"] - max(moved - backward if tier == "nvme" else 0, 0)
    assert 0 < found.step_parts["optimizer_s"] < update
    if tier == "host":
        assert found.step_parts["optimizer_s"] == pytest.approx(max(update - backward, update * 1e8 / PARAMETERS))


def test_an_update_far_shorter_than_the_backward_pass_leaves_its_last_subgroup() -> None:
    quick = {"adam_gparam_s": 1e3, "memory_gb_s": 1e4}
    after, found = beside(words="update=after", **quick), beside(**quick)
    share = 1e8 / PARAMETERS
    assert found.step_parts["optimizer_s"] == pytest.approx(share * after.step_parts["optimizer_s"])


def test_gradients_that_are_used_as_they_come_stay_nowhere() -> None:
    subgroups = 4 * 1e8
    after, found = beside(words="update=after"), beside()
    assert after.step.host_bytes - found.step.host_bytes == pytest.approx(CHIPS * 4 * (PARAMETERS - subgroups))
    after, found = beside(words="update=after", tier="nvme"), beside(tier="nvme")
    assert after.nvme_bytes - found.nvme_bytes == pytest.approx(CHIPS * 4 * PARAMETERS)


@pytest.mark.parametrize(
    ("words", "zero", "why"),
    [
        ("update=beside,stride=2", 2, "the host's alone"),
        ("update=beside,flush=waits", 2, "the host's alone"),
        ("update=beside", 1, "ZeRO 1 reduces gradients after the backward pass"),
    ],
)
def test_what_is_not_updated_beside_the_backward_pass(words: str, zero: int, why: str) -> None:
    with pytest.raises(InputError, match=why):
        step(words=words, zero=zero)
