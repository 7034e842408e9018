"""Model data in chunks that move between chip and host by need: laws, and figures by hand."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import pytest

import gnomon
from gnomon.errors import InputError
from gnomon.papers.machines import cluster, host
from gnomon.spec.answers import TrainingReport

CHIPS, LINK, ADAM = 4, 20e9, 3e9
PARAMETERS = 6_738_415_616
"""Of Llama 2 7B."""
STATES, WEIGHTS = 12, 2


@cache
def step(*named: str, chips: int = CHIPS, memory_gib: float = 512, batch: int = 1, **more: Any) -> TrainingReport:
    one = host(cores=64, memory_gib=memory_gib, memory_gb_s=1e4, adam_gparam_s=ADAM / 1e9, link_gb_s=LINK / 1e9)
    load: dict[str, Any] = {"seq": 2048, "zero": 3 if chips > 1 else 0, "recompute": "full", "engine": "deepspeed"}
    return gnomon.simulate_training(
        "llama-2-7b", on=cluster("A100-40GB", chips, chips, one), global_batch=batch * chips, micro_batch=batch,
        techniques=list(named), **load | more,
    )  # fmt: skip


def words(**values: object) -> str:
    return "chunked-memory:" + ",".join(f"{name}={value}" for name, value in values.items())


@pytest.mark.parametrize("chips", [1, CHIPS])
def test_chip_and_host_hold_14_bytes_per_parameter_in_the_first_step(chips: int) -> None:
    found = step("chunked-memory", chips=chips)
    usable = 0.9 * found.step.pool.chip.memory_bytes
    assert found.step.host_bytes + 0.1 * usable * chips == pytest.approx((STATES + WEIGHTS) * PARAMETERS)
    assert found.memory_parts[0]["gradients"] == 0


def test_states_stay_where_activations_leave_room() -> None:
    """The longer the sequences of a step, the fewer states the chip keeps, and the longer the update."""
    found = [step("chunked-memory", batch=batch) for batch in (1, 4, 8, 16)]
    kept = [one.memory_parts[0]["optimizer"] for one in found]
    assert kept[0] > kept[-1] and all(one >= other for one, other in pairwise(kept))
    updates = [one.step.figures.optimizer_s[0] for one in found]
    assert all(one <= other for one, other in pairwise(updates)) and updates[0] < updates[-1]


def test_everything_on_the_chips_is_updated_by_them() -> None:
    """With many chips nothing leaves them: the plain update and the plain memory without gradients."""
    plain, found = step(chips=16), step(words(first=1), chips=16)
    assert found.step.figures.optimizer_s[0] == pytest.approx(plain.step.figures.optimizer_s[0], rel=1e-9)
    assert found.memory_parts[0]["optimizer"] == pytest.approx(plain.memory_parts[0]["optimizer"])
    assert found.step.host_bytes == 0


def test_weights_without_room_come_and_go_in_both_passes() -> None:
    """At a twentieth of the chip all weights are missing; each copy out has one back."""
    found, roomy = step(words(usable=0.1), chips=1), step("chunked-memory", chips=1)
    missing = WEIGHTS * PARAMETERS
    more = found.step.figures.forward_s[0] - roomy.step.figures.forward_s[0]
    assert more == pytest.approx(2 * missing / (0.87 * LINK), rel=1e-6)
    assert found.memory_parts[0]["optimizer"] == 0
    # All states are updated on the host, gradients copied there and weights back.
    update = PARAMETERS / ADAM + 2 * WEIGHTS * PARAMETERS / (0.87 * LINK)
    assert PARAMETERS / ADAM < found.step.figures.optimizer_s[0] < 1.1 * update


def test_a_host_without_room_is_said() -> None:
    assert step("chunked-memory").fits
    assert not step("chunked-memory", memory_gib=80).fits


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"zero": 1}, "as under ZeRO 3, and zero is 1"),
        ({"optimizer": "sgd", "engine": "megatron", "zero": 0, "chips": 1}, "known for adamw"),
        ({"global_batch": 2 * CHIPS}, "a step has one micro-batch"),
    ],
)
def test_where_it_does_not_apply(more: dict[str, Any], why: str) -> None:
    one = host(cores=64, memory_gib=512, memory_gb_s=400, adam_gparam_s=3, link_gb_s=20)
    load: dict[str, Any] = {"seq": 2048, "zero": 3, "global_batch": CHIPS, "micro_batch": 1, "engine": "deepspeed"}
    load |= more
    chips = load.pop("chips", CHIPS)
    load["global_batch"] = min(load["global_batch"], 2 * chips)
    with pytest.raises(InputError, match=why):
        gnomon.simulate_training(
            "llama-2-7b", on=cluster("A100-40GB", chips, chips, one), techniques=["chunked-memory"], **load
        )
