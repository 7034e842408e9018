"""Modulation: shifts, scales and gates of a sample, made of its time and its class, on the halves of a layer (adaLN);
and gates that are learned numbers."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace

from gnomon.graph.layers.parts import once, one
from gnomon.graph.layers.writer import Writer, bare
from gnomon.graph.ops import PREFILLS
from gnomon.graph.streams import streamed
from gnomon.graph.style import POINTWISE, Stream
from gnomon.graph.tape import TapeNode
from gnomon.spec import Linear
from gnomon.spec.parts import Part, count

SMALL_KERNELS = 17
"""Of a few numbers per sample, which make a layer's modulation from the time and the class: those of DiT in diffusers
0.42, counted by tracing it. They take no time of their own, but have to be launched."""


def made(writer: Writer, extras: Iterable[Part]) -> Iterator[TapeNode]:
    """The matrices that make a layer's modulation, once for each sample, and the tables it is looked up in."""
    for part in extras:
        name = f"layer.{part.name}"
        if isinstance(part, Linear) and part.once:
            yield replace(once(writer, part, name, writer.vector), parameters=float(count(part.tensors())))
        elif isinstance(part, Linear):
            yield from one(writer, part, name, (), name, writer.cut.rows)
        else:
            yield TapeNode(name=name, parameters=float(count(part.tensors())))
    if writer.cut.inference and writer.vector:
        hidden = writer.model.hidden * writer.value
        yield from bare(*SMALL_KERNELS * [streamed("modulation.small", POINTWISE, hidden, PREFILLS)])


def shifted(writer: Writer, part: str, read: str) -> Generator[TapeNode, None, str]:
    """What the norm of a half gives, scaled and shifted."""
    return (yield from _pointwise(writer, f"{part}.modulate", writer.style.modulate, read))


def gated(writer: Writer, part: str, read: str) -> Generator[TapeNode, None, str]:
    """What a half gives, times its gate."""
    return (yield from _pointwise(writer, f"{part}.gate", writer.style.scaled, read))


def _pointwise(writer: Writer, name: str, stream: Stream, read: str) -> Generator[TapeNode, None, str]:
    hidden = writer.model.hidden
    written, sizes = f"{name}d", {f"{name}d": hidden * writer.cut.share}
    yield writer.elementwise(name, stream, hidden, (read,), sizes, True, writer.cut.rows)
    return written
