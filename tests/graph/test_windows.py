"""What a window leaves to see, against counting token by token."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.graph.shapes import dense

from gnomon.graph import Attention, Graph, lower
from gnomon.graph.windows import Window
from gnomon.spec import Batch, Model, Strategy

windows = st.builds(Window, st.integers(1, 40), st.booleans())


def seen(window: Window, position: int) -> set[int]:
    """The tokens that the token at a position looks at; the first stands at 1."""
    first = (position - 1) // window.length * window.length + 1 if window.chunked else position - window.length + 1
    return set(range(max(first, 1), position + 1))


@given(window=windows, cached=st.integers(0, 150), sequences=st.integers(1, 5))
def test_a_decode(window: Window, cached: int, sequences: int) -> None:
    read = window.decode_context(Batch.decode(sequences, cached))[0]
    assert read == pytest.approx(sequences * len(seen(window, cached + 1)))


@given(window=windows, cached=st.integers(0, 150), new=st.integers(1, 120), sequences=st.integers(1, 5))
def test_prompts(window: Window, cached: int, new: int, sequences: int) -> None:
    batch = Batch.prefill(sequences, new, cached)
    looks = [seen(window, position) for position in range(cached + 1, cached + new + 1)]
    assert window.prefill_pairs(batch)[0] == pytest.approx(sequences * sum(map(len, looks)))
    assert window.prefill_context(batch)[0] == pytest.approx(sequences * len(set().union(*looks)))


@given(window=windows, chunks=st.lists(st.tuples(st.integers(1, 80), st.integers(0, 120)), min_size=1, max_size=4))
def test_chunks_known_one_by_one(window: Window, chunks: list[tuple[int, int]]) -> None:
    pairs, read = window.in_chunks(chunks)
    alone = [Batch.step([], [chunk]) for chunk in chunks]
    assert pairs == pytest.approx(sum(window.prefill_pairs(one)[0] for one in alone))
    assert read == pytest.approx(sum(window.prefill_context(one)[0] for one in alone))


@given(
    window=windows,
    decodes=st.lists(st.integers(0, 200), max_size=5),
    chunks=st.lists(st.tuples(st.integers(1, 80), st.integers(0, 200)), max_size=4),
)
def test_never_more_than_without(window: Window, decodes: list[int], chunks: list[tuple[int, int]]) -> None:
    batch = Batch.step(decodes, chunks)
    assert window.decode_context(batch)[0] <= batch.decode_context[0]
    assert window.prefill_pairs(batch)[0] <= batch.prefill_pairs[0]
    assert window.prefill_context(batch)[0] <= batch.prefill_context[0] * (1 + 1e-12)


@given(window=windows, longest=st.integers(1, 300))
def test_between_bends_what_is_seen_is_straight(window: Window, longest: int) -> None:
    cached = np.arange(longest + 1)
    read = window.decode_context(Batch.decode(np.ones(cached.size), cached))
    turns = cached[1:-1][np.abs(np.diff(read, 2)) > 1e-9]
    assert set(turns.tolist()) <= set(window.bends(longest))


def _windowed(**features: object) -> Model:
    block = dense().blocks[0]
    return replace(dense(), blocks=(replace(block, mixer=replace(block.attention, **features)),))  # type: ignore[arg-type]


def _attention(graph: Graph, phase: str) -> Attention:
    return next(op for op in graph.ops if isinstance(op, Attention) and op.phase == phase)


def test_layers_that_differ_in_the_window_are_two_operators() -> None:
    near, far = _windowed(window=64).blocks[0], dense().blocks[0]
    model = replace(dense(), blocks=(replace(near, count=5), replace(far, count=1), replace(near, count=5)))
    ops = [op for op in lower(model, Strategy(), "bf16", "bf16").ops if isinstance(op, Attention)]
    assert {(op.name, op.count) for op in ops} == {
        ("attention.window.prefill", 10),
        ("attention.window.decode", 10),
        ("attention.prefill", 1),
        ("attention.decode", 1),
    }


def test_equal_operators_of_other_layers_are_one() -> None:
    near, far = _windowed(window=64).blocks[0], dense().blocks[0]
    graph = lower(replace(dense(), blocks=(near, far)), Strategy(), "bf16", "bf16")
    names = [op.name for op in graph.ops]
    assert len(names) == len(set(names))
    assert next(op for op in graph.ops if op.name == "ffn.up").count == near.count + far.count


def test_capped_scores_take_a_second_function() -> None:
    batch = Batch.prefill(1, 100)
    plain, capped = (
        _attention(lower(model, Strategy(), "bf16", "bf16"), "prefill").shape(batch)["bends"][0]
        for model in (dense(), _windowed(logit_cap=50.0))
    )
    assert (plain, capped) == (1, 2)
