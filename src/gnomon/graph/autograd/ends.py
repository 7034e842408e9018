"""What comes before the layers and after them, with gradients: the embedding, and the head with its loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gnomon.graph.autograd.writer import Writer
from gnomon.graph.ops import Elementwise
from gnomon.graph.tape import RESULT, SOURCE, TapeNode
from gnomon.spec.parts import count, part_tensors

LOSS_BYTES = 4.0
"""The loss is taken in fp32."""


def embedding(writer: Writer) -> Iterator[TapeNode]:
    model, cut, style = writer.model, writer.cut, writer.style
    writer.sizes[SOURCE] = 0.0
    vocab = -(-model.vocab // cut.tp)
    learned = model.learned_positions * model.hidden
    written = {"found": model.hidden} if cut.tp > 1 else {RESULT: model.hidden * writer.wide}
    look_up = writer.elementwise("embedding", style.embedding, model.hidden, (), written, False)
    size = model.hidden * writer.value
    table = Elementwise(
        name="embedding.by_weight", rows=vocab, read_per_row=0.0, written_per_row=size,
        efficiency=style.embedding.gradient_efficiency,
    )  # fmt: skip
    yield replace(look_up, by_weight=(table,), parameters=vocab * model.hidden + learned)
    if cut.tp > 1:
        leave, enter = ("reduce_scatter", "all_gather") if cut.sequence_parallel else ("all_reduce", "")
        yield writer.collective("embedding.leave", leave, enter, ("found",), (RESULT,))


def head(writer: Writer) -> Iterator[TapeNode]:
    writer.sizes[RESULT] = 0.0
    model, cut, style = writer.model, writer.cut, writer.style
    vocab = -(-model.vocab // cut.tp)
    yield writer.norm("head.norm", SOURCE, "normed", shared=False)
    whole = yield from writer.enter("head", "normed")
    logits = writer.linear("head.logits", (whole,), {"logits": vocab}, model.hidden, False, dtype=cut.dtype)
    own = 0.0 if model.tied_embeddings else logits.parameters
    yield replace(logits, parameters=own + count(part_tensors(model.tail)))
    if cut.tp > 1:
        # Largest value, target's value and sum of each row are all-reduced: three numbers per token.
        writer.sizes["agreed"] = 0.0
        yield TapeNode(name="head.agree", forward=(writer.exchange("head.agree", "all_reduce", 3 * LOSS_BYTES),))
    if style.fused_loss:
        loss = writer.elementwise("head.loss", style.loss, vocab, ("logits",), {}, True)
        yield replace(loss, passes_on=True, writes=(RESULT,))
        return
    writer.sizes |= {"wide": vocab * LOSS_BYTES, "likely": vocab * LOSS_BYTES}
    yield replace(writer.elementwise("head.widen", style.widen, vocab, ("logits",), {}, False), writes=("wide",))
    loss = writer.elementwise("head.loss", style.loss, vocab, ("wide",), {}, False)
    held = vocab * writer.value if style.holds_logits else 0.0
    yield replace(loss, writes=("likely",), keeps=("likely",), scratch=held, gradient_scratch=vocab * LOSS_BYTES)
