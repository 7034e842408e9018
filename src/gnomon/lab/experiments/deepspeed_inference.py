"""ZeRO-Inference (DeepSpeed Inference): all weights streamed from the host, GPU memory used for a larger batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnomon.lab import blocks
from gnomon.lab.base import BF16_BYTES, Check, Experiment, Findings, LabClaim, LabRow, LabRun, Predicted, Rates, Size
from gnomon.lab.bench import Bench
from gnomon.lab.priced import copy_bytes_s, stream_s, torch_machine
from gnomon.lab.stream import evenly, link_rates, some_streamed
from gnomon.spec import Chip

SLOTS = 2
PARTIAL, FULL = "as many layers kept as fit", "all layers streamed"
KEPT_SHARE = 0.75
"""Of the memory budget that the partial way gives to weights, as the paper's comparison does (18 of 30B on 32 GB)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How a memory budget is divided: layers that stay, and sequences whose cache fits into the rest."""

    layers: int
    kept: int
    sequences: int

    @property
    def streamed(self) -> frozenset[int]:
        """Layers that are streamed."""
        return evenly(self.layers, self.layers - self.kept)


def split(shape: Mapping[str, Any], way: str) -> Split:
    """Layers kept and sequences decoded at once within the budget."""
    width, layers = int(shape["width"]), int(shape["layers"])
    each, budget = blocks.block_bytes(width), int(shape["budget_mb"]) * 10**6
    cache = 2 * BF16_BYTES * width * int(shape["context"]) * layers
    kept = min(layers - 1, max(0, int(KEPT_SHARE * budget / each) - SLOTS)) if way == PARTIAL else 0
    room = budget - (kept + SLOTS) * each
    return Split(layers=layers, kept=kept, sequences=max(1, int(room / cache)))


@dataclass(frozen=True, slots=True)
class _Decoder:
    """Blocks and a full key-value cache for one new token of each sequence."""

    bench: Bench
    heads: int
    cache: Sequence[Any]

    def step(self, x: Any, weights: Iterator[Any]) -> Any:
        """The output for x [sequences, 1, width]; the new token's keys and values take the cache's last place."""
        with self.bench.torch.no_grad():
            for cache in self.cache:
                x = decoded(self.bench.torch, x, next(weights), cache, self.heads)
        return x


def decoded(torch: Any, x: Any, flat: Any, cache: Any, heads: int) -> Any:
    """A block's output for one token of each sequence over its cache [2, sequences, heads, context, head dimension]."""
    functional = torch.nn.functional
    sequences, _, width = x.shape
    qkv, out, up, down = blocks.views(flat, width)
    new = functional.linear(functional.layer_norm(x, (width,)), qkv).view(sequences, 1, 3, heads, -1)
    query, key, value = new.permute(2, 0, 3, 1, 4)
    cache[0, :, :, -1:] = key
    cache[1, :, :, -1:] = value
    mixed = functional.scaled_dot_product_attention(query, cache[0], cache[1])
    x = x + functional.linear(mixed.transpose(1, 2).reshape(x.shape), out)
    wide = functional.linear(functional.layer_norm(x, (width,)), up)
    return x + functional.linear(functional.gelu(wide), down)


def _weights(bench: Bench, host: Sequence[Any], chosen: Split) -> Iterator[Any]:
    """Each layer's weights in turn: those that stay, and the others as they arrive."""
    return some_streamed(bench, host, chosen.streamed, SLOTS)


def _caches(bench: Bench, shape: Mapping[str, Any], sequences: int) -> list[Any]:
    heads, width, context = int(shape["heads"]), int(shape["width"]), int(shape["context"])
    generator, kind = bench.generator(), bench.torch.bfloat16
    return [
        bench.normal(2, sequences, heads, context, width // heads, dtype=kind, generator=generator)
        for _ in range(int(shape["layers"]))
    ]


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    bench.tell("allocating host memory")
    host = blocks.drawn(bench, sizes["layers"], sizes["width"])
    checks = [blocks.against_definition(bench), _last_token(bench)]
    facts: dict[str, Any] = {"layer_bytes": blocks.block_bytes(sizes["width"]), **link_rates(bench)}
    (row,) = rows(sizes)
    outputs, runs = {}, {}
    for way in (PARTIAL, FULL):
        bench.release()
        chosen = split(sizes, way)
        bench.tell(f"{way}: {chosen.sequences} sequences")
        outputs[way], runs[way] = _timed(bench, host, chosen, sizes)
    few = outputs[PARTIAL].shape[0]
    checks.append(_few(bench, host, sizes, outputs[PARTIAL], few))
    for way in (PARTIAL, FULL):
        per = split(sizes, way).sequences
        facts[f"sequences, {way}"], facts[f"layers kept, {way}"] = per, split(sizes, way).kept
        runs[way] = runs[way].each(per)
    compared = row.compared(runs[PARTIAL], runs[FULL], deferred_s=0.0)
    return Findings(checks=tuple(checks), compared=(compared,), facts=facts, notes=NOTES)


NOTES = (
    "seconds are of one token of one sequence: a step's, over the sequences that the memory budget has room for",
    "plain: layers in three quarters of the budget, the others streamed ahead of the compute, both spread evenly; "
    "the rest of the budget is key-value cache",
)


def _timed(bench: Bench, host: Sequence[Any], chosen: Split, sizes: Mapping[str, int]) -> tuple[Any, LabRun]:
    """A step's output and its times."""
    decoder = _Decoder(bench, sizes["heads"], _caches(bench, sizes, chosen.sequences))
    weights = _weights(bench, host, chosen)
    x = blocks.inputs(bench, chosen.sequences, 1, sizes["width"])
    output = decoder.step(x, weights).cpu()
    step: Callable[[], Any] = lambda: decoder.step(x, weights)  # noqa: E731
    return output, bench.wall(step, sizes["repeats"], host_bytes=len(host) * blocks.block_bytes(sizes["width"]))


def _few(bench: Bench, host: Sequence[Any], sizes: Mapping[str, int], wanted: Any, count: int) -> Check:
    """The same sequences with all layers streamed: the same bits."""
    chosen = Split(layers=len(host), kept=0, sequences=count)
    decoder = _Decoder(bench, sizes["heads"], _caches(bench, sizes, count))
    x = blocks.inputs(bench, count, 1, sizes["width"])
    found = decoder.step(x, _weights(bench, host, chosen)).cpu()
    what = f"{count} sequences, all layers streamed: values that differ from layers kept"
    return Check(what=what, difference=float((found != wanted).sum()), bound=0.0)


def _last_token(bench: Bench) -> Check:
    """A decoded token against the last one of a whole sequence by definition, in fp64."""
    torch, width, heads, tokens = bench.torch, 64, 4, 17
    (flat,) = (each.to(bench.device) for each in blocks.drawn(bench, 1, width, torch.float64))
    x = blocks.inputs(bench, 3, tokens, width, torch.float64)
    truth = blocks.plainly(torch, x, flat, heads)[:, -1:]
    qkv = blocks.views(flat, width)[0]
    normed = torch.nn.functional.layer_norm(x, (width,))
    cache = (normed @ qkv.T).view(3, tokens, 3, heads, -1).permute(2, 0, 3, 1, 4)[1:].clone()
    cache[:, :, :, -1] = 0
    found = decoded(torch, x[:, -1:], flat, cache, heads)
    apart = float((found - truth).abs().max() / truth.abs().max())
    return Check(what="a decoded token against its definition in fp64, relative", difference=apart, bound=1e-9)


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    shape = {name: sizes[name] for name in ("layers", "width", "heads", "context", "budget_mb")}
    return (LabRow(what=f"a token within {sizes['budget_mb']:,} MB of GPU memory", shape=shape),)


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """Copies of the layers that are streamed, or the decode of all sequences, whichever is longer, by the sequence."""
    shape, machine = row.shape, torch_machine(chip)
    width, heads, context = (int(shape[name]) for name in ("width", "heads", "context"))
    each = {}
    for way in (PARTIAL, FULL):
        chosen = split(shape, way)
        cache = 2.0 * BF16_BYTES * width * context * chosen.sequences
        tokens = blocks.forward_s(machine, width, heads, chosen.sequences, 1)
        compute = chosen.layers * (tokens + stream_s(machine, cache, 0.0))
        copies = len(chosen.streamed) * blocks.block_bytes(width) / copy_bytes_s(chip)
        each[way] = max(compute, copies) / chosen.sequences
    by = f"GEMMs of {chip.name}, its memory's stream of the cache, and its host's copies"
    return Predicted.of_seconds(each[PARTIAL], each[FULL], by)


EXPERIMENT = Experiment(
    slug="deepspeed-inference",
    title="ZeRO-Inference: all weights streamed from the host, the GPU's memory used for a larger batch",
    checks="outputs are the same bits with layers kept and with all streamed; a decoded token equals its definition",
    claim=LabClaim(
        what="OPT-30B on one V100 decodes over 1.3 times more tokens per second with all weights streamed than with "
        "18B of the parameters kept",
        comparable=False,
        why="the same comparison, but the ratio follows from the memory budget, the context and the link; those of "
        "this run are others (PCIe 5 and 32 layers of 4,096)",
    ),
    sizes=(
        Size("layers", "layers of the decoder", default=32, on_cpu=5, most=200),
        Size("width", "its hidden width", default=4096, on_cpu=64, most=32768),
        Size("heads", "its attention heads", default=32, on_cpu=4, most=256),
        Size("context", "tokens in the cache of each sequence", default=512, on_cpu=16, least=2, most=2**17),
        Size("budget_mb", "GPU memory for weights and cache, MB", default=10000, on_cpu=1, most=10**6),
        Size("repeats", "timed steps", default=5, on_cpu=1, most=1000),
    ),
    work=work,
    rows=rows,
    predict=predict,
)
