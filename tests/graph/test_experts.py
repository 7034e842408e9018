"""Experts over ranks: who holds what, FLOPs that add up, and bytes on the wire as formulas."""

from __future__ import annotations

import pytest
from tests.graph.shapes import lowered, sparse, weights

from gnomon.graph import Collective, Experts, Gemm, Graph, lower
from gnomon.load import model as load_model
from gnomon.spec import Batch, Model, Strategy

QWEN = load_model("qwen3-30b-a3b")
BATCHES = (Batch.decode(48, 500), Batch.step([100, 2000], [(512, 0), (200, 1000)]))
# Tensor-parallel, data-parallel and expert-parallel degrees, and whether tensor-parallel ranks part their tokens.
LAYOUTS = [(8, 1, 8, False), (1, 8, 8, False), (2, 4, 8, False), (2, 4, 8, True), (2, 4, 1, False), (4, 1, 1, False)]


def spread(model: Model, tp: int, dp: int, ep: int, parts: bool, dtype: str = "bf16") -> Graph:
    return lower(model, Strategy(tp=tp, dp=dp, ep=ep), dtype, "bf16", sequence_parallel_moe=parts)


def named(graph: Graph, name: str) -> list[Collective]:
    return [op for op in graph.ops if isinstance(op, Collective) and op.name == name]


def replicated(graph: Graph, batch: Batch, tp: int, parts: bool) -> float:
    """FLOPs that several ranks of a tensor-parallel group do alike: routers on the same tokens, and keys and values of
    heads that there are fewer of than ranks."""
    routers = [op for op in graph.ops if isinstance(op, Gemm) and op.name == "ffn.router"]
    same = 0.0 if parts else float(sum(op.count * op.flops(batch)[0] for op in routers)) * (tp - 1)
    copied = 2 * max(0, tp - 4) * 128
    return same + 48 * 2.0 * float(batch.tokens[0]) * 2048 * copied


@pytest.mark.parametrize(("tp", "dp", "ep", "parts"), LAYOUTS)
@pytest.mark.parametrize("batch", BATCHES)
def test_ranks_do_the_work_of_one_between_them(tp: int, dp: int, ep: int, parts: bool, batch: Batch) -> None:
    """Every data-parallel rank has this batch: all ranks together do what one rank does for dp of them."""
    graph = spread(QWEN, tp, dp, ep, parts)
    extra = replicated(graph, batch, tp, parts)
    one = lowered(QWEN).flops(batch)[0]
    assert tp * graph.flops(batch)[0] == pytest.approx(one + extra, rel=1e-12)


@pytest.mark.parametrize(("tp", "dp", "ep", "parts"), LAYOUTS)
def test_experts_stand_whole_or_cut(tp: int, dp: int, ep: int, parts: bool) -> None:
    (op,) = [op for op in spread(QWEN, tp, dp, ep, parts).ops if isinstance(op, Experts)]
    assert op.held * op.inner * tp * dp == 128 * 768
    assert (op.held, op.inner) == ((128 // ep, 768) if ep > 1 else (128, 768 // (tp * dp)))


def test_the_weights_of_all_ranks_are_those_of_the_model() -> None:
    model = sparse(experts=8, inner=16)
    whole = weights(lowered(model))
    (experts,) = [op for op in lowered(model).ops if isinstance(op, Experts)]
    routed = experts.count * experts.experts * 3 * experts.hidden * experts.inner
    graph = spread(model, 2, 4, 8, False)
    (own,) = [op for op in graph.ops if isinstance(op, Experts)]
    held = own.count * own.held * 3 * own.hidden * own.inner
    assert held * 8 == routed
    router = model.layers * 8 * 32
    rest = weights(graph) - own.count * own.experts * 3 * own.hidden * own.inner
    assert 2 * (rest - router) + router == whole - routed


@pytest.mark.parametrize("batch", BATCHES)
def test_what_is_gathered_and_scattered(batch: Batch) -> None:
    """Hidden states, eight numbers and eight weights of experts go out; hidden states come back."""
    tokens = float(batch.tokens[0])
    for tp, dp, parts in ((1, 8, False), (2, 4, False), (2, 4, True)):
        graph = spread(QWEN, tp, dp, 8, parts)
        (out,), (back,) = named(graph, "ffn.dispatch"), named(graph, "ffn.combine")
        assert (out.op, back.op) == ("all_gather", "reduce_scatter")
        assert out.bytes(batch)[0] == dp * tokens * (2048 * 2 + 8 * 8)
        assert back.bytes(batch)[0] == dp * tokens * 2048 * 2
        assert out.ranks == back.ranks == (8 if parts else dp)
        assert out.stride == (1 if parts else tp)
        assert out.count == 48


def test_narrow_tokens_travel_with_their_scales() -> None:
    (out,) = named(spread(QWEN, 1, 8, 8, False, "fp8"), "ffn.dispatch")
    assert out.bytes_per_row == 2048 + 4 * 2048 / 128 + 64


def test_how_tensor_parallel_ranks_join() -> None:
    """They add up what their experts say, or gather the tokens they had parted."""
    together, parted = spread(QWEN, 2, 4, 8, False), spread(QWEN, 2, 4, 8, True)
    assert [op.op for op in named(together, "ffn.all_reduce")] == ["all_reduce"]
    assert not named(together, "ffn.all_gather")
    assert not named(parted, "ffn.all_reduce")
    (joined,) = named(parted, "ffn.all_gather")
    assert (joined.ranks, joined.bytes_per_row) == (2, 2048 * 2)
    assert not named(spread(QWEN, 1, 8, 8, False), "ffn.all_reduce")


def test_within_one_tensor_parallel_group_nothing_is_sent() -> None:
    graph = spread(QWEN, 8, 1, 8, False)
    assert not named(graph, "ffn.dispatch") + named(graph, "ffn.combine")
    assert len(named(graph, "ffn.all_reduce")) == 1


def test_stages_stand_between_data_parallel_ranks() -> None:
    graph = lower(QWEN, Strategy(tp=2, pp=3, dp=2), "bf16", "bf16")
    (out,) = named(graph, "ffn.dispatch")
    assert (out.ranks, out.stride) == (2, 6)


def test_the_busiest_rank_is_timed_and_the_mean_one_counted() -> None:
    batch = Batch.decode(64, 100)
    (op,) = [op for op in spread(QWEN, 8, 1, 8, False).ops if isinstance(op, Experts)]
    shape = op.shape(batch)
    visits = shape["tokens"] * shape["topk"]
    assert visits[0] == pytest.approx(op.imbalance(batch)[0] * 64 * 8 / 8)
    assert op.imbalance(batch)[0] > 1.1
    assert op.flops(batch)[0] == 6 * 64 * 8 * 2048 * 768 / 8


def test_choices_of_experts_elsewhere_take_rows_too() -> None:
    batch = Batch.decode(64, 100)
    (op,) = [op for op in spread(QWEN, 8, 1, 8, False).ops if isinstance(op, Experts)]
    assert op.shape(batch)["absent"][0] == 64 * 8 * 7 / 8
    (whole,) = [op for op in lowered(QWEN).ops if isinstance(op, Experts)]
    assert "absent" not in whole.shape(batch)
    extra = 8 * op.bytes(batch)[0] - whole.bytes(batch)[0]
    assert extra == pytest.approx(8 * 64 * 7 * (3 * 2048 + 5 * 768) * 2)


def test_shared_experts_are_cut_or_run_whole_on_parted_tokens() -> None:
    model, batch = sparse(shared=64), Batch.decode(40, 10)
    together, parted = (spread(model, 2, 4, 8, parts) for parts in (False, True))
    widths = [next(op.n for op in graph.ops if op.name == "ffn.shared_up") for graph in (together, parted)]  # type: ignore[union-attr]
    assert widths == [64, 128]
    flops = [next(op for op in graph.ops if op.name == "ffn.shared_up").flops(batch)[0] for graph in (together, parted)]
    assert flops[0] == flops[1]


def test_scores_in_fp32_are_computed_on_widened_tokens() -> None:
    graph, plain = (lower(load_model(name), Strategy(), "bf16", "bf16") for name in ("minimax-m2", "qwen3-30b-a3b"))
    (router,) = (op for op in graph.ops if op.name == "ffn.router")
    (widen,) = (op for op in graph.ops if op.name == "ffn.router.widen")
    assert isinstance(router, Gemm)
    assert (router.dtype, router.n, router.k) == ("fp32", 256, 3072)
    assert widen.bytes(Batch.decode(8, 10))[0] == 8 * 3072 * (2 + 4)
    assert not [op for op in plain.ops if op.name == "ffn.router.widen"]
