"""Memory of training ranks: states by hand, and which choices never need more than others."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.engines.plans import ENGINES, OPTIMIZERS, config, memory, pairs, peaks, search

from gnomon.engines.training import Grid
from gnomon.engines.training.memory import rank_held
from gnomon.graph import liveness
from gnomon.graph.layers import Cut, head, layer
from gnomon.load import model as load_model
from gnomon.planning.training.search import Search
from gnomon.sim.training import names
from gnomon.spec import Recipe, Strategy
from gnomon.spec.training import RECOMPUTE

EVERY = pytest.mark.parametrize("engine", ENGINES)
SPACES = [(engine, optimizer) for engine in ENGINES for optimizer in OPTIMIZERS]
BOTH = pytest.mark.parametrize(("engine", "optimizer"), SPACES)
STATES = {"adamw": (2.0, 4.0, 12.0), "adamw-bf16": (2.0, 2.0, 4.0)}
"""Bytes a parameter of weights, gradients and optimizer: Rajbhandari et al. 2020 with fp32 gradients; all in bf16."""
P = load_model("llama-3.1-8b").parameters


def one(engine: str, strategy: Strategy, recipe: Recipe, model: str = "llama-3.1-8b", batch: int = 16) -> Search:
    found = search(model, "H200:64", engine, recipe.optimizer, batch=batch)
    return replace(found, grid=Grid.of(strategy, recipe))


@BOTH
def test_states_on_one_chip(engine: str, optimizer: str) -> None:
    parts = memory(one(engine, Strategy(), Recipe(optimizer=optimizer)), 0)
    found = parts.weights[0], parts.gradients[0], parts.optimizer[0]
    assert found == pytest.approx([size * P for size in STATES[optimizer]], rel=1e-9)


@BOTH
def test_zero_shares_states_out(engine: str, optimizer: str) -> None:
    """Each level shares one thing more among the sixteen ranks; a layer's gradient waits whole to be scattered, and
    two layers' weights and the ends' are whole at a time."""
    weight, gradient, state = (size * P for size in STATES[optimizer])
    parts = [memory(one(engine, Strategy(dp=16), Recipe(optimizer=optimizer, zero=zero)), 0) for zero in range(4)]
    for zero, found in enumerate(parts):
        assert found.optimizer[0] == pytest.approx(state / (16 if zero else 1), rel=1e-9)
        if zero < 2:
            assert (found.weights[0], found.gradients[0]) == pytest.approx((weight, gradient), rel=1e-9)
    assert gradient / 16 < parts[2].gradients[0] < gradient / 16 + 0.14 * gradient
    assert parts[3].gradients[0] == parts[2].gradients[0]
    assert weight / 16 < parts[3].weights[0] + parts[3].optimizer[0]
    assert parts[3].weights[0] < 0.3 * weight < weight <= parts[2].weights[0]


@BOTH
def test_zero_needs_no_more_from_level_to_level(engine: str, optimizer: str) -> None:
    """Where a rank has many layers and company enough. Level 2 also holds its own part of the weights beside the
    whole, which is more than it saves of bf16 gradients among few."""
    found = search("llama-3.1-8b", "H100:16", engine, optimizer)
    totals, grid = peaks(found), found.grid
    assert set(grid.zero.tolist()) == set(found.traits.zero)
    for low, high in pairwise(found.traits.zero):
        least, most = np.array(list(pairs(grid, "zero", low, high))).T
        many = (grid.pp[least] <= 2) & (grid.dp[least] >= 4)
        own = np.maximum(rank_held(found.figures, 0).total, rank_held(found.figures, grid.pp - 1).total)
        at_rest = (high == 2) * 2.0 * (own / grid.dp)[least][many]
        assert np.all(totals[most][many] <= totals[least][many] + at_rest)
        assert many.sum() > 20


@BOTH
def test_more_data_parallel_ranks_need_no_more(engine: str, optimizer: str) -> None:
    found = search("llama-3.1-8b", "H100:16", engine, optimizer)
    totals = peaks(found)
    for low, high in ((2, 4), (4, 8), (8, 16)):
        few, many = np.array(list(pairs(found.grid, "dp", low, high))).T
        assert np.all(totals[many] <= totals[few] * (1 + 1e-12))


@EVERY
def test_fuller_recomputation_needs_no_more(engine: str) -> None:
    found = search("llama-3.1-8b", "H100:16", engine)
    totals = peaks(found)
    for low, high in pairwise(np.intersect1d(found.grid.recompute, range(len(RECOMPUTE)))):
        less, more = np.array(list(pairs(found.grid, "recompute", low, high))).T
        assert np.all(totals[more] <= totals[less])
        kept = found.figures.saved_activation_bytes
        assert np.all(kept[more] < kept[less])


@EVERY
def test_a_cut_sequence_needs_no_more(engine: str) -> None:
    found = search("llama-3.1-8b", "H100:16", engine)
    whole, cut = np.array(list(pairs(found.grid, "sequence_parallel", 0, 1))).T
    same = found.grid.recompute[cut] < len(RECOMPUTE)  # by operator, results of collectives stay that are not needed
    whole, cut = whole[same], cut[same]
    assert np.all(found.figures.saved_activation_bytes[cut] < found.figures.saved_activation_bytes[whole])
    assert np.all(peaks(found)[cut] < peaks(found)[whole])


@EVERY
def test_earlier_ranks_hold_more_in_flight(engine: str) -> None:
    """1F1B: rank r of p holds p - r micro-batches; GPipe all of them; interleaving more than 1F1B on every rank."""

    def held(pp: int, vp: int, schedule: str, rank: int) -> float:
        recipe = Recipe(schedule=schedule)
        found = one(engine, Strategy(pp=pp, vp=vp), recipe)
        kept = 32 // pp * found.figures.saved_activation_bytes[0]
        # Of GPipe's, all heads but the one that runs wait for their backward; other schedules have only that one.
        heads = (rank == pp - 1) * (schedule == "gpipe") * 15 * found.figures.head_saved_activation_bytes[0]
        return float((memory(found, rank).activations[0] - heads) / kept)

    assert [held(4, 1, "1f1b", rank) for rank in range(4)] == pytest.approx([4, 3, 2, 1])
    assert [held(4, 1, "gpipe", rank) for rank in range(4)] == pytest.approx([16] * 4)
    # Half as deep chunks: (vp - 1) pp + 2 (pp - 1 - r) + 1 of them.
    assert [held(4, 2, "interleaved", rank) for rank in range(4)] == pytest.approx([5.5, 4.5, 3.5, 2.5])


@EVERY
def test_interleaving_holds_more(engine: str) -> None:
    """Narayanan et al. 2021, section 2.2: the same states, more activations."""
    found = search("llama-3.1-8b", "H100:16", engine)
    code = {name: place for place, name in enumerate(names())}
    grid = found.grid
    plain, parts = np.array(
        [
            pair
            for vp in (2, 4)
            for pair in pairs(grid, "vp", 1, vp, "schedule")
            if grid.schedule[pair[0]] == code["1f1b"] and grid.schedule[pair[1]] == code["interleaved"]
        ]
    ).T
    first, last = memory(found, 0), memory(found, 99)
    longer = found.figures.micros[plain] > grid.pp[plain]
    assert 20 < longer.sum() < longer.size
    assert np.all(first.activations[parts][longer] > first.activations[plain][longer])
    # With no more micro-batches than stages, both hold them all.
    np.testing.assert_allclose(first.activations[parts][~longer], first.activations[plain][~longer])
    assert np.all(last.activations[parts] >= last.activations[plain] * (1 - 1e-12))
    np.testing.assert_allclose(first.optimizer[parts], first.optimizer[plain])


@EVERY
@pytest.mark.parametrize("mode", RECOMPUTE)
def test_one_chips_peak_is_that_of_its_tapes(engine: str, mode: str) -> None:
    """One chip, one micro-batch: what all layers keep, and the fullest operator beside it, whether it is a layer's or
    the head's, forward or backward."""
    found = one(engine, Strategy(), Recipe(recompute=mode))
    model, style = found.model, found.traits.style
    tapes = layer(model, model.blocks[0], Cut(seq=2048), style), head(model, Cut(seq=2048), style)
    fullest = [
        max(size for walk in (liveness.forward, liveness.backward) for _, size in walk(tape, how))
        for tape, how in zip(tapes, (mode, "none"), strict=True)
    ]
    # The head is there only while it runs, when all layers have kept what they keep.
    beside = max(fullest[0] - tapes[0].saved_activation_bytes(mode), fullest[1])
    expected = 2048 * (32 * tapes[0].saved_activation_bytes(mode) + beside)
    parts = memory(found, 0)
    assert parts.activations[0] + parts.working[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("engine", ENGINES[:3])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-3.2-1b", "gpt-1.7b"])
def test_ranks_hold_the_model_between_them(engine: str, model: str) -> None:
    """A tied head is a copy of the embedding on the last rank of a pipeline."""
    network = load_model(model)
    for pp in (1, 2, 8):
        found = one(engine, Strategy(pp=pp), Recipe(), model=model)
        total = sum(float(rank_held(found.figures, rank).total[0]) for rank in range(pp))
        copy = network.vocab * network.hidden if network.tied_embeddings and pp > 1 else 0
        assert total == network.parameters + copy


@EVERY
def test_the_fullest_rank_is_one_of_three(engine: str) -> None:
    """The search looks at the first two and the last rank of a pipeline only."""
    found = search("llama-3.1-8b", "H100:32", engine, batch=8)
    assert found.grid.pp.max() == 32
    np.testing.assert_array_equal(found.peak_bytes, peaks(found))


def test_light_ends_leave_the_fullest_rank_between_them(tmp_path: Path) -> None:
    """Hardly any vocabulary, and buffers for both neighbours."""
    found = search(config(tmp_path, vocab_size=64), "H100:8", "torch", batch=8)
    np.testing.assert_array_equal(found.peak_bytes, peaks(found))
    ends = np.maximum(memory(found, 0).total, memory(found, 99).total)
    assert np.any(found.peak_bytes > ends)


@BOTH
def test_memory_holds_at_least_weights_and_states(engine: str, optimizer: str) -> None:
    found = search("llama-3.2-1b", "H100:16", engine, optimizer)
    weight, gradient, state = STATES[optimizer]
    shares = found.grid.dp * found.grid.tp * found.grid.pp
    least = (weight + gradient + state) * found.model.parameters / shares
    if optimizer == "adamw" and engine == "torch":
        least = least - weight * found.model.parameters / shares  # shared out, the fp32 weights are the weights
    assert np.all(found.peak_bytes >= least)
