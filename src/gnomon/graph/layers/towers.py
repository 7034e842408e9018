"""Stems and tails of networks that begin with something else than tokens: patches of an image, frames of sound; and of
what leads from a tower to its decoder."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

from gnomon.graph.layers.parts import is_lasting, once, one
from gnomon.graph.layers.writer import Writer
from gnomon.graph.ops import TOKENS, Elementwise, Rows
from gnomon.graph.tape import RESULT, SOURCE, TapeNode
from gnomon.spec import ConvolutionLayer, Linear, Norm
from gnomon.spec.parts import Part, count


def stem(writer: Writer, patches: Rows) -> Iterator[TapeNode]:
    """Data to the stream: convolutions and matrices end in so many rows, and convolutions before the last make as many
    more as it skips. Without either, tokens are looked up in a table that the decoder holds."""
    writer.sizes[SOURCE] = 0.0
    found = list(writer.model.stem)
    yield from _once(writer, found, "stem")
    lasting, read, steps = [part for part in found if is_lasting(part)], "", _steps(found)
    if not any(isinstance(part, ConvolutionLayer | Linear) for part in lasting):
        read = "embedded" if lasting else RESULT
        yield writer.elementwise("embedding", writer.style.embedding, writer.model.hidden, (), {read: 1.0}, False)
        writer.sizes[read] = writer.stream
    matrices = [part for part in lasting if isinstance(part, Linear)]
    for part in found:
        name = f"stem.{part.name}"
        to = RESULT if lasting and part is lasting[-1] else name
        after = steps.pop(0) if isinstance(part, ConvolutionLayer) else 1
        rows = Rows(patches.of, patches.factor * after) if isinstance(part, ConvolutionLayer | Linear) else TOKENS
        bent = isinstance(part, ConvolutionLayer) and (part.stride > 1 or after > 1)
        if bent or (part in matrices and part is not matrices[-1]):
            yield from _bent(writer, part, (read,) if read else (), to, rows)
        elif is_lasting(part) or not isinstance(part, Linear):
            yield from one(writer, part, name, (read,) if read else (), to, rows)
        read = to if part in lasting else read
    writer.sizes[RESULT] = writer.stream


def _bent(writer: Writer, part: Part, reads: tuple[str, ...], written: str, rows: Rows) -> Iterator[TapeNode]:
    """With an activation behind it, as between two matrices or convolutions."""
    assert isinstance(part, Linear | ConvolutionLayer)
    name = f"stem.{part.name}"
    yield from one(writer, part, name, reads, f"{name}.made", rows)
    sizes = {written: part.outputs * writer.cut.per_token(rows)}
    plain = writer.style.plain
    yield writer.elementwise(f"{name}.activation", plain, part.outputs, (f"{name}.made",), sizes, True, rows)


def _steps(found: list[Part]) -> list[int]:
    """How many rows of each convolution become one of the last."""
    strides = [part.stride for part in found if isinstance(part, ConvolutionLayer)]
    after = [1]
    for stride in reversed(strides[1:]):
        after.insert(0, after[0] * stride)
    return after


def _once(writer: Writer, found: list[Part], prefix: str) -> Iterator[TapeNode]:
    """Matrices on one row of each sequence, one after the other."""
    for part in found:
        if isinstance(part, Linear) and part.once:
            made = once(writer, part, f"{prefix}.{part.name}", writer.vector)
            yield replace(made, parameters=float(count(part.tensors())))


def tail(writer: Writer, left: Rows, pooled: bool) -> Iterator[TapeNode]:
    """The stream to what the decoder reads."""
    nodes = list(_behind_layers(writer, left, pooled))
    lasting = [node for node in nodes if node.writes]
    if not lasting:
        yield TapeNode(name="tail", reads=(SOURCE,), writes=(RESULT,), passes_on=True)
        return
    made = lasting[-1].writes[0]
    writer.sizes[RESULT] = writer.sizes[made]

    def renamed(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(RESULT if name == made else name for name in names)

    for node in nodes:
        yield replace(node, reads=renamed(node.reads), writes=renamed(node.writes), keeps=renamed(node.keeps))


def _behind_layers(writer: Writer, left: Rows, pooled: bool) -> Iterator[TapeNode]:
    """Matrices work on the tokens that are left, norms on as many numbers as there are."""
    hidden, made = writer.model.hidden, SOURCE
    if writer.model.final_norm:
        yield writer.norm("last_norm", SOURCE, "normed")
        made = "normed"
    found = list(writer.model.tail)
    matrices = [part for part in found if isinstance(part, Linear)]
    if pooled and matrices and matrices[0].inputs == hidden:
        yield _pool(writer, made)
        made = "pooled"
    for part in found:
        made = yield from _behind(writer, part, made, left, last=not matrices or part is matrices[-1])


def _behind(writer: Writer, part: Part, read: str, left: Rows, *, last: bool) -> Generator[TapeNode, None, str]:
    name = f"tail.{part.name}"
    rows = TOKENS if isinstance(part, Norm) and part.width == writer.model.hidden else left
    yield from one(writer, part, name, (read,), name, rows)
    if isinstance(part, Norm):
        writer.sizes[name] = part.width * writer.value * writer.cut.per_token(rows)
    if not isinstance(part, Linear) or last:
        return name if is_lasting(part) else read
    bent, size = f"{name}.bent", part.outputs * writer.cut.per_token(left)
    yield writer.elementwise(f"{name}.activation", writer.style.plain, part.outputs, (name,), {bent: size}, True, left)
    return bent


def _pool(writer: Writer, read: str) -> TapeNode:
    size = writer.model.hidden * writer.value
    op = Elementwise(name="tail.pool", rows=TOKENS, read_per_row=size, written_per_row=0.0)
    writer.sizes["pooled"] = 0.0
    return TapeNode(name="tail.pool", forward=(op,), reads=(read,), writes=("pooled",))
