"""Superpipeline: a sliding window of layers on the GPU, the others in host memory and copied ahead of the compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnomon.lab import blocks
from gnomon.lab.base import (
    BF16_BYTES,
    Check,
    Compared,
    Experiment,
    Findings,
    LabClaim,
    LabRow,
    LabRun,
    Predicted,
    Rates,
    Size,
)
from gnomon.lab.bench import Bench
from gnomon.lab.priced import copy_bytes_s, torch_machine
from gnomon.lab.stream import WeightStream, evenly, in_turn, link_rates, some_streamed
from gnomon.spec import Chip

SLOTS = 2
"""Layers on the GPU at once beside those that stay there, where only the others are streamed."""
MULTIPLES = (1, 4, 16)
"""Sequences of a pass, in those of the smallest."""
ACTIVATIONS = 10
"""Tensors as wide as a layer's input at the widest point: input, residual, the MLP's inner ones before and after."""
WINDOW, SERIAL, RESIDENT, KEPT = "window", "copied when needed", "all resident", "some kept, others streamed"


@dataclass(frozen=True, slots=True)
class _Stack:
    """The layers in host memory, and who computes a pass over them."""

    bench: Bench
    host: Sequence[Any]
    heads: int
    window: int

    def passes(self, way: str) -> Callable[[Any], Any]:
        """A pass as a function of its input; what it needs on the GPU is allocated here."""
        weights = {WINDOW: self._window, SERIAL: self._serial, RESIDENT: self._resident, KEPT: self._kept}[way]()

        def run(x: Any) -> Any:
            return blocks.run(self.bench.torch, x, _some(weights, len(self.host)), self.heads)

        return run

    def _window(self) -> Iterator[Any]:
        return WeightStream(self.bench, self.host, self.window).endless()

    def _serial(self) -> Iterator[Any]:
        slot = self.bench.empty(self.host[0].numel(), dtype=self.host[0].dtype)
        while True:
            yield from in_turn(self.bench, self.host, slot)

    def _resident(self) -> Iterator[Any]:
        there = [flat.to(self.bench.device, copy=True) for flat in self.host]
        while True:
            yield from there

    def _kept(self) -> Iterator[Any]:
        return some_streamed(self.bench, self.host, streamed(len(self.host), self.window), SLOTS)


def _some(weights: Iterator[Any], count: int) -> Iterator[Any]:
    return (next(weights) for _ in range(count))


def streamed(layers: int, window: int) -> frozenset[int]:
    """Layers that are streamed where as many as fit beside two slots stay."""
    return evenly(layers, layers - max(window - SLOTS, 0))


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    torch, width, layers = bench.torch, sizes["width"], sizes["layers"]
    bench.tell("allocating host memory")
    stack = _Stack(bench, blocks.drawn(bench, layers, width), sizes["heads"], min(sizes["window"], layers))
    checks = [blocks.against_definition(bench)]
    facts: dict[str, Any] = {"layer_bytes": blocks.block_bytes(width), **link_rates(bench)}
    runs: dict[tuple[str, int], LabRun] = {}
    outputs: dict[int, Any] = {}
    for way in (RESIDENT, WINDOW, SERIAL, KEPT):
        bench.release()
        bench.tell(f"passes with {way}")
        run = stack.passes(way)
        for sequences in _batches(sizes):
            x = blocks.inputs(bench, sequences, sizes["tokens"], width)
            with torch.no_grad():
                found = run(x)
                if way == RESIDENT:
                    outputs[sequences] = found.cpu()
                else:
                    checks.append(_same(sequences * sizes["tokens"], way, found.cpu(), outputs[sequences]))
                del found
                runs[way, sequences] = bench.wall(lambda run=run, x=x: run(x), sizes["repeats"])  # type: ignore[misc]
        del run, x
    compared = [_compared(row, runs) for row in rows(sizes)]
    return Findings(checks=tuple(checks), compared=tuple(compared), facts=facts, notes=NOTES)


NOTES = (
    "plain: each layer copied from pinned memory when it is needed, or all layers on the GPU, as each row says",
    "a window needs every layer copied in every pass; keeping some layers and streaming the others through two slots "
    "takes the same memory and copies less",
)


def _same(tokens: int, way: str, mine: Any, theirs: Any) -> Check:
    differing = float((mine != theirs).sum())
    return Check(what=f"{tokens} tokens, {way}: values that differ from all resident", difference=differing, bound=0.0)


def _compared(row: LabRow, runs: Mapping[tuple[str, int], LabRun]) -> Compared:
    shape = row.shape
    plain, mine = (runs[shape[name], shape["sequences"]] for name in ("plain", "technique"))
    return row.compared(plain, mine, deferred_s=0.0, of_paper=shape["technique"] == WINDOW)


def _batches(sizes: Mapping[str, int]) -> list[int]:
    return [sizes["sequences"] * each for each in MULTIPLES]


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    window = min(sizes["window"], sizes["layers"])
    stack = {name: sizes[name] for name in ("layers", "width", "heads", "tokens")} | {"window": window}

    def row(what: str, sequences: int, plain: str, technique: str, unit: str = "seconds") -> LabRow:
        shape = stack | {"sequences": sequences, "plain": plain, "technique": technique}
        return LabRow(what=what, shape=shape, unit=unit)

    first, *_ = batches = _batches(sizes)
    found = [row(f"GPU memory, {window} of {sizes['layers']} layers", first, RESIDENT, WINDOW, "bytes")]
    for sequences in batches:
        what = f"a pass of {sequences * sizes['tokens']} tokens"
        found += [
            row(f"{what}, against layers copied when needed", sequences, SERIAL, WINDOW),
            row(f"{what}, against all layers resident", sequences, RESIDENT, WINDOW),
            row(f"{what}, {KEPT}, against copied when needed", sequences, SERIAL, KEPT),
        ]
    return tuple(found)


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """Copies and compute, one after the other or both at once, from the chip's kernels and its host's link."""
    shape = row.shape
    width, layers = int(shape["width"]), int(shape["layers"])
    if row.unit == "bytes":
        beside = ACTIVATIONS * BF16_BYTES * int(shape["sequences"]) * int(shape["tokens"]) * width
        plain, mine = (count * blocks.block_bytes(width) + beside for count in (layers, int(shape["window"])))
        return Predicted(gain=plain / mine, by="weights on the GPU and a layer's activations")
    each = blocks.forward_s(
        torch_machine(chip), width, int(shape["heads"]), int(shape["sequences"]), int(shape["tokens"])
    )
    copy, compute = blocks.block_bytes(width) / copy_bytes_s(chip), layers * each
    some = len(streamed(layers, int(shape["window"])))
    seconds = {
        RESIDENT: compute,
        SERIAL: compute + layers * copy,
        WINDOW: max(compute, layers * copy),
        KEPT: max(compute, some * copy),
    }
    by = f"kernels of {chip.name} and copies of its host, the longer of the two where they overlap"
    return Predicted.of_seconds(seconds[str(shape["plain"])], seconds[str(shape["technique"])], by)


EXPERIMENT = Experiment(
    slug="superpipeline",
    title="Superpipeline: a sliding window of layers on the GPU, the others copied ahead from host memory",
    checks="outputs of every way equal those with all layers on the GPU, bit by bit; a block equals its definition",
    claim=LabClaim(
        what="60% less GPU memory, for language, vision and multimodal models",
        comparable=True,
        why="the memory: a window of 40% of the layers by construction; no times of the paper could be read",
    ),
    sizes=(
        Size("layers", "layers of the decoder", default=32, on_cpu=5, most=200),
        Size("width", "its hidden width", default=4096, on_cpu=64, most=32768),
        Size("heads", "its attention heads", default=32, on_cpu=4, most=256),
        Size("tokens", "tokens of a sequence", default=2048, on_cpu=8, most=2**17),
        Size("sequences", "sequences of the smallest pass", default=1, on_cpu=1, most=1024),
        Size("window", "layers on the GPU at once", default=13, on_cpu=3, least=2, most=200),
        Size("repeats", "timed passes", default=5, on_cpu=1, most=1000),
    ),
    work=work,
    rows=rows,
    predict=predict,
)
