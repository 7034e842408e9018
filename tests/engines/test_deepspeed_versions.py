"""Versions of DeepSpeed: what each adds to a step, and that an answer says what prices it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gnomon
from gnomon.engines.deepspeed import releases
from gnomon.engines.deepspeed.releases import BY_VERSION, MODULE_S, MODULES, PLAIN
from gnomon.techniques.hosts import link_bytes_s

SMALL = "llama-3.2-1b"
ZERO3: dict[str, Any] = {"on": "H100:8", "seq": 2048, "global_batch": 8, "zero": 3, "recompute": "full"}
GATHERING = tuple(version for version, one in BY_VERSION.items() if one.sharded_weights != PLAIN)


def trained(version: str, model: str = SMALL, **more: Any) -> Any:
    return gnomon.simulate_training(
        model, engine=f"deepspeed@{version}", sequence_parallel=False, dtype="bf16", **(ZERO3 | more)
    )


@pytest.fixture
def without_gathers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Versions of DeepSpeed whose ZeRO 3 takes nothing beyond its collectives, which overlap."""
    bare = {version: replace(one, sharded_weights=PLAIN) for version, one in BY_VERSION.items()}
    monkeypatch.setattr("gnomon.engines.deepspeed.engine.BY_VERSION", bare)
    yield


@pytest.mark.parametrize("version", GATHERING)
def test_zero_3_takes_longer_by_its_handling_and_other_stages_do_not(
    version: str, request: pytest.FixtureRequest
) -> None:
    before = [trained(version, zero=zero).step_time_s.value for zero in (1, 3)]
    request.getfixturevalue("without_gathers")
    bare = [trained(version, zero=zero).step_time_s.value for zero in (1, 3)]
    assert before[0] == bare[0]
    assert before[1] > 1.05 * bare[1]


def test_hooks_bound_narrow_layers_however_small_the_batch() -> None:
    """A forward pass takes no less than its hooks, and a larger micro-batch hides them."""
    found = [trained("0.14", seq=seq).step.figures for seq in (128, 8192)]
    forward = [float(one.forward_s[0]) for one in found]
    hooks = 16 * MODULES * MODULE_S
    assert hooks < forward[0] < 2 * hooks < forward[1]


def test_gradients_are_copied_as_they_come_where_nothing_overlaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four bytes of every gradient over the host's link, beside a flush that else hides behind the backward pass."""
    offloaded = {"techniques": ["offload-optimizer:flush=beside"], "model": "llama-3.1-8b"}
    exposed = trained("0.14", **offloaded)
    bare = {**BY_VERSION, "0.14": replace(BY_VERSION["0.14"], exposed_gradient_bytes=0.0)}
    monkeypatch.setattr("gnomon.engines.deepspeed.engine.BY_VERSION", bare)
    hidden = trained("0.14", **offloaded)
    own = float(exposed.step.figures.own_parameters[0])
    link = float(np.max(link_bytes_s(exposed.step.priced)))
    longer = exposed.step_time_s.value - hidden.step_time_s.value
    assert longer == pytest.approx(4 * own / link, rel=0.05)


@pytest.mark.parametrize("version", BY_VERSION)
def test_an_answer_says_what_its_version_was_fitted_to_and_tested_on(version: str) -> None:
    (said,) = trained(version, zero=1).assumed
    table = BY_VERSION[version]
    assert said.startswith(f"DeepSpeed {version}: ") and table.fitted_on in said and table.tested_on in said


def test_bands_of_versions_fitted_to_few_runs_are_wider() -> None:
    def relative(version: str) -> float:
        found = trained(version).step_time_s
        return float(found.high / found.low)

    assert min(relative("0.3"), relative("0.14")) > relative("0.18")
    assert all(BY_VERSION[one].system_spread > releases.SPREAD for one in GATHERING)
