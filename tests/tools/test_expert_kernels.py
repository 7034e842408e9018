"""What the benchmark of experts hands to the kernels: it needs no GPU to be right."""

from __future__ import annotations

import numpy as np
import pytest
from tools.expert_kernels import choices, drawn_counts


@pytest.mark.parametrize(("tokens", "experts", "topk"), [(4, 128, 8), (16, 8, 2), (512, 128, 8)])
@pytest.mark.parametrize("skew", [1.01, 1.2])
def test_every_token_chooses_as_many_experts_as_it_should(tokens: int, experts: int, topk: int, skew: float) -> None:
    counts = drawn_counts(np.random.default_rng(0), tokens, experts, topk, skew)
    assert counts.sum() == tokens * topk
    assert counts.max() <= tokens
    drawn = choices(counts, tokens, topk)
    assert drawn.shape == (tokens, topk)
    assert all(len(set(row)) == topk for row in drawn.tolist())
    assert np.bincount(drawn.ravel(), minlength=experts).tolist() == counts.tolist()
