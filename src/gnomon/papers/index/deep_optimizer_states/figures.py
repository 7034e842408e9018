"""Deep Optimizer States (Maurya et al. 2024): the logs' forward, backward and update times, with and without it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import gnomon
from gnomon.papers.base import Ours
from gnomon.papers.machines import cluster, host
from gnomon.papers.shapes import network
from gnomon.spec import Pool

VOCAB, SEQ, CHIPS = 50_304, 2048, 4
ENGINE = "deepspeed@0.14"


class Shape(NamedTuple):
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    inner: int


SHAPES = {
    "7B": Shape(32, 4096, 32, 4, 11008),
    "8.3B": Shape(72, 3072, 32, 4, 11008),
    "10B": Shape(50, 4096, 32, 4, 12400),
    "13B": Shape(40, 5120, 40, 4, 13824),
    "20B": Shape(40, 5120, 64, 4, 20480),
    "20B of 64 layers": Shape(64, 4096, 256, 4, 16384),
    "30B": Shape(60, 6656, 52, 4, 17920),
}
HOSTS = {
    "H100": host(cores=96, memory_gib=512, memory_gb_s=614.4, adam_gparam_s=6.67, link_gb_s=55),
    "A100-SXM-40GB": host(cores=32, memory_gib=512, memory_gb_s=204.8, adam_gparam_s=2.99, link_gb_s=25),
}
FLUSH_GB_S = {"H100": 2.24, "A100-SXM-40GB": 4.17}
"""Solved from 7B's rows, as is the hosts' update throughput (see the inputs)."""
LEFT_OUT = {("7B", "baseline", "update")}
"""What the hosts' update throughput is solved from is no figure."""
SAME_AGAIN = ("flush beside", "update")
"""Ours is the number of the baseline once more, so it is not counted twice."""
OWN = f"H100:{CHIPS}"
VARIANTS = {"baseline": "flush=waits", "flush beside": "flush=beside", "interleaved": "flush=beside,stride=2"}
PHASES = ("forward", "backward", "update")
H100_MODELS = ("7B", "8.3B", "10B", "13B", "20B", "30B")
SHARE = {"30B": 0.65}
USUAL_SHARE = 0.8
SWEEP = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Shares of 20B's states on an H100's host."""
A100_STRIDES = {"7B": (2, 3, 4, 10), "13B": (2, 3, 4, 10), "20B of 64 layers": (2, 3, 10)}
"""Of interleaved updates, with all states on the host."""
REPORTS, REPORT_MS = 6, 42.0
"""Of memory in an iteration, which collects Python's garbage each time, and what one takes (see the inputs)."""
WHOLE_PASSES = ((209.0, 972.0), (277.0, 850.0))
"""Ms forward and backward with the flush beside it of 20B, all states on the host: without and with interleaving."""


@cache
def _phases(model: str, chip: str, share: float, words: str) -> tuple[float, float, float]:
    """Ms of forward, backward with what follows it, and update."""
    waits = f",flush_gb_s={FLUSH_GB_S[chip]}" if "waits" in words else ""
    return _phases_on(cluster(chip, CHIPS, CHIPS, HOSTS[chip]), model, f"share={share},{words}{waits}")


def _phases_on(on: str | Pool, model: str, words: str) -> tuple[float, float, float]:
    found = gnomon.simulate_training(
        network(model.replace(" ", "-"), **_fields(SHAPES[model])), on=on, seq=SEQ, global_batch=CHIPS, zero=3,
        recompute="full", dtype="bf16", engine=ENGINE, sequence_parallel=False,
        techniques=[f"offload-optimizer:{words}"],
    )  # fmt: skip
    line, figures = found.step.timeline, found.step.figures
    forward = float((figures.forward_s + figures.first_forward_s + figures.last_forward_s)[0])
    update = float(figures.optimizer_s[0])
    return 1e3 * forward, 1e3 * (line.optimizer_start_s - forward), 1e3 * update


def _fields(shape: Shape) -> dict[str, Any]:
    mixer = {"kind": "attention", "heads": shape.heads, "kv_heads": shape.kv_heads,
             "head_dim": shape.hidden // shape.heads}  # fmt: skip
    ffn = {"kind": "dense", "inner": shape.inner, "gated": True}
    blocks = [{"count": shape.layers, "mixer": mixer, "ffn": ffn}]
    return {"hidden": shape.hidden, "vocab": VOCAB, "max_context": SEQ, "blocks": blocks}


def _h100() -> Iterator[Ours]:
    for model in H100_MODELS:
        share = SHARE.get(model, USUAL_SHARE)
        for variant, words in VARIANTS.items():
            ours = _phases(model, "H100", share, words)
            for phase, found in (*zip(PHASES, ours, strict=True), ("step", sum(ours))):
                if (variant, phase) != SAME_AGAIN and (model, variant, phase) not in LEFT_OUT:
                    yield f"{model}, {share:.0%} on the host, {variant}: {phase}", found


def _sweep() -> Iterator[Ours]:
    for share in SWEEP:
        for variant, words in VARIANTS.items():
            yield f"sweep of 20B, {share:.0%} on the host, {variant}: step", sum(_phases("20B", "H100", share, words))


def _a100() -> Iterator[Ours]:
    for model, strides in A100_STRIDES.items():
        for words in ("flush=waits", "flush=beside", *(f"flush=beside,stride={stride}" for stride in strides)):
            yield f"{model} on A100, {words}: step", sum(_phases(model, "A100-SXM-40GB", 1.0, words))


def _headline() -> Iterator[Ours]:
    """All of 20B's states on the host, as the paper's longest bars."""
    ours = [_phases("20B", "H100", 1.0, words) for words in VARIANTS.values()]
    yield "a step faster than DeepSpeed's, 20B", _iteration_ms(ours[0]) / _iteration_ms(ours[-1])
    (forward, backward), (forward_2, backward_2) = WHOLE_PASSES
    flush = ours[0][1] - ours[1][1]
    gain = (forward + backward + flush + ours[0][2]) / (forward_2 + backward_2 + ours[-1][2])
    yield "the same with the logs' own passes", gain
    yield from _own_host()
    steps = {stride: sum(_phases("20B", "H100", 1.0, f"flush=beside,stride={stride}")) for stride in (2, 3, 4, 5)}
    yield "best stride, 20B on H100", min(steps, key=lambda stride: steps[stride])


def _iteration_ms(phases: tuple[float, ...]) -> float:
    """An iteration as the logs time it: its phases, and the reports of memory between them."""
    return sum(phases) + REPORTS * REPORT_MS


def _own_host() -> Iterator[Ours]:
    """The same with the catalog's host of an H100, with and without the logs' bandwidth of the flush."""
    lazy = _iteration_ms(_phases_on(OWN, "20B", VARIANTS["interleaved"]))
    logged, linked = f"flush=waits,flush_gb_s={FLUSH_GB_S['H100']}", "flush=waits"
    for words, beside in ((logged, "and the logs' flush"), (linked, "and a flush at the link's bandwidth")):
        yield f"the same with Gnomon's own host {beside}", _iteration_ms(_phases_on(OWN, "20B", words)) / lazy


def figures() -> Iterator[Ours]:
    yield from _headline()
    yield from _h100()
    yield from _sweep()
    yield from _a100()
