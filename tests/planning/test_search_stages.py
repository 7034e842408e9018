"""A search asks which plans fit before it prices them: the same figures as of all plans priced together."""

from __future__ import annotations

import numpy as np
import pytest

from gnomon.engines.training.step_table import Sizes, sizes
from gnomon.load.training import bind_training
from gnomon.planning.training.search import Search, search_of
from gnomon.planning.training.step import rank_peaks, step_bound_s
from gnomon.spec import TrainingLoad

CASES = {
    "equal layers": ("gpt-22b", "A100-SXM-80GB:16", 2048, 48, None, "megatron"),
    "tied embeddings": ("gpt2-xl", "A100-SXM-80GB:8", 1024, 24, None, "megatron"),
    "sharded alone": ("llama-3.1-8b", "H100:8", 4096, 16, None, "torch"),
    "long sequences": ("llama-3.2-1b", "H100:8", 32768, 8, None, "torch"),
    "experts": ("mixtral-8x7b", "H100:16", 4096, 16, None, "megatron"),
    "two kinds of layers": ("deepseek-v2-lite", "H800:16", 4096, 32, "fp8", "megatron"),
    "unequal stages": ("qwen3-235b-a22b", "H200:64", 4096, 16, None, "megatron"),
}


@pytest.fixture(scope="module", params=CASES)
def search(request: pytest.FixtureRequest) -> Search:
    model, cluster, seq, batch, dtype, engine = CASES[request.param]
    load = TrainingLoad(seq=seq, global_batch=batch)
    return search_of(bind_training(model, cluster, engine), load, "adamw", dtype)


def test_memory_needs_no_seconds(search: Search) -> None:
    alone = sizes(search.model, search.load, search.grid, search.traits, search.dtype)
    for name in ("micros", "layers", "first_parameters", "last_parameters", "each_parameters"):
        np.testing.assert_array_equal(getattr(alone, name), getattr(search.figures, name))
    for name in ("head_saved_activation_bytes", "head_peak_bytes", "buffer_bytes"):
        np.testing.assert_array_equal(getattr(alone, name), getattr(search.figures, name))
    for one, other in zip(alone.chunks.kinds, search.figures.chunks.kinds, strict=True):
        np.testing.assert_array_equal(one.held, other.held)
        for name in ("narrow", "saved_activation_bytes", "peak_bytes"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert isinstance(search.figures, Sizes)


def test_the_fullest_rank_is_found_without_asking_all(search: Search) -> None:
    every = rank_peaks(search.figures, search.case, search.applied).chip
    np.testing.assert_allclose(search.peak_bytes, every, rtol=1e-12)


def test_only_plans_that_fit_are_priced_and_as_ever(search: Search) -> None:
    rows, found = search.priced
    assert 0 < rows.size == search.fits.sum() <= search.grid.size
    np.testing.assert_allclose(search.bounds_s[rows], step_bound_s(search.figures, search.traits)[rows], rtol=1e-12)
    assert np.isinf(search.bounds_s[~search.fits]).all()
    together = search.figures.pick(rows)
    for name in ("forward_s", "backward_s", "send_s", "reduce_s", "optimizer_s", "gather_s", "energy_j"):
        np.testing.assert_allclose(getattr(found, name), getattr(together, name), rtol=1e-12)


def test_parameters_of_the_fullest_rank(search: Search) -> None:
    chunks, pp = search.figures.chunks, search.grid.pp
    every = [chunks.body(np.minimum(rank, pp - 1)).total for rank in range(int(pp.max()))]
    np.testing.assert_array_equal(chunks.fullest.total, np.max(every, axis=0))
