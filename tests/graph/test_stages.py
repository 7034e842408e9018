"""Pipelines: every layer on one stage, and what passes between them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.graph.shapes import dense, sparse

from gnomon.engines.vllm.degrees import stages
from gnomon.graph import Collective, lower
from gnomon.graph.stages import crossings, cut, received
from gnomon.load import model as load_model
from gnomon.spec import Batch, DenseFfn, Strategy


@given(layers=st.integers(1, 130), data=st.data())
def test_every_layer_is_on_one_stage(layers: int, data: st.DataObject) -> None:
    pp = data.draw(st.integers(1, layers))
    found = stages(dense(layers=layers), pp)
    assert [layer for stage in found for layer in range(stage.start, stage.end)] == list(range(layers))
    assert [stage.first for stage in found] == [True] + [False] * (pp - 1)
    assert [stage.last for stage in found] == [False] * (pp - 1) + [True]
    sizes = [stage.layers for stage in found]
    assert max(sizes) - min(sizes) <= 1
    assert sizes[-1] == layers // pp


def test_what_is_left_over_goes_before_the_last() -> None:
    assert [stage.layers for stage in stages(dense(layers=80), 3)] == [27, 27, 26]
    assert [stage.layers for stage in stages(dense(layers=61), 4)] == [15, 15, 16, 15]


def test_stages_keep_the_order_of_unlike_layers() -> None:
    first = sparse().blocks[0]
    other = replace(first, ffn=DenseFfn(inner=64), count=3)
    model = replace(sparse(), blocks=(other, first))
    kinds = [[(type(b.ffn).__name__, b.count) for b in stage.of(model).blocks] for stage in cut([2, 4, 2])]
    assert kinds == [[("DenseFfn", 2)], [("DenseFfn", 1), ("MoeFfn", 3)], [("MoeFfn", 2)]]


@pytest.mark.parametrize("pp", [2, 3, 7])
@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-30b-a3b"])
def test_stages_do_the_work_of_the_whole(name: str, pp: int) -> None:
    model, strategy = load_model(name), Strategy(tp=2, pp=pp)
    batch = Batch.step([100, 2000], [(512, 0)])
    parts = [lower(stage.of(model), strategy, "bf16", "bf16", ends=stage.ends) for stage in stages(model, pp)]
    whole = lower(model, Strategy(tp=2), "bf16", "bf16")
    for figure in ("flops", "bytes"):
        total = sum(getattr(part, figure)(batch)[0] for part in parts)
        assert total == pytest.approx(getattr(whole, figure)(batch)[0], rel=1e-12)
    assert [any(op.name == "embedding" for op in part.ops) for part in parts] == [True] + [False] * (pp - 1)
    assert [any(op.name == "head.logits" for op in part.ops) for part in parts] == [False] * (pp - 1) + [True]


def test_a_stage_receives_two_streams_in_parts_and_joins_them() -> None:
    model, batch = load_model("llama-3.1-70b"), Batch.decode(10, 100)
    sent, joined = received(model, Strategy(tp=4, pp=2), False, 8)
    assert isinstance(sent, Collective)
    assert isinstance(joined, Collective)
    assert sent.bytes(batch)[0] == 10 * 2 * 8192 * 2 / 4
    assert joined.bytes(batch)[0] == 10 * 2 * 8192 * 2
    assert (sent.ranks, sent.stride, joined.ranks) == (2, 4, 4)
    (alone,) = received(model, Strategy(tp=1, pp=2), True, 8)
    assert alone.bytes(batch)[0] == 10 * 2 * 8192 * 2


@pytest.mark.parametrize(
    ("tp", "pp", "dp", "far"),
    [
        (4, 2, 1, (False,)),
        (8, 3, 1, (True, True)),
        (4, 4, 1, (False, True, False)),
        (2, 3, 1, (False, False)),
        (2, 3, 2, (True, False)),
    ],
)
def test_which_stages_stand_on_other_nodes(tp: int, pp: int, dp: int, far: tuple[bool, ...]) -> None:
    assert crossings(Strategy(tp=tp, pp=pp, dp=dp), 8) == far
