"""From a model and its parallel degrees to the operators of one rank."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from gnomon.errors import InputError
from gnomon.graph.base import Graph
from gnomon.graph.cuts import mixer_obstacle, widest
from gnomon.graph.dtypes import STATE
from gnomon.graph.layers import Cut, NodePass, Paged, Writer, write
from gnomon.graph.layers.ends import embedding, head
from gnomon.graph.passes.forward import forward_ops
from gnomon.graph.sizes import merged
from gnomon.graph.stages import ENDS
from gnomon.graph.style import SERVED
from gnomon.graph.support import check_priced
from gnomon.graph.tape import TapeNode
from gnomon.spec import Model, MoeFfn, Strategy
from gnomon.spec.formats import PLAIN_BITS, Formats
from gnomon.spec.model import Ffn
from gnomon.spec.narrowed import in_format

ALONE = Strategy()

ONE_SUM = ("falcon",)
"""Families whose halves side by side are summed over the ranks once in vLLM; others are summed each."""


def check_degrees(model: Model, strategy: Strategy) -> None:
    """Raise where the model has no operators or cannot be cut so, naming the nearest degree that can."""
    check_priced(model)
    for name in ("tp", "pp", "ep", "cp", "dp"):
        degree = getattr(strategy, name)
        if not isinstance(degree, int) or degree < 1:
            raise InputError(f"{degree} is not a number of chips", where=name, hint="It is 1 or more.")
    why = obstacle(model, strategy.tp, strategy)
    if why:
        most = max(widest(block.mixer) for block in model.blocks)
        possible = [tp for tp in range(1, most + 1) if not obstacle(model, tp, strategy)] or [1]
        near = max((tp for tp in possible if tp <= strategy.tp), default=possible[0])  # more chips may not be there
        raise InputError(why, where="tp", hint=f"The nearest degree that works is {near}.")


def obstacle(model: Model, tp: int, strategy: Strategy = ALONE) -> str:
    """What keeps the model from being cut into `tp` equal parts; empty where nothing does."""
    for block in model.blocks:
        why = mixer_obstacle(block.mixer, tp)
        if why:
            return f"{model.name} has {why}"
        for inner, pieces in cut_widths(block.ffn, tp, strategy):
            if inner % pieces:
                return f"{model.name} has a feed-forward width of {inner}, which {pieces} does not divide"
    return ""


def cut_widths(ffn: Ffn | None, tp: int, strategy: Strategy) -> Iterator[tuple[int, int]]:
    """Inner widths, and the parts each is cut into. Experts of expert parallelism are not cut."""
    if ffn is None:
        return
    if not isinstance(ffn, MoeFfn):
        yield ffn.inner, tp
        return
    yield ffn.inner, tp * strategy.dp if strategy.ep == 1 else 1
    yield ffn.shared_inner, tp


def lower(
    model: Model,
    strategy: Strategy,
    dtype: str,
    kv_dtype: str,
    state_dtype: str = STATE,
    *,
    sequence_parallel_moe: bool = False,
    fill: float = 1.0,
    ends: Collection[str] = ENDS,
) -> Graph:
    """The operators of a step on one rank: of all layers of `model`, and of the `ends` that a stage of a pipeline has:
    an embedding before them, a head after.

    The batch is that of the busiest data-parallel rank; all have `fill` times as many tokens as if they were balanced.
    """
    split = sequence_parallel_moe
    cut = paged_cut(model, strategy, dtype, kv_dtype, state_dtype, sequence_parallel_moe=split, fill=fill)
    return lower_cut(model, cut, ends)


def paged_cut(
    model: Model,
    strategy: Strategy,
    dtype: str,
    kv_dtype: str,
    state_dtype: str = STATE,
    *,
    sequence_parallel_moe: bool = False,
    fill: float = 1.0,
) -> Cut:
    """One rank's part of a network in steps over a paged cache; see `lower`."""
    check_degrees(model, strategy)
    paged = Paged(
        dtype=dtype,
        kv_dtype=kv_dtype,
        state_dtype=state_dtype,
        one_sum=model.family in ONE_SUM,
        sequence_parallel_moe=sequence_parallel_moe,
        gathered=strategy.dp * fill,
        dp=strategy.dp,
        pp=strategy.pp,
    )
    matrix = dtype if dtype in PLAIN_BITS else ""
    return Cut(tp=strategy.tp, ep=strategy.ep, dtype=STATE, matrix=matrix, paged=paged)


def lower_cut(model: Model, cut: Cut, ends: Collection[str] = ENDS, passes: Sequence[NodePass] = ()) -> Graph:
    """The operators of a stage's layers and ends, with the passes of techniques."""
    assert cut.paged is not None
    model = in_format(model, cut.paged.dtype)

    def rewritten(part: str, write: Callable[[Writer], Iterable[TapeNode]], formats: Formats = ()) -> list[TapeNode]:
        writer = Writer(model, cut, SERVED, formats)
        nodes = list(write(writer))
        for one in passes:
            nodes = one(part, nodes, writer)
        return nodes

    ops = list(forward_ops(rewritten("embedding", embedding))) if ENDS[0] in ends else []
    for block in merged(model.blocks):
        layer = rewritten("layer", lambda writer, own=block: write(writer, own), block.formats)  # type: ignore[misc]
        ops += forward_ops(layer, block.count)
    if ENDS[1] in ends:
        ops += forward_ops(rewritten("head", head))
    return Graph(tuple(merged(ops)))
