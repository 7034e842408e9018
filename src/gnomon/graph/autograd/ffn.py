"""Feed-forwards with their gradients: dense, and mixtures of experts."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

from gnomon.graph.autograd.writer import Writer
from gnomon.graph.ops import Collective, Elementwise, Gemm, Op, Rows
from gnomon.graph.routing import TokenRouting
from gnomon.graph.tape import TapeNode
from gnomon.spec import DenseFfn, MoeFfn

SCORE_BYTES, MAP_BYTES = 4.0, 1.0
"""The router's shares are fp32, and a byte says whether a token visits an expert."""
EXCHANGED = ("all_to_all", "all_to_all")


def dense(writer: Writer, ffn: DenseFfn, read: str) -> Iterator[TapeNode]:
    """From the normed stream to `fed`, partial sums of which each tensor-parallel rank has one."""
    whole = yield from writer.enter("ffn", read)
    yield from _dense(writer, "ffn", ffn, whole, ("gate", "up", "active", "fed"))


def _dense(writer: Writer, part: str, ffn: DenseFfn, read: str, names: tuple[str, str, str, str]) -> Iterator[TapeNode]:
    hidden, inner, (gate, up, active, fed) = writer.model.hidden, ffn.inner // writer.cut.tp, names
    if not ffn.gated:
        yield writer.linear(f"{part}.up", (read,), {up: inner}, hidden, ffn.bias)
        yield writer.elementwise(f"{part}.activation", writer.style.plain, inner, (up,), {active: inner}, True)
    else:
        yield from writer.linears(part, read, {gate: inner, up: inner}, hidden, ffn.bias)
        yield from writer.gate(part, inner, (gate, up), active)
    yield writer.linear(f"{part}.down", (active,), {fed: hidden}, inner, ffn.bias)


def mixture(writer: Writer, ffn: MoeFfn, read: str) -> Iterator[TapeNode]:
    """From the normed stream to `fed`, full sums on every rank for its own tokens.

    Tokens choose experts evenly, as load-balancing losses aim for: every rank gets as many rows as it sends,
    and every expert as many as the next. Shares are multiplied in with the activation, so that what experts give need
    not stay.
    """
    yield from _route(writer, ffn, read)
    arrived = yield from _dispatch(writer, ffn, read)
    yield from _experts(writer, ffn, arrived)
    yield from _combine(writer, ffn, "fed" if not ffn.shared_inner else "mixed.fed")
    if ffn.shared_inner:
        yield from _shared(writer, ffn, read)


def rows_of(writer: Writer, ffn: MoeFfn) -> Rows:
    """Rows that a rank's experts work on: those of its tokens, and of the ranks that share its experts' matrices."""
    return Rows("tokens", ffn.topk * writer.cut.share * writer.cut.expert_tp)


def _route(writer: Writer, ffn: MoeFfn, read: str) -> Iterator[TapeNode]:
    """Scores in the working format, then fp32 shares of the chosen and a map of them."""
    share, rows = writer.cut.share, writer.cut.rows
    gate = writer.linear(
        "ffn.router", (read,), {"scores": ffn.experts}, writer.model.hidden, ffn.router_bias, rows, writer.cut.dtype
    )
    # Permuting hands a second gradient of the stream on, shared experts a third.
    more = writer.total("ffn.router", writer.model.hidden, rows) * (2 if ffn.shared_inner else 1)
    correction = ffn.experts * ffn.correction
    yield replace(gate, by_input=gate.by_input + more, parameters=gate.parameters + correction)
    writer.sizes |= {"shares": ffn.experts * SCORE_BYTES * share, "map": ffn.experts * MAP_BYTES * share}
    read_bytes, written = ffn.experts * writer.value, ffn.experts * (SCORE_BYTES + MAP_BYTES)
    yield TapeNode(
        name="ffn.choose",
        forward=(Elementwise(name="ffn.choose", rows=rows, read_per_row=read_bytes, written_per_row=written),),
        by_input=(
            Elementwise(name="ffn.choose.by_input", rows=rows, read_per_row=written, written_per_row=read_bytes),
        ),
        reads=("scores",),
        writes=("shares", "map"),
        keeps=("shares", "map"),
    )


def _dispatch(writer: Writer, ffn: MoeFfn, read: str) -> Generator[TapeNode, None, str]:
    """A row for each token and expert it visits, in the order of experts, sent to where they are."""
    cut, hidden = writer.cut, writer.model.hidden
    rows = Rows("tokens", ffn.topk * cut.share)
    now = "permuted"
    yield _moved(writer, "ffn.permute", (read,), now, rows, hidden)
    if cut.ep > 1:
        yield _sent(writer, "ffn.dispatch", EXCHANGED, now, "arrived", rows, cut.ep, _routing(writer, ffn))
        now = "arrived"
    if cut.expert_tp > 1:
        everyone = rows_of(writer, ffn)
        yield _sent(writer, "ffn.dispatch.enter", ("all_gather", "reduce_scatter"), now, "joined", everyone)
        now = "joined"
    if cut.ep > 1 and ffn.experts > cut.ep:
        yield _moved(writer, "ffn.sort", (now,), "sorted", rows_of(writer, ffn), hidden)
        now = "sorted"
    return now


def _experts(writer: Writer, ffn: MoeFfn, read: str) -> Iterator[TapeNode]:
    """Two grouped GEMMs, one matrix per expert of this rank, with the gated activation between."""
    cut, hidden, rows = writer.cut, writer.model.hidden, rows_of(writer, ffn)
    inner = ffn.inner // cut.expert_tp
    up = {"expert.gate": inner, "expert.up": inner} if ffn.gated else {"expert.up": inner}
    yield grouped(writer, "ffn.experts.up", ffn, read, up, hidden)
    if ffn.gated:
        yield from writer.gate("ffn.experts", inner, ("expert.gate", "expert.up"), "expert.active", rows)
    else:
        plain, reads = writer.style.plain, ("expert.up",)
        yield writer.rowed("ffn.experts.activation", plain, inner, reads, "expert.active", True, rows)
    yield grouped(writer, "ffn.experts.down", ffn, "expert.active", {"given": hidden}, inner)


def grouped(writer: Writer, name: str, ffn: MoeFfn, read: str, widths: dict[str, int], k: int) -> TapeNode:
    """One GEMM for each expert of the rank, over equal parts of the rows."""
    cut, experts, n = writer.cut, ffn.experts // writer.cut.ep, sum(widths.values())
    rows = rows_of(writer, ffn)
    each = Rows("tokens", rows.factor / experts)
    dtype, back = writer.matrix, writer.style.gradient_dtype
    writer.sizes |= {written: size * writer.value * rows.factor for written, size in widths.items()}

    def gemm(name: str, m: Rows | int, n: int, k: Rows | int, out: str = "bf16") -> Op:
        return Gemm(name=name, m=m, n=n, k=k, dtype=dtype, batch=experts, out_dtype=out)

    parameters = float(experts * n * (k + ffn.bias))
    node = TapeNode(
        name=name,
        forward=(gemm(name, each, n, k),),
        by_input=(gemm(f"{name}.by_input", each, k, n),),
        by_weight=(gemm(f"{name}.by_weight", n, k, each, back),),
        reads=(read,),
        writes=tuple(widths),
        keeps=(read,),
        parameters=parameters,
        experts=parameters,
    )
    return writer.narrowed(node, n, k, rows) if cut.matrix and cut.matrix != cut.dtype else node


def _combine(writer: Writer, ffn: MoeFfn, written: str) -> Iterator[TapeNode]:
    """Rows sent back to the ranks of their tokens, and the rows of a token added up."""
    cut, hidden = writer.cut, writer.model.hidden
    now = "given"
    if cut.ep > 1 and ffn.experts > cut.ep:
        yield _moved(writer, "ffn.unsort", (now,), "unsorted", rows_of(writer, ffn), hidden)
        now = "unsorted"
    rows = Rows("tokens", ffn.topk * cut.share)
    if cut.expert_tp > 1:
        everyone = rows_of(writer, ffn)
        node = _sent(writer, "ffn.combine.leave", ("reduce_scatter", "all_gather"), now, "parted", everyone)
        writer.sizes["parted"] = hidden * writer.value * rows.factor
        yield node
        now = "parted"
    if cut.ep > 1:
        yield _sent(writer, "ffn.combine", EXCHANGED, now, "returned", rows, cut.ep, _routing(writer, ffn))
        now = "returned"
    yield _moved(writer, "ffn.unpermute", (now,), written, rows, hidden, cut.share)


def _moved(
    writer: Writer, name: str, reads: tuple[str, ...], written: str, rows: Rows, hidden: int, share: float = 0.0
) -> TapeNode:
    """Rows put in another order; `share` of tokens where several rows of one are added up."""
    writer.sizes[written] = hidden * writer.value * (share or rows.factor)
    size = hidden * writer.value
    op = Elementwise(name=name, rows=rows, read_per_row=size, written_per_row=size)
    back = replace(op, name=f"{name}.by_input")
    return TapeNode(name=name, forward=(op,), by_input=(back,), reads=reads, writes=(written,))


def _routing(writer: Writer, ffn: MoeFfn) -> TokenRouting | None:
    """What decides how many nodes a token is sent to, where that counts."""
    if not writer.style.routes_once:
        return None
    return TokenRouting(experts=ffn.experts, topk=ffn.topk, groups=ffn.groups, topk_groups=ffn.topk_groups)


def _sent(
    writer: Writer, name: str, ways: tuple[str, str], read: str, written: str, rows: Rows, ep: int = 0,
    routed: TokenRouting | None = None,
) -> TapeNode:  # fmt: skip
    """Rows to other ranks: those that hold other experts, or where `ep` is 0 those with parts of the same ones. `ways`
    are the collectives there and, for gradients, back."""
    there, back = ways
    cut, size = writer.cut, writer.model.hidden * writer.value * rows.factor
    ranks, stride = (ep, cut.expert_tp) if ep else (cut.expert_tp, 1)
    writer.sizes[written] = size

    def exchange(name: str, op: str) -> Collective:
        found = writer.exchange(name, op, size, ranks, stride)
        return replace(found, routed=routed) if op == "all_to_all" else found

    return TapeNode(
        name=name,
        forward=(exchange(name, there),),
        by_input=(exchange(f"{name}.by_input", back),),
        reads=(read,),
        writes=(written,),
    )


def _shared(writer: Writer, ffn: MoeFfn, read: str) -> Iterator[TapeNode]:
    """Experts that every token visits, beside the others, and both results added."""
    whole = yield from writer.enter("ffn.shared", read)
    names = ("shared.gate", "shared.up", "shared.active", "shared.fed")
    yield from _dense(writer, "ffn.shared", DenseFfn(inner=ffn.shared_inner, gated=ffn.gated), whole, names)
    fed = yield from writer.summed("ffn.shared", "shared.fed")
    hidden, rows, share = writer.model.hidden, writer.cut.rows, writer.cut.share
    if ffn.shared_gate:
        score = writer.linear("ffn.shared_score", (read,), {"shared.score": 1}, hidden, False, rows, writer.cut.dtype)
        yield replace(score, by_input=score.by_input + writer.total("ffn.shared_score", hidden, rows))
        weigh = writer.style.product
        reads = (fed, "shared.score")
        yield writer.elementwise(
            "ffn.shared_weigh", weigh, hidden, reads, {"shared.weighed": hidden * share}, True, rows
        )
        fed = "shared.weighed"
    node = writer.elementwise(
        "ffn.add", writer.style.total, hidden, ("mixed.fed", fed), {"fed": hidden * share}, False, rows
    )
    yield replace(node, by_input=(), passes_on=True)
