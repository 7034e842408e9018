"""Nexus: a prompt and decodes at once on shares of one GPU, against chunks of the prompt in the decodes' steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gnomon.calibrate.timer import captured
from gnomon.cost.machine import Machine
from gnomon.lab import blocks
from gnomon.lab.base import BF16_BYTES, Compared, Experiment, Findings, LabClaim, LabRow, LabRun, Predicted, Rates, Size
from gnomon.lab.bench import SEED, Bench
from gnomon.lab.green import split_streams
from gnomon.lab.launches import replayable
from gnomon.lab.priced import attention_s, gemm_s, stream_s, torch_machine
from gnomon.lab.serving_steps import ServingDecoder, against_definition, served
from gnomon.lab.ways import Ways, close
from gnomon.spec import Chip

CHUNKED, SHARES, STREAMS = "chunks in the decodes' steps", "shares of the SMs", "two streams"
DECODE_SMS = (16, 32, 48, 64)
"""SMs of the decodes; the prompt has the others."""
CHUNKS = (8, 2)
"""Chunks of a prompt: so many steps of decodes go with one."""
BOTH, DECODED = "a prompt and its decode steps", "a decode step beside prompts"
PROMPTS = 8
"""Prompts one after the other beside decodes that are timed."""
SM_BYTES_S = 64e9
"""That one SM reads at most: 64 kB on their way, a microsecond each."""
BOUND = 0.3
"""Of the outputs' root mean square, the largest difference: bf16 through all blocks, in another order."""
Calls = tuple[Callable[[], Any], Callable[[], Any]]
"""A prompt, and a decode step."""


@dataclass(slots=True)
class _Beside:
    """A prompt and a decode step as graphs, each on a stream of its own."""

    bench: Bench
    prompt: Callable[[], Any]
    decode: Callable[[], Any]
    streams: tuple[Any, Any] = (None, None)
    """Of the prompt and of the decodes."""
    _replays: list[Callable[[], Any]] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        for call, stream in zip((self.prompt, self.decode), self.streams, strict=True):
            self._replays.append(self._captured(call, stream))

    def _captured(self, call: Callable[[], Any], stream: Any) -> Callable[[], Any]:
        bench = self.bench
        if bench.device != "cuda":
            self.outputs.append(call())
            return call
        bench.synchronize()
        with bench.within(stream):
            call()
        stream.synchronize()
        graph = captured(bench.torch, lambda _: self.outputs.append(call()), 1, stream=stream)
        return partial(self._on, stream, graph)

    def _on(self, stream: Any, graph: Any) -> None:
        with self.bench.within(stream):
            graph.replay()

    def run(self, prompts: int, decodes: int) -> None:
        """So many of both, from now to when all are done."""
        for _ in range(prompts):
            self._replays[0]()
        for _ in range(decodes):
            self._replays[1]()
        self.wait()

    def wait(self) -> None:
        for stream in self.streams:
            if stream is not None:
                stream.synchronize()

    def decode_run(self, decodes: int, repeats: int) -> tuple[LabRun, bool]:
        """A decode step while prompts run, and whether they ran to the end of it."""
        bench = self.bench
        if bench.device != "cuda":
            return bench.wall(self._replays[1], repeats), True
        torch, samples, busy = bench.torch, [], True
        for _ in range(repeats):
            bench.synchronize()
            for _ in range(PROMPTS):
                self._replays[0]()
            last = self.streams[0].record_event()
            first, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            self._replays[1]()
            self.streams[1].record_event(first)
            for _ in range(decodes):
                self._replays[1]()
            self.streams[1].record_event(end)
            end.synchronize()
            busy = busy and not last.query()
            samples.append(first.elapsed_time(end) * 1e-3 / decodes)
            bench.sample_clock()
            self.wait()
        return bench.measured(samples, 0), busy


@dataclass(slots=True)
class _Runs:
    """Times of one way: of a prompt with so many decode steps, by their number, and of a decode step beside prompts."""

    both: dict[int, LabRun]
    decode: LabRun
    name: str


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    torch, ways = bench.torch, Ways(bench)
    ways.checks.append(against_definition(bench))
    model = served(bench, dict(sizes))
    width = sizes["width"]
    generator = bench.generator(SEED + 202)
    prompt, decodes = (
        bench.normal(rows, width, dtype=torch.bfloat16, generator=generator)
        for rows in (sizes["prompt"], sizes["sequences"])
    )
    with torch.no_grad():
        alone = [model.prefill(prompt).clone(), model.decode(decodes).clone()]
        chunked = {steps: _chunked(ways, model, (prompt, decodes, alone), steps, sizes) for steps in _steps(sizes)}
        calls = (partial(model.prefill, prompt), partial(model.decode, decodes))
        references = _references(bench, calls, sizes["repeats"])
        tried = (0, *(DECODE_SMS if bench.device == "cuda" else DECODE_SMS[:1]))
        beside = [_beside(ways, sms, calls, alone, sizes) for sms in tried]
    found = [one for one in beside if one is not None]
    compared = [row for planned in rows(sizes) if (row := _compared(planned, chunked, found)) is not None]
    facts = {
        f"{one.name}, {steps} decode steps, seconds": one.both[steps].seconds for one in found for steps in one.both
    } | {f"{one.name}, a decode step, seconds": one.decode.seconds for one in found}
    return Findings(
        checks=tuple(ways.checks), compared=tuple(compared), references=references, facts=facts,
        notes=(*NOTES, *ways.notes),
    )  # fmt: skip


NOTES = (
    "blocks of a decoder in bf16; a decode step is one token of each sequence over its KV cache; all in CUDA graphs, "
    "from an idle GPU to an idle one",
    "chunks: the prompt's rows and the decodes' are one GEMM, as engines mix them; shares: two green contexts, the "
    "number of SMs with which both are done first, which `way` names, also where decode steps are compared; two "
    "streams: the same graphs without shares, which is not what the paper proposes",
)


def _steps(sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(math.ceil(sizes["prompt"] / _chunk(sizes, count)) for count in CHUNKS)


def _chunk(sizes: Mapping[str, int], count: int) -> int:
    return math.ceil(sizes["prompt"] / count)


def _chunked(
    ways: Ways, model: ServingDecoder, given: tuple[Any, Any, list[Any]], steps: int, sizes: Mapping[str, int]
) -> LabRun:
    """A prompt in so many steps of decodes."""
    bench, (prompt, decodes, alone) = ways.bench, given
    call = partial(model.chunked, decodes, prompt, _chunk(sizes, steps))
    mine, found = call()
    what = f"{steps} {CHUNKED}"
    ways.checks += [
        close(f"{what}: the prompt against all of it at once", found, alone[0], BOUND),
        close(f"{what}: decodes against those alone", mine, alone[1], BOUND),
    ]
    return bench.wall(replayable(bench, call)[0], sizes["repeats"])


def _references(bench: Bench, calls: Calls, repeats: int) -> dict[str, LabRun]:
    names = ("a prompt alone", "a decode step alone")
    return {name: bench.wall(replayable(bench, call)[0], repeats) for name, call in zip(names, calls, strict=True)}


def _beside(ways: Ways, sms: int, calls: Calls, alone: list[Any], sizes: Mapping[str, int]) -> _Runs | None:
    """Both at once, decodes on so many SMs or, with none, on any; None where that cannot be run here."""
    bench, name = ways.bench, SHARES if sms else STREAMS

    def timed() -> _Runs:
        streams, told = (bench.stream(), bench.stream()), name
        if sms and bench.device == "cuda":
            decode, prompt, (mine, others) = split_streams(bench, sms)
            streams, told = (prompt, decode), f"{others} SMs for the prompt, {mine} for decodes"
        bench.tell(told)
        return _timed(ways, _Beside(bench, *calls, streams), alone, (told, sizes))

    found: _Runs | None = ways.attempt(f"{name}, {sms} SMs for decodes," if sms else f"{name},", timed)
    return found


def _timed(ways: Ways, both: _Beside, alone: list[Any], given: tuple[str, Mapping[str, int]]) -> _Runs:
    """Checked and timed."""
    bench, (name, sizes) = ways.bench, given
    if bench.device == "cuda":
        for output in both.outputs:
            output.zero_()
        bench.synchronize()
    both.run(1, 2)
    for what, mine, truth in zip(("the prompt", "decodes"), both.outputs, alone, strict=True):
        ways.checks.append(close(f"{name}: {what} at once against alone", mine, truth, BOUND))
    found = {steps: bench.wall(partial(both.run, 1, steps), sizes["repeats"]) for steps in _steps(sizes)}
    decode, busy = both.decode_run(max(_steps(sizes)), sizes["repeats"])
    if not busy:
        ways.notes.append(f"{name}: prompts were done before the decode steps that were timed beside them")
    return _Runs(both=found, decode=decode, name=name)


def _compared(row: LabRow, chunked: Mapping[int, LabRun], beside: list[_Runs]) -> Compared | None:
    steps, way = int(row.shape["steps"]), str(row.shape["technique"])
    mine = [one for one in beside if (one.name == STREAMS) == (way == STREAMS)]
    if not mine:
        return None
    best, plain = min(mine, key=lambda one: one.both[steps].seconds or 0.0), chunked[steps]
    technique = best.both[steps] if row.shape["done"] == BOTH else best.decode
    if row.shape["done"] == DECODED:
        plain = plain.each(steps)
    return row.compared(
        plain, technique, deferred_s=0.0, of_paper=way == SHARES, shape=dict(row.shape) | {"way": best.name}
    )


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    found = []
    for steps in _steps(sizes):
        chunk = _chunk(sizes, steps)
        for done in (BOTH, DECODED):
            for way in (SHARES, STREAMS):
                what = f"{done}, {steps} of them, by {way}, against chunks of {chunk}"
                if done == DECODED:
                    what = f"{done}, by {way}, against steps with chunks of {chunk}"
                shape = dict(sizes) | {"steps": steps, "done": done, "technique": way}
                found.append(LabRow(what=what, shape=shape))
    return tuple(found)


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """Prompts take longer by their share; decodes read as fast as their SMs can, or the memory; both end with the
    slower, or with the memory. None without shares: who gets which SM is then the driver's."""
    shape = row.shape
    if shape["technique"] == STREAMS:
        return None
    sizes = {name: int(shape[name]) for name in ("layers", "width", "heads", "sequences", "context", "prompt")}
    machine, steps = torch_machine(chip), int(shape["steps"])
    chunked = _chunked_s(machine, sizes, steps)
    whole, decode = _prompt_s(machine, sizes), _decode_s(machine, sizes)

    def beside(sms: int) -> tuple[float, float]:
        """Seconds of both, and of one decode step."""
        each = decode * max(1.0, chip.memory_bandwidth_bytes_s / (sms * SM_BYTES_S))
        return max(whole * chip.sm_count / (chip.sm_count - sms), steps * each), each

    both, each = min((beside(sms) for sms in DECODE_SMS if sms < chip.sm_count), key=lambda found: found[0])
    by = f"kernels of {chip.name}, prompts by their share of SMs, {SM_BYTES_S / 1e9:g} GB/s of memory for one SM"
    if shape["done"] == BOTH:
        return Predicted.of_seconds(chunked, both, by)
    return Predicted.of_seconds(chunked / steps, each, by)


def _gemms_s(machine: Machine, width: int, rows: int) -> float:
    shapes = ((3, 1), (1, 1), (4, 1), (1, 4))
    gemms = sum(gemm_s(machine, rows, n * width, k * width) for n, k in shapes)
    return gemms + blocks.passes_s(machine, width, rows)


def _cache_s(machine: Machine, sizes: Mapping[str, int]) -> float:
    """Keys and values of one layer read."""
    return stream_s(machine, 2.0 * BF16_BYTES * sizes["sequences"] * sizes["context"] * sizes["width"], 0.0)


def _prompt_s(machine: Machine, sizes: Mapping[str, int]) -> float:
    each = blocks.forward_s(machine, sizes["width"], sizes["heads"], 1, sizes["prompt"])
    return sizes["layers"] * each


def _decode_s(machine: Machine, sizes: Mapping[str, int]) -> float:
    each = _gemms_s(machine, sizes["width"], sizes["sequences"]) + _cache_s(machine, sizes)
    return sizes["layers"] * each


def _chunked_s(machine: Machine, sizes: Mapping[str, int], steps: int) -> float:
    """Steps of both; attention of a prompt's chunks takes together what it takes at once."""
    width, heads, prompt = sizes["width"], sizes["heads"], sizes["prompt"]
    rows = sizes["sequences"] + math.ceil(prompt / steps)
    each = _gemms_s(machine, width, rows) + _cache_s(machine, sizes)
    mixed = attention_s(machine, 1, heads, prompt, width // heads, causal=True)
    return sizes["layers"] * (steps * each + mixed)


EXPERIMENT = Experiment(
    slug="nexus",
    title="Nexus: a prompt and decodes at once on shares of one GPU, against chunked prefill",
    checks="a prompt in chunks and a token after it equal their definition; prompts and decodes at once equal those "
    "alone",
    claim=LabClaim(
        what="up to 2.2 times the throughput of vLLM, TTFT 20 times and TBT 2.5 times lower, on L20 cards",
        comparable=False,
        why="the paper's gains are of a queue under load with its own order of prompts; this is one prompt beside the "
        "decode steps that chunked prefill would give it, and where the shares are best",
    ),
    sizes=(
        Size("layers", "blocks of the decoder", default=8, on_cpu=2, most=200),
        Size("width", "its hidden width", default=4096, on_cpu=64, least=64, most=32768),
        Size("heads", "its attention heads", default=32, on_cpu=4, most=256),
        Size("sequences", "sequences that decode", default=32, on_cpu=3, most=4096),
        Size("context", "tokens of each in the cache", default=1024, on_cpu=12, least=2, most=2**17),
        Size("prompt", "tokens of a prompt, in 8 chunks or in 2", default=4096, on_cpu=16, least=8, most=2**17),
        Size("repeats", "timed passes", default=11, on_cpu=1, most=1000),
    ),
    work=work,
    rows=rows,
    predict=predict,
)
