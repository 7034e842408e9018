"""What comes before the layers and after them: the embedding, and the head with the loss or the sampler."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

from gnomon.graph.formats import gemm_dtype
from gnomon.graph.layers.modulation import shifted
from gnomon.graph.layers.parts import once, parts
from gnomon.graph.layers.towers import stem
from gnomon.graph.layers.writer import Writer
from gnomon.graph.ops import LOGITS, TOKENS, Elementwise
from gnomon.graph.style import Stream
from gnomon.graph.tape import RESULT, SOURCE, TapeNode
from gnomon.spec import Embedding, Linear

COMPARED = Stream(2, 0, 2, 1)
"""What is predicted beside its target, and the gradient of that."""
LOSS_BYTES = 4.0
"""The loss is taken in fp32, and so is the choice of the next token."""


def embedding(writer: Writer) -> Iterator[TapeNode]:
    """Ranks hold rows of the table; each fills in what it has, and the sum makes it whole."""
    model, cut, style = writer.model, writer.cut, writer.style
    if not model.vocab:
        yield from stem(writer, TOKENS)
        return
    writer.sizes[SOURCE] = 0.0
    vocab, channels = -(-model.vocab // cut.tp), model.embedding_width or model.hidden
    made = "embedded" if any(not isinstance(part, Embedding) or part.rows > 1 for part in model.stem) else RESULT
    written = {"found": channels} if cut.tp > 1 else {made: channels * writer.wide}
    look_up = writer.elementwise("embedding", style.embedding, channels, (), written, False)
    table = Elementwise(
        name="embedding.by_weight", rows=vocab, read_per_row=0.0, written_per_row=channels * writer.value,
        efficiency=style.embedding.gradient_efficiency,
    )  # fmt: skip
    yield replace(look_up, wgrad=(table,), parameters=vocab * channels + model.learned_positions * model.hidden)
    if cut.tp > 1:
        kind = "reduce_scatter" if cut.sequence_parallel else "all_reduce"
        name = "embedding.all_reduce" if cut.paged else "embedding.leave"
        writer.sizes[made] = writer.stream
        yield writer.collective(name, kind, ("found",), (made,), channels)
    yield from parts(writer, model.stem, "stem", made, RESULT)


def head(writer: Writer, logits: bool = False) -> Iterator[TapeNode]:
    """The stream to the loss, or to logits: of all tokens, or of those that `logits` are asked of."""
    writer.sizes[RESULT] = 0.0
    model, cut, style = writer.model, writer.cut, writer.style
    made = SOURCE
    if model.final_norm or cut.paged:
        yield writer.norm("head.norm", SOURCE, "normed", style.last_norm)
        made = "normed"
    if model.blocks[0].modulated:
        made = yield from _modulated(writer, made)
    made = yield from parts(writer, model.tail, "tail", made, rows=LOGITS if cut.paged else None)
    if not model.vocab or not model.has_head:
        yield from _compared(writer, made)
        return
    yield from logits_and_loss(writer, made, logits)


def logits_and_loss(writer: Writer, read: str, logits: bool = False) -> Iterator[TapeNode]:
    model, cut = writer.model, writer.cut
    vocab, channels = -(-model.vocab // cut.tp), model.embedding_width or model.hidden
    rows = LOGITS if cut.paged or logits else TOKENS
    whole = yield from writer.enter("head", read)
    dtype = gemm_dtype(model.head_format) if model.head_format and cut.paged else cut.dtype
    scores = writer.as_stored(writer.linear("head.logits", "", whole, {"logits": vocab}, channels, rows, dtype=dtype))
    yield replace(scores, parameters=0.0 if model.tied_embeddings else scores.parameters)
    if cut.paged:
        yield from _sample(writer)
    elif not cut.cached:
        yield from _trained(writer, vocab)


def _modulated(writer: Writer, read: str) -> Generator[TapeNode, None, str]:
    """The last shift and scale, whose vectors are made once more of the time and the class where each layer makes its
    own (DiT)."""
    own = (part for part in writer.model.blocks[0].extras if isinstance(part, Linear))
    for part in own:
        if part.outputs == writer.model.hidden:
            yield replace(once(writer, part, f"head.{part.name}", writer.vector), parameters=0.0)
    return read if writer.cut.cached else (yield from shifted(writer, "head", read))


def _compared(writer: Writer, read: str) -> Iterator[TapeNode]:
    """The loss of what is no token, beside its target: of noise, of pixels, of a vector for a text."""
    if writer.cut.cached:
        return
    size = writer.sizes[read]
    writer.sizes["error"] = 0.0
    loss = writer.elementwise("head.loss", COMPARED, size / writer.value, (read,), {}, True)
    yield replace(loss, writes=(RESULT,))


def _sample(writer: Writer) -> Iterator[TapeNode]:
    """In fp32: written once, then read to find the largest, to sum, and to draw."""
    vocab = writer.model.vocab
    if writer.cut.tp > 1:
        gather = replace(writer.exchange("head.all_gather", "all_gather", vocab * writer.value), rows=LOGITS)
        yield TapeNode(name=gather.name, forward=(gather,))
    wide = vocab * LOSS_BYTES
    drawn = Elementwise(name="head.sample", rows=LOGITS, read_per_row=3 * wide, written_per_row=wide)
    yield TapeNode(name=drawn.name, forward=(drawn,))


def _trained(writer: Writer, vocab: int) -> Iterator[TapeNode]:
    """Logits to the loss."""
    read = "logits"
    if writer.model.head_cap is not None:
        capped = writer.elementwise("head.cap", writer.style.plain, vocab, (read,), {"capped": vocab}, False)
        yield replace(capped, keeps=("capped",))
        read = "capped"
    yield from _loss(writer, vocab, read)


def _loss(writer: Writer, vocab: int, read: str) -> Iterator[TapeNode]:
    style = writer.style
    if writer.cut.tp > 1:
        # Largest value, target's value and sum of each row are all-reduced: three numbers per token.
        writer.sizes["agreed"] = 0.0
        yield TapeNode(name="head.agree", forward=(writer.exchange("head.agree", "all_reduce", 3 * LOSS_BYTES),))
    if style.fused_loss:
        loss = writer.elementwise("head.loss", style.loss, vocab, (read,), {}, True)
        yield replace(loss, passes_on=style.loss_in_place, writes=(RESULT,))
        return
    writer.sizes |= {"wide": vocab * LOSS_BYTES, "likely": vocab * LOSS_BYTES}
    yield replace(writer.elementwise("head.widen", style.widen, vocab, (read,), {}, False), writes=("wide",))
    loss = writer.elementwise("head.loss", style.loss, vocab, ("wide",), {}, False)
    held = vocab * writer.value if style.holds_logits else 0.0
    yield replace(loss, writes=("likely",), keeps=("likely",), scratch=held, gradient_scratch=vocab * LOSS_BYTES)
