"""What goes wrong in an experiment with experts, swaps or steps is seen by its own checks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")

from gnomon.lab import experts, hybrid, int4  # noqa: E402
from gnomon.lab.base import Check  # noqa: E402
from gnomon.lab.expert_caches import USE, CachedExperts  # noqa: E402
from gnomon.lab.run import run  # noqa: E402
from gnomon.lab.serving_steps import ServingDecoder  # noqa: E402
from gnomon.lab.slots import SlotPool  # noqa: E402
from gnomon.lab.swaps import SwappedCache  # noqa: E402

pytestmark = pytest.mark.oracle


def failed(slug: str, **sizes: str) -> list[Check]:
    outcome = run(slug, sizes, "cpu", lambda _: None)
    return [check for check in outcome.findings.checks if not check.ok]


def test_tokens_that_share_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    whole: Callable[..., experts.TokenSlots] = experts.routed

    def shared(*given: Any) -> experts.TokenSlots:
        found = whole(*given)
        slots = found.slots.clone()
        slots[0] = slots[1]
        return dataclasses.replace(found, slots=slots)

    monkeypatch.setattr("gnomon.lab.experiments.tutel.routed", shared)
    bad = failed("tutel")
    assert {"shared" in check.what for check in bad} == {True, False}, "in their slots, and in the outputs"


@pytest.mark.parametrize("direction", ["out", "back"])
def test_a_request_that_is_not_copied(direction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    back = getattr(SwappedCache, direction)

    def careless(self: SwappedCache, way: str, request: int) -> None:
        if request:
            back(self, way, request)

    monkeypatch.setattr(SwappedCache, direction, careless)
    bad = failed("fastswitch")
    assert any("out and in" in check.what for check in bad) and any("steps" in check.what for check in bad)


@pytest.mark.parametrize("active", ["3", "8"])
def test_an_expert_of_the_cpu_that_is_left_out(active: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many that a token visits, one changes little."""
    whole = hybrid.step_plan

    def without(*given: Any) -> Any:
        first, *others = whole(*given)
        return (dataclasses.replace(first, hosted=first.hosted[1:]), *others)

    monkeypatch.setattr("gnomon.lab.experiments.hybrimoe.step_plan", without)
    bad = failed("hybrimoe", active=active, width="256", inner="128")
    assert {check.what.split(":")[0] for check in bad} >= {"decode, computed by the CPU", "prompt, computed by the CPU"}


def test_a_slot_with_another_expert(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SlotPool.weights
    monkeypatch.setattr(
        SlotPool, "weights", lambda self, key: self.host[key[0]][0] if key[1] == 1 else whole(self, key)
    )
    bad = failed("expertflow")
    assert bad and not any("all on the GPU" in check.what for check in bad)


def test_an_expert_that_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = CachedExperts._coming

    def without(self: CachedExperts, actions: Any) -> Any:
        last = max(i for i, (what, _) in enumerate(actions) if what == USE)
        return whole(self, [*actions[:last], *actions[last + 1 :]])

    monkeypatch.setattr(CachedExperts, "_coming", without)
    assert len(failed("expertflow")) == 8, "by every policy"


def test_weights_that_are_not_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = int4.plainly
    monkeypatch.setattr(int4, "plainly", lambda torch, x, packed: 1.1 * whole(torch, x, packed))
    bad = failed("glm-130b")
    assert any("written out" in check.what for check in bad) and any("against fp32" in check.what for check in bad)


def test_a_chunk_that_sees_what_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.nn.attention.bias.causal_lower_right", lambda *_: None)
    assert any("definition" in check.what for check in failed("nexus"))


def test_a_decode_without_its_own_token(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ServingDecoder._decoded

    def stale(self: ServingDecoder, split: Any, cache: Any) -> Any:
        return whole(self, split, tuple(each.clone()[:, :, :-1] for each in cache))

    monkeypatch.setattr(ServingDecoder, "_decoded", stale)
    assert any("definition" in check.what for check in failed("nexus"))
