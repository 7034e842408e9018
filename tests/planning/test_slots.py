"""Slots for LoRA adapters are searched where requests have adapters, and named where they make requests wait."""

from __future__ import annotations

from typing import Any

import pytest

import gnomon
from gnomon.engines import engine
from gnomon.errors import NoPlanError

LORA = {"enable_lora": True, "max_lora_rank": 16}
LOAD: dict[str, Any] = {"model": "qwen3-8b", "rate": 6.0, "input": 512, "output": 64, "adapters": "12"}


def simulated(slots: int, **more: Any) -> Any:
    settings = LORA | {"max_loras": slots, "max_cpu_loras": 12}
    return gnomon.simulate_serving(**{**LOAD, **more}, on="H200", requests=400, settings=settings)


@pytest.mark.heavy
def test_too_few_slots_are_named_as_what_requests_wait_for() -> None:
    few, many = simulated(1), simulated(12)
    assert few.slots["adapter_slots"] == 1 and few.slots["adapters"] == 12
    longer = few.ttft_s["mean"] - many.ttft_s["mean"]
    assert few.slots["slot_wait_s"] == pytest.approx(longer, rel=0.05)  # slots take memory too, which is plenty here
    assert "adapter slots: 1 for 12 adapters; TTFT would be" in str(few)
    assert many.slots == {} and "adapter slots" not in str(many)
    assert "saturation at" not in str(few) and "slots for adapters bind" in str(few)


def test_a_closed_loop_has_them_too() -> None:
    found = simulated(2, rate=None, concurrency=16)
    assert found.slots["slot_wait_s"] > 0


def planned(goal: str = "ttft_p90=1s", **more: Any) -> Any:
    question = {**LOAD, "fleet": "H200:1", "slo": goal, "dtypes": ["bf16"], "requests": 1000}
    fixed = {"max_num_seqs": 256, "max_num_batched_tokens": 8192}
    return gnomon.plan_serving(**question, settings=LORA | fixed | more)


@pytest.mark.heavy
def test_a_plan_chooses_the_slots_of_its_adapters() -> None:
    found = planned(max_cpu_loras=12)
    assert found.axes["adapter slots"] == ("1", "2", "4", "8")  # not more than fit in the host's memory
    assert found.best.plan.engine.settings["max_loras"] > 1
    assert "adapter slots" in found.best.label
    fixed = planned(max_cpu_loras=12, max_loras=4)
    assert fixed.axes["adapter slots"] == ("4",)


@pytest.mark.heavy
def test_a_plan_that_has_too_few_says_so() -> None:
    with pytest.raises(NoPlanError, match="with 4 slots for 12 adapters"):
        planned(max_loras=4, max_cpu_loras=4)
    found = planned(max_loras=4, max_cpu_loras=4, goal="ttft_p90=5s")
    assert found.limits["slot_wait_s"] > 0
    assert "adapter slots: 4 for 12 adapters" in str(found)


def test_nothing_is_turned_without_adapters_or_without_slots() -> None:
    """Every adapter in a slot is the most that helps."""
    one = engine("vllm")
    (slots,) = (knob for knob in one.knobs if knob.of_adapters)
    assert slots.tried({slots.needs: True}, 0) == ()
    assert slots.tried({slots.needs: False}, 12) == ()
    assert max(slots.tried({slots.needs: True}, 12)) == 16
    assert max(slots.tried({slots.needs: True}, 16)) == 16
    plain = gnomon.plan_serving(
        "qwen3-8b", fleet="H200:1", rate=2.0, input=512, output=64, slo="ttft_p90=1s", requests=400, dtypes=["bf16"],
        settings={"max_num_seqs": 256, "max_num_batched_tokens": 8192},
    )  # fmt: skip
    assert "adapter slots" not in plain.axes and "max_loras" not in plain.best.plan.engine.settings
