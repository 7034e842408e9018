"""Prompts with images: laws of the encoder budget and cache, and what the tower adds. `tests/oracles` runs vLLM's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.sim.costs import Adapted, Cliffs, Smooth

from gnomon.cost.step import parts_of
from gnomon.sim.serving import Recorder, simulate
from gnomon.sim.serving.caches.counted import CountedBlocks
from gnomon.sim.serving.caches.hashed import HashedBlocks
from gnomon.sim.serving.policies.stepped import SteppedPolicy
from gnomon.spec.serving import ImageLimits, ServingLimits
from gnomon.spec.workload import Requests

TOWER_S = 1 / 64
BASE = ServingLimits(kv_blocks=4000, max_sequences=12, max_step_tokens=256, max_context=8192, policy=SteppedPolicy)


class Encoding(Adapted):
    """A cost to which every image of a step adds."""

    def varied_work(self, decodes: int, decode_context: int, chunks: Any, variant: int) -> tuple[float, float, float]:
        return self.mixed(decodes, decode_context, chunks) + parts_of(variant)[2] * TOWER_S, 0.0, 0.0

    def varied_launch(self, tokens: int, variant: int) -> float:
        return 0.0


class Free(Encoding):
    """Images that cost nothing."""

    def varied_work(self, decodes: int, decode_context: int, chunks: Any, variant: int) -> tuple[float, float, float]:
        return self.mixed(decodes, decode_context, chunks), 0.0, 0.0


def load(seed: int, count: int, images: ImageLimits, gap_s: float = 0.01) -> Requests:
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1, count) * gap_s)
    text = rng.integers(1, 200, count)
    return Requests(arrival, text + images.count * images.tokens, rng.integers(1, 40, count))


def test_images_that_cost_nothing_and_find_room_change_no_decision() -> None:
    images = ImageLimits(count=3, tokens=50, embeddings=50, budget=10**6, cache=10**6)
    for seed, cache in enumerate([CountedBlocks, HashedBlocks] * 3):
        requests = load(seed, 60, images)
        limits = replace(BASE, images=images, cache=cache, lookahead=seed % 2, kv_blocks=60 if seed > 3 else 4000)
        free = Free(Cliffs())
        with_images, plain = Recorder(), Recorder()
        simulate(requests, free, limits, record=with_images)
        simulate(requests, free, replace(limits, images=None, policy=None), record=plain)
        assert [one.tokens for one in with_images.steps] == [one.tokens for one in plain.steps]


@pytest.mark.parametrize("seed", range(12))
def test_every_image_is_encoded_once_and_no_step_has_more_than_its_budget(seed: int) -> None:
    rng = np.random.default_rng(seed)
    each = int(rng.choice([10, 60, 200]))
    images = ImageLimits(
        count=int(rng.integers(1, 5)), tokens=each, embeddings=each,
        budget=each * int(rng.integers(1, 4)), cache=each * int(rng.integers(1, 6)),
    )  # fmt: skip
    seen: list[int] = []
    cost = Encoding(Smooth())

    def work(decodes: int, context: int, chunks: Any, variant: int) -> tuple[float, float, float]:
        seen.append(parts_of(variant)[2])
        return Encoding.varied_work(cost, decodes, context, chunks, variant)

    cost.varied_work = work  # type: ignore[method-assign]
    requests = load(seed, 40, images)
    run = simulate(requests, cost, replace(BASE, images=images, lookahead=seed % 2))
    assert sum(seen) == images.count * len(requests) and run.preemptions == 0
    assert max(seen) * each <= min(images.budget, images.cache)


def test_a_lone_request_waits_for_its_images() -> None:
    images = ImageLimits(count=2, tokens=30, embeddings=30, budget=1000, cache=1000)
    one = Requests(np.zeros(1), np.array([100]), np.array([3]))
    limits = replace(BASE, images=images, lookahead=0)
    with_images = simulate(one, Encoding(Smooth()), limits).first_token_s[0]
    without = simulate(one, Encoding(Smooth()), replace(limits, images=None, policy=None)).first_token_s[0]
    assert with_images - without == pytest.approx(2 * TOWER_S, abs=1e-12)


def test_a_small_cache_lets_fewer_prompts_in_at_once() -> None:
    images = ImageLimits(count=1, tokens=40, embeddings=40, budget=400, cache=400)
    requests = load(1, 60, images, gap_s=0.0)
    makespans = [
        simulate(requests, Encoding(Smooth()), replace(BASE, images=replace(images, cache=size))).first_token_s.mean()
        for size in (40, 400)
    ]
    assert makespans[0] > makespans[1]
