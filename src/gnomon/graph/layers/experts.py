"""Experts of a mixture: which tokens visit them, how they get there, and the kernels that run them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

from gnomon.graph.dtypes import width
from gnomon.graph.layers.writer import Writer
from gnomon.graph.ops import Collective, Elementwise, Experts, Gemm, Op, Rows
from gnomon.graph.routing import TokenRouting
from gnomon.graph.streams import streamed
from gnomon.graph.style import Stream
from gnomon.graph.tape import COMBINE, DISPATCH, TapeNode
from gnomon.spec import MoeFfn
from gnomon.spec.training import ALL_TO_ALL, ONCE_NARROW

SCORE_BYTES, MAP_BYTES = 4.0, 1.0
"""The router's shares are fp32, and a byte says whether a token visits an expert."""
CHOICE_BYTES = 8
"""Of an expert's number and its weight, in four bytes each, which travel with a token."""
MOVED = Stream(1, 1, 1, 1)
"""A row read and written, there and back."""
SCALE_BLOCK, SCALE_BYTES = 128, 4
"""Channels that share a scale, and its bytes, where a token travels in eight bits."""


def one_kernel(writer: Writer, ffn: MoeFfn, read: str, written: str) -> Iterator[TapeNode]:
    """Experts as serving engines run them: tokens of all data-parallel ranks meet at the experts, which are spread over
    the ranks of both kinds (expert parallel), or cut among them, and one kernel does the rest.

    Tensor-parallel ranks hold the same tokens. Where they split them first (`Paged.sequence_parallel_moe`), each
    routes its own; else all do the same, and reduce the results.
    """
    cut, how, hidden, rows = writer.cut, writer.cut.paged, writer.model.hidden, writer.cut.routed
    assert how is not None
    dtype = ffn.router_dtype or cut.dtype
    if dtype != cut.dtype:
        wider = Stream(1, width(dtype) / writer.value, 0, 0)
        yield writer.elementwise("ffn.router.widen", wider, hidden, (read,), {}, False, rows)
    yield writer.linear("ffn.router", "", read, {"ffn.scores": ffn.experts}, hidden, rows, dtype=dtype)
    chosen = Stream(1, 2 * ffn.topk / ffn.experts, 0, 0)
    yield writer.elementwise("ffn.choose", chosen, ffn.experts, ("ffn.scores",), {}, False, rows)
    yield from _met(writer, DISPATCH, "all_gather", _dispatched_bytes(writer, ffn))
    stored = writer.stored("expert_up")
    kernel = Experts(
        name="ffn.experts",
        tokens=Rows("tokens", how.gathered),
        hidden=hidden,
        inner=ffn.inner // (cut.tp * how.dp if cut.ep == 1 else 1),
        experts=ffn.experts,
        topk=ffn.topk,
        dtype=writer.dtype_of("expert_up"),
        padded_to=stored.padded_to if stored else (1, 1),
        ranks=cut.ep,
    )
    yield TapeNode(name=kernel.name, forward=(kernel,), reads=(read,), writes=(written,))
    yield from _met(writer, COMBINE, "reduce_scatter", hidden * writer.value)


def joined(writer: Writer) -> Iterator[TapeNode]:
    """The results of tensor-parallel ranks: summed, or gathered where each has those of its own tokens."""
    cut = writer.cut
    if cut.paged and cut.paged.sequence_parallel_moe:
        yield writer.collective("ffn.all_gather", "all_gather", ("fed",), ())
    else:
        yield from writer.summed("ffn", "fed")


def _met(writer: Writer, name: str, op: str, bytes_per_token: float) -> Iterator[TapeNode]:
    """Tokens of the data-parallel ranks brought together, or their sums taken apart again.

    Ranks stand as vLLM orders them: tensor-parallel ones next to each other, then stages, then data-parallel ones.
    """
    cut, how = writer.cut, writer.cut.paged
    if how is None or how.dp == 1:
        return
    split = how.sequence_parallel_moe
    ranks, stride = (cut.tp * how.dp, 1) if split else (how.dp, cut.tp * how.pp)
    found = writer.exchange(name, op, bytes_per_token, ranks, stride)
    yield TapeNode(name=name, forward=(replace(found, rows=Rows("tokens", how.gathered)),))


def _dispatched_bytes(writer: Writer, ffn: MoeFfn) -> float:
    """A token's channels, quantised before they leave where the experts are, and its choices."""
    narrow = writer.cut.paged is not None and writer.cut.paged.dtype == "fp8"
    channels = width("fp8") + SCALE_BYTES / SCALE_BLOCK if narrow else writer.value
    return writer.model.hidden * channels + ffn.topk * CHOICE_BYTES


def grouped(writer: Writer, ffn: MoeFfn, read: str, written: str) -> Iterator[TapeNode]:
    """Experts as training engines run them: tokens sent to where their experts are, and grouped GEMMs.

    Tokens choose experts evenly, as load-balancing losses aim for, unless a plan says how uneven they are: the rank is
    then the one that gets most, whose experts get as many each. Shares are multiplied in with the activation, so that
    what experts give need not stay.
    """
    hidden, rows, given = writer.model.hidden, writer.cut.rows, written
    yield from _route(writer, ffn, read)
    if ffn.latent:
        yield writer.linear("ffn.fold", "fold", read, {"folded": ffn.latent}, hidden, rows)
        read, given = "folded", "mixed.folded"
    arrived = yield from _dispatch(writer, ffn, read)
    for place, node in enumerate(_experts(writer, ffn, arrived)):
        yield replace(node, awaited=place == 0 and writer.cut.ep == 1 and _awaits(writer))
    yield from _combine(writer, ffn, given)
    if ffn.latent:
        yield writer.linear("ffn.unfold", "unfold", given, {written: hidden}, ffn.latent, rows)


def _wide(writer: Writer, ffn: MoeFfn) -> int:
    """Channels that experts work on."""
    return ffn.latent or writer.model.hidden


def rows_of(writer: Writer, ffn: MoeFfn) -> Rows:
    """Rows that the busiest rank's experts work on: as many as its tokens ask for where all get as many, and those of
    the ranks that share its experts' matrices."""
    return Rows("tokens", _exchanged(writer, ffn).factor * writer.cut.expert_tp)


def _sent_rows(writer: Writer, ffn: MoeFfn) -> Rows:
    """Copies of its tokens that a rank sends."""
    return Rows("tokens", ffn.topk * writer.cut.share * writer.cut.sent_rows)


def _exchanged(writer: Writer, ffn: MoeFfn) -> Rows:
    """Copies that the busiest rank gets, for whose exchange the others wait."""
    return Rows("tokens", ffn.topk * writer.cut.share * writer.cut.busiest_rows)


def _route(writer: Writer, ffn: MoeFfn, read: str) -> Iterator[TapeNode]:
    """Scores in the working format, then fp32 shares of the chosen and a map of them."""
    cut, n = writer.cut, ffn.experts
    gate = writer.linear(
        "ffn.router", "", read, {"ffn.scores": n}, writer.model.hidden, cut.rows, ffn.router_bias, cut.dtype
    )
    yield replace(gate, parameters=gate.parameters + n * ffn.correction)
    if writer.style.choose is not None:
        node = writer.elementwise("ffn.choose", writer.style.choose, n, ("ffn.scores",), {}, False, cut.rows)
        writer.sizes |= {
            "ffn.shares": n * SCORE_BYTES * cut.share,
            "ffn.chosen": ffn.topk * writer.style.choice_bytes * cut.share,
        }
        yield replace(node, writes=("ffn.shares", "ffn.chosen"), keeps=("ffn.shares", "ffn.chosen"))
        return
    writer.sizes |= {"ffn.shares": n * SCORE_BYTES * cut.share, "ffn.map": n * MAP_BYTES * cut.share}
    read_bytes, made = n * writer.value, n * (SCORE_BYTES + MAP_BYTES)
    chosen = Elementwise(name="ffn.choose", rows=cut.rows, read_per_row=read_bytes, written_per_row=made)
    back = replace(chosen, name="ffn.choose.by_input", read_per_row=made, written_per_row=read_bytes)
    sides = zip(("", ".by_input"), writer.style.routing_kernels, strict=True)
    there, again = (_small_kernels(writer, f"ffn.choose.small{side}", n, many) for side, many in sides)
    yield TapeNode(
        name="ffn.choose",
        forward=(chosen, *there),
        dgrad=(back, *again),
        reads=("ffn.scores",),
        writes=("ffn.shares", "ffn.map"),
        keeps=("ffn.shares", "ffn.map"),
    )


def _small_kernels(writer: Writer, name: str, experts: int, many: int) -> tuple[Op, ...]:
    """Of a router and a dispatcher, each over a byte for every token and expert."""
    rows, each = writer.cut.rows, experts * MAP_BYTES
    small = Elementwise(name=name, rows=rows, read_per_row=each, written_per_row=each, count=many)
    return (small,) if many else ()


def _awaits(writer: Writer) -> bool:
    """Whether the host needs to know how many rows each rank and expert gets."""
    return writer.style.awaits_counts and not writer.cut.pad_to_capacity


def _dispatch(writer: Writer, ffn: MoeFfn, read: str) -> Generator[TapeNode, None, str]:
    """A row for each token and expert it visits, in the order of experts, sent to where they are."""
    cut, hidden = writer.cut, _wide(writer, ffn)
    if cut.sent_once:
        return (yield from _dispatch_once(writer, ffn, read))
    now = "permuted"
    if writer.style.permute is None:
        kernel = _scattered(writer, back=True)
        yield _moved(writer, "ffn.permute", read, now, _sent_rows(writer, ffn), hidden, kernel=kernel)
    else:
        yield writer.rowed("ffn.permute", writer.style.permute, hidden, (read,), now, False, _sent_rows(writer, ffn))
    if cut.ep > 1:
        node = _sent(writer, DISPATCH, "all_to_all", now, "arrived", _exchanged(writer, ffn), ffn)
        yield replace(node, awaited=_awaits(writer))
        now = "arrived"
    if cut.expert_tp > 1:
        yield _sent(writer, "ffn.dispatch.enter", "all_gather", now, "joined", rows_of(writer, ffn), ffn)
        now = "joined"
    if cut.ep > 1 and ffn.experts > cut.ep:
        yield _moved(writer, "ffn.sort", now, "sorted", rows_of(writer, ffn), hidden)
        now = "sorted"
    return now


def _experts(writer: Writer, ffn: MoeFfn, read: str) -> Iterator[TapeNode]:
    """Two grouped GEMMs, one matrix per expert of this rank, with the activation between."""
    hidden, rows, inner = _wide(writer, ffn), rows_of(writer, ffn), ffn.inner // writer.cut.expert_tp
    up = {"expert.gate": inner, "expert.up": inner} if ffn.gated else {"expert.up": inner}
    for matrices in [up] if writer.style.joined else [{name: inner} for name in up]:
        name = "ffn.experts.up" if "expert.up" in matrices else "ffn.experts.gate"
        yield _gemms(writer, name, ffn, read, matrices, hidden)
    if ffn.gated:
        yield from writer.gate("ffn.experts.", inner, ("expert.gate", "expert.up"), "expert.active", rows)
    else:
        plain, reads = writer.style.plain, ("expert.up",)
        yield writer.rowed("ffn.experts.activation", plain, inner, reads, "expert.active", True, rows)
    yield _gemms(writer, "ffn.experts.down", ffn, "expert.active", {"given": hidden}, inner)


def _gemms(writer: Writer, name: str, ffn: MoeFfn, read: str, widths: dict[str, int], k: int) -> TapeNode:
    """One GEMM for each expert of the rank, over equal parts of the rows."""
    experts, n, rows = ffn.experts // writer.cut.ep, sum(widths.values()), rows_of(writer, ffn)
    each, dtype = Rows("tokens", rows.factor / experts), writer.dtype_of("expert_up")
    writer.sizes |= {written: size * writer.value * rows.factor for written, size in widths.items()}
    parameters = float(experts * n * (k + ffn.bias))
    gemms = Gemm(name=name, m=each, n=n, k=k, dtype=dtype, batch=experts)
    return TapeNode(
        name=name,
        forward=(replace(gemms, separate=writer.style.separate_experts),),
        reads=(read,),
        writes=tuple(widths),
        keeps=(read,),
        parameters=parameters,
        experts=parameters,
        busiest=writer.cut.busiest_rows / writer.cut.useful_rows,
    )


def _combine(writer: Writer, ffn: MoeFfn, written: str) -> Iterator[TapeNode]:
    """Rows sent back to the ranks of their tokens, and the rows of a token added up."""
    cut, hidden = writer.cut, _wide(writer, ffn)
    if cut.sent_once:
        yield from _combine_once(writer, ffn, written)
        return
    now = "given"
    if cut.ep > 1 and ffn.experts > cut.ep:
        yield _moved(writer, "ffn.unsort", now, "unsorted", rows_of(writer, ffn), hidden)
        now = "unsorted"
    rows = _exchanged(writer, ffn)
    if cut.expert_tp > 1:
        node = _sent(writer, "ffn.combine.leave", "reduce_scatter", now, "parted", rows_of(writer, ffn), ffn)
        writer.sizes["parted"] = hidden * writer.value * rows.factor
        yield node
        now = "parted"
    if cut.ep > 1:
        yield _sent(writer, COMBINE, "all_to_all", now, "returned", rows, ffn)
        now, rows = "returned", _sent_rows(writer, ffn)
        writer.sizes[now] = hidden * writer.value * rows.factor
    if writer.style.unpermute is None:
        yield _moved(writer, "ffn.unpermute", now, written, rows, hidden, cut.share, _scattered(writer, back=False))
        return
    node = writer.rowed("ffn.unpermute", writer.style.unpermute, hidden, (now,), "ffn.given", False, rows)
    writer.sizes[written] = hidden * writer.value * cut.share
    yield replace(node, writes=(written, "ffn.given"), keeps=("ffn.given",))


def _dispatch_once(writer: Writer, ffn: MoeFfn, read: str) -> Generator[TapeNode, None, str]:
    """A token is sent once to each rank that has some of its experts, and copied there (DeepEP): as it is, or cast to
    eight bits with a scale per block, and so is the gradient of what comes back."""
    size = _wide(writer, ffn) * writer.value
    there = _once(writer, ffn, DISPATCH, writer.cut.dispatch == ONCE_NARROW)
    back = _once(writer, ffn, "ffn.dispatch.by_input", narrow=False)
    writer.sizes["arrived"] = size * _exchanged(writer, ffn).factor * _first_copies(writer, ffn)
    awaited = _awaits(writer)
    yield TapeNode(name=DISPATCH, forward=there, dgrad=back, reads=(read,), writes=("arrived",), awaited=awaited)
    rows = rows_of(writer, ffn)
    copied = Elementwise(
        name="ffn.sort", rows=rows, read_per_row=size * _first_copies(writer, ffn), written_per_row=size
    )
    writer.sizes["sorted"] = size * rows.factor
    yield TapeNode(name="ffn.sort", forward=(copied,), reads=("arrived",), writes=("sorted",))
    return "sorted"


def _combine_once(writer: Writer, ffn: MoeFfn, written: str) -> Iterator[TapeNode]:
    """What a rank's experts give for a token is added up before it is sent back."""
    size, first = _wide(writer, ffn) * writer.value, _first_copies(writer, ffn)
    rows = rows_of(writer, ffn)
    summed = Elementwise(name="ffn.unsort", rows=rows, read_per_row=size, written_per_row=size * first)
    writer.sizes["unsorted"], writer.sizes[written] = size * rows.factor * first, size * writer.cut.share
    yield TapeNode(name="ffn.unsort", forward=(summed,), reads=("given",), writes=("unsorted",))
    there = _once(writer, ffn, COMBINE, narrow=False)
    back = _once(writer, ffn, "ffn.combine.by_input", writer.cut.dispatch == ONCE_NARROW)
    yield TapeNode(name=COMBINE, forward=there, dgrad=back, reads=("unsorted",), writes=(written,))


def _first_copies(writer: Writer, ffn: MoeFfn) -> float:
    """Of the copies of a token, those that go to different ranks."""
    return _routing(ffn).reached(writer.cut.ep) / ffn.topk


def _once(writer: Writer, ffn: MoeFfn, name: str, narrow: bool) -> tuple[Op, ...]:
    """An exchange in which each rank gets a token once, and the cast before it."""
    cut, wide = writer.cut, _wide(writer, ffn)
    each = wide * (width("fp8") + SCALE_BYTES / SCALE_BLOCK if narrow else writer.value)
    payload = each * _exchanged(writer, ffn).factor
    sent = replace(
        writer.exchange(name, "all_to_all", payload, cut.ep, 1), routed=replace(_routing(ffn), each_rank=True)
    )
    if not narrow:
        return (sent,)
    cast = Elementwise(name=f"{name}.cast", rows=cut.rows, read_per_row=wide * writer.value, written_per_row=each)
    return (cast, sent)


def _routing(ffn: MoeFfn) -> TokenRouting:
    return TokenRouting(experts=ffn.experts, topk=ffn.topk, groups=ffn.groups, topk_groups=ffn.topk_groups)


def _moved(
    writer: Writer, name: str, read: str, written: str, rows: Rows, hidden: int, share: float = 0.0,
    kernel: Stream = MOVED,
) -> TapeNode:  # fmt: skip
    """Rows put in another order by one kernel and back by another; `share` of tokens where several rows of one are
    added up."""
    size = hidden * writer.value
    writer.sizes[written] = size * (share or rows.factor)
    forward = streamed(name, kernel, size, rows)
    return TapeNode(name=name, forward=(forward,), kernel=(kernel, size), reads=(read,), writes=(written,))


def _scattered(writer: Writer, *, back: bool) -> Stream:
    """Rows added up where they belong: by atomics, in steps whose sizes are always the same."""
    rate = writer.style.scattered if writer.cut.pad_to_capacity else None
    if rate is None:
        return MOVED
    return replace(MOVED, gradient_efficiency=rate) if back else replace(MOVED, efficiency=rate)


def _sent(writer: Writer, name: str, op: str, read: str, written: str, rows: Rows, ffn: MoeFfn) -> TapeNode:
    """Rows to other ranks: those that hold other experts (an all-to-all), or those with parts of the same ones."""
    cut, size = writer.cut, _wide(writer, ffn) * writer.value * rows.factor
    ranks, stride = (cut.ep, cut.expert_tp) if op == "all_to_all" else (cut.expert_tp, 1)
    writer.sizes[written] = size
    found: Collective = writer.exchange(name, op, size, ranks, stride)
    if op == "all_to_all" and writer.style.routes_once and cut.dispatch != ALL_TO_ALL:
        found = replace(found, routed=_routing(ffn))
    return TapeNode(name=name, forward=(found,), reads=(read,), writes=(written,))
