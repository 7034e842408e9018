"""What a step runs, as sums; and the experts that its tokens visit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.graph.dtypes import WIDTH, width
from gnomon.graph.ops import LOGITS, TOKENS, Rows, size_of, visited_experts
from gnomon.spec import Batch

FIGURES = (
    "decodes",
    "decode_context",
    "prefills",
    "prefill_tokens",
    "prefill_pairs",
    "prefill_context",
    "logit_rows",
    "tokens",
)


def figures(batch: Batch) -> list[float]:
    return [float(getattr(batch, name)[0]) for name in FIGURES]


def test_a_mixed_step_by_hand() -> None:
    batch = Batch.step([100, 2000], [(3, 0), (2, 10)])
    # Three new tokens see 1, 2 and 3 keys; two over ten cached ones see 11 and 12.
    assert figures(batch) == [2, 2102, 2, 5, 6 + 23, 3 + 12, 4, 7]


@pytest.mark.heavy
@given(st.integers(1, 400), st.integers(0, 5000))
def test_equal_decodes(count: int, context: int) -> None:
    assert figures(Batch.decode(count, context)) == figures(Batch.step([context] * count, []))


@given(st.integers(1, 40), st.integers(1, 3000), st.integers(0, 5000))
def test_equal_prompts(count: int, tokens: int, context: int) -> None:
    assert figures(Batch.prefill(count, tokens, context)) == figures(Batch.step([], [(tokens, context)] * count))


@given(st.integers(1, 300), st.integers(0, 3000))
def test_pairs_are_what_each_token_sees(tokens: int, context: int) -> None:
    seen = sum(context + i + 1 for i in range(tokens))
    assert Batch.prefill(1, tokens, context).prefill_pairs[0] == seen


def test_arrays_broadcast() -> None:
    batch = Batch.decode([1, 2, 3], 10)
    assert batch.size == 3
    assert batch.decode_context.tolist() == [11, 22, 33]
    assert Batch.prefill(2, np.array([5, 6]), 1).prefill_context.tolist() == [12, 14]


def test_sizes_follow_the_batch() -> None:
    batch = Batch.step([1, 2, 3], [(10, 0)])
    assert [float(size_of(size, batch)[0]) for size in (TOKENS, LOGITS, Rows("tokens", 0.5), 7)] == [13, 4, 6.5, 7]


@given(st.integers(1, 100_000), st.integers(1, 512), st.integers(1, 16))
def test_visited_experts(tokens: int, experts: int, topk: int) -> None:
    topk = min(topk, experts)
    found = float(visited_experts(np.array([float(tokens)]), experts, topk)[0])
    assert topk * (1 - 1e-9) <= found <= min(experts, tokens * topk) * (1 + 1e-9)


def test_visited_experts_by_drawing() -> None:
    rng = np.random.default_rng(0)
    for tokens in (1, 4, 16, 64):
        drawn = [len({e for _ in range(tokens) for e in rng.choice(128, 8, replace=False)}) for _ in range(40)]
        assert visited_experts(np.array([float(tokens)]), 128, 8)[0] == pytest.approx(np.mean(drawn), rel=0.03)


def test_widths() -> None:
    assert {name: width(name) for name in WIDTH} == WIDTH
    assert (width("bf16"), width("fp8"), width("fp32")) == (2, 1, 4)
    with pytest.raises(Exception, match=r"unknown number format 'bf17'. Near: .*bf16"):
        width("bf17")
