"""Feed-forwards: dense, and mixtures of experts. What sends tokens to experts and runs them is in `experts`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gnomon.graph.layers import experts
from gnomon.graph.layers.writer import Writer
from gnomon.graph.ops import TOKENS, Rows
from gnomon.graph.tape import TapeNode
from gnomon.spec import DenseFfn, MoeFfn


def dense(writer: Writer, ffn: DenseFfn, read: str) -> Iterator[TapeNode]:
    """From the normed stream to `fed`, partial sums of which each tensor-parallel rank has one."""
    whole = yield from writer.enter("ffn", read)
    yield from _dense(writer, "ffn.", ffn, whole, "", ffn.inner // writer.cut.tp)


def _dense(
    writer: Writer, prefix: str, ffn: DenseFfn, read: str, names: str, inner: int, rows: Rows = TOKENS
) -> Iterator[TapeNode]:
    """`prefix` begins the names of its operators, `names` those of its tensors."""
    hidden, gate, up, active = writer.model.hidden, f"{names}gate", f"{names}up", f"{names}active"
    if not ffn.gated:
        yield writer.linear(f"{prefix}up", "up", read, {up: inner}, hidden, rows, ffn.bias)
        yield writer.elementwise(f"{prefix}activation", writer.style.plain, inner, (up,), {active: inner}, True, rows)
    else:
        widths = {gate: inner, up: inner}
        yield from writer.linears(prefix, read, widths, hidden, 2 * inner * ffn.bias, "up", rows)
        yield from writer.gate(prefix, inner, (gate, up), active, rows)
    yield writer.linear(f"{prefix}down", "down", active, {f"{names}fed": hidden}, inner, rows, ffn.bias)


def mixture(writer: Writer, ffn: MoeFfn, read: str) -> Iterator[TapeNode]:
    """From the normed stream to `fed`, full sums on every rank for its own tokens."""
    run = experts.one_kernel if writer.cut.paged else experts.grouped
    yield from run(writer, ffn, read, "mixed.fed" if ffn.shared_inner else "fed")
    if ffn.shared_inner:
        yield from _shared(writer, ffn, read)
    if writer.cut.paged:
        yield from experts.joined(writer)


def _shared(writer: Writer, ffn: MoeFfn, read: str) -> Iterator[TapeNode]:
    """Experts that every token visits, beside the others, and both results added. Tensor-parallel ranks that have
    split their tokens run them with unsharded weights."""
    cut, shape = writer.cut, DenseFfn(inner=ffn.shared_inner, gated=ffn.gated)
    if cut.paged:
        # Both are added in the kernel that sums a token's experts, and scored on the way.
        split = cut.paged.sequence_parallel_moe
        inner = ffn.shared_inner // (1 if split else cut.tp)
        yield from _dense(writer, "ffn.shared_", shape, read, "shared.", inner, cut.routed)
        return
    whole = yield from writer.enter("ffn.shared", read)
    yield from _dense(writer, "ffn.shared_", shape, whole, "shared.", ffn.shared_inner // cut.tp)
    fed = yield from writer.summed("ffn.shared", "shared.fed")
    hidden, rows, share = writer.model.hidden, cut.rows, cut.share
    if ffn.shared_gate:
        yield writer.linear("ffn.shared_score", "", read, {"shared.score": 1}, hidden, rows, dtype=cut.dtype)
        reads, weighed = (fed, "shared.score"), {"shared.weighed": hidden * share}
        yield writer.elementwise("ffn.shared_weigh", writer.style.product, hidden, reads, weighed, True, rows)
        fed = "shared.weighed"
    node = writer.elementwise(
        "ffn.add", writer.style.total, hidden, ("mixed.fed", fed), {"fed": hidden * share}, False, rows
    )
    yield replace(node, passes_on=True, kernel=None)
