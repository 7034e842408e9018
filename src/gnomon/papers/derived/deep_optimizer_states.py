"""Deep Optimizer States (Maurya et al. 2024): the logs' forward, backward and update times, with and without it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import gnomon
from gnomon.papers.base import Derivation, Figure, Input
from gnomon.papers.machines import cluster_file, host
from gnomon.papers.shapes import shapes_file

LOGS = "github.com/mauryaavinash95/deep-optimizer-states-results, act-output-* logs"
PAPER = "arXiv:2410.21316"
TOLERANCE = 0.12
"""Of the paper's entry in our index, written down before any figure was computed."""
VOCAB, SEQ, CHIPS = 50_304, 2048, 4


class Shape(NamedTuple):
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    inner: int


SHAPES = {
    "7B": Shape(32, 4096, 32, 4, 11008),
    "8.3B": Shape(72, 3072, 24, 24, 8192),
    "10B": Shape(50, 4096, 32, 32, 11008),
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
"""Solved from 7B's rows, as is the hosts' pace of updates (see `inputs`)."""
LEFT_OUT = {("7B", "baseline", "update")}
"""What the hosts' pace is solved from is no figure."""
SAME_AGAIN = ("flush beside", "update")
"""Ours is the number of the baseline once more, so it is not counted twice."""
OWN = f"H100:{CHIPS}"
VARIANTS = {"baseline": "flush=waits", "flush beside": "flush=beside", "interleaved": "flush=beside,stride=2"}
PHASES = ("forward", "backward", "update")

H100_ROWS = {
    # Of 80% (30B: 65%) of the states on the host: ms forward, backward and update of each variant.
    "7B": ((129.4, 1435.2, 714.0), (134.7, 371.9, 719.6), (131.2, 328.2, 410.8)),
    "8.3B": ((289.7, 2063.5, 1108.0), (302.8, 606.1, 1107.6), (270.8, 572.3, 645.1)),
    "10B": ((194.5, 2245.3, 1205.3), (208.8, 605.4, 1206.1), (364.0, 524.5, 672.3)),
    "13B": ((176.6, 2643.1, 1294.9), (167.1, 645.1, 1295.5), (168.4, 583.4, 722.2)),
    "20B": ((214.2, 3641.2, 1789.5), (211.8, 911.7, 1783.7), (240.0, 827.6, 996.6)),
    "30B": ((404.1, 5836.7, 2751.6), (381.8, 1577.4, 2837.8), (381.4, 1523.7, 1562.8)),
}
SHARE = {"30B": 0.65}
USUAL_SHARE = 0.8
SWEEP = {
    # 20B on H100 by the share of states on the host: ms of a step of each variant.
    0.5: (3910, 2217, 1697), 0.6: (4488, 2443, 1791), 0.7: (4948, 2674, 1918), 0.8: (5541, 2904, 2172),
    0.9: (6185, 3137, 2203), 1.0: (6942, 3460, 2423),
}  # fmt: skip
A100_ROWS = {
    # All states on the host: ms of a step, baseline and flush beside, then interleaved by stride.
    "7B": (3796, 3083, {2: 2250, 3: 2393, 4: 2424, 10: 2490}),
    "13B": (7120, 5620, {2: 4217, 3: 4363, 4: 4555, 10: 4905}),
    "20B of 64 layers": (12016, 8803, {2: 6990, 3: 7053, 10: 7516}),
}


@cache
def _phases(model: str, chip: str, share: float, words: str) -> tuple[float, float, float]:
    """Ms of forward, backward with what follows it, and update."""
    waits = f",flush_gb_s={FLUSH_GB_S[chip]}" if "waits" in words else ""
    with cluster_file(chip, CHIPS, CHIPS, HOSTS[chip]) as on:
        return _phases_on(on, model, f"share={share},{words}{waits}")


def _phases_on(on: str, model: str, words: str) -> tuple[float, float, float]:
    with shapes_file(model.replace(" ", "-"), **_fields(SHAPES[model])) as path:
        found = gnomon.simulate_training(
            path, on=on, seq=SEQ, global_batch=CHIPS, zero=3, recompute="full", dtype="bf16",
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


def _figure(what: str, claimed: float, ours: float, note: str) -> Figure:
    return Figure(what=what, claimed=claimed, ours=ours, unit="ms", tolerance=TOLERANCE, note=note)


def _h100() -> Iterator[Figure]:
    for model, variants in H100_ROWS.items():
        share = SHARE.get(model, USUAL_SHARE)
        for (variant, words), claims in zip(VARIANTS.items(), variants, strict=True):
            ours = _phases(model, "H100", share, words)
            start = f"{model}, {share:.0%} on the host, {variant}"
            rows = (*zip(PHASES, claims, ours, strict=True), ("step", sum(claims), sum(ours)))
            for phase, claimed, found in rows:
                if (variant, phase) != SAME_AGAIN and (model, variant, phase) not in LEFT_OUT:
                    yield _figure(f"{start}: {phase}", claimed, found, NOTES[phase])


def _sweep() -> Iterator[Figure]:
    for share, claims in SWEEP.items():
        for (variant, words), claimed in zip(VARIANTS.items(), claims, strict=True):
            ours = sum(_phases("20B", "H100", share, words))
            yield _figure(f"sweep of 20B, {share:.0%} on the host, {variant}: step", claimed, ours, NOTES["step"])


def _a100() -> Iterator[Figure]:
    for model, (baseline, beside, strides) in A100_ROWS.items():
        words = {"flush=waits": baseline, "flush=beside": beside}
        words |= {f"flush=beside,stride={stride}": claimed for stride, claimed in strides.items()}
        for text, claimed in words.items():
            ours = sum(_phases(model, "A100-SXM-40GB", 1.0, text))
            note = SHARED if "stride" in text else NOTES["step"]
            yield _figure(f"{model} on A100, {text}: step", claimed, ours, note)


def _headline() -> Iterator[Figure]:
    """All of 20B's states on the host, as the paper's longest bars."""
    ours = [_phases("20B", "H100", 1.0, words) for words in VARIANTS.values()]
    gain = sum(ours[0]) / sum(ours[-1])
    yield Figure(what="a step quicker than DeepSpeed's, 20B", claimed=2.5, ours=gain, unit="x", tolerance=TOLERANCE,
                 note=HEADLINE, claim=1)  # fmt: skip
    (forward, backward), (forward_2, backward_2) = WHOLE_PASSES
    flush = ours[0][1] - ours[1][1]
    gain = (forward + backward + flush + ours[0][2]) / (forward_2 + backward_2 + ours[-1][2])
    yield Figure(what="the same with the logs' own passes", claimed=SWEEP[1.0][0] / SWEEP[1.0][-1], ours=gain,
                 unit="x", tolerance=TOLERANCE)  # fmt: skip
    yield from _own_host()
    steps = {stride: sum(_phases("20B", "H100", 1.0, f"flush=beside,stride={stride}")) for stride in (2, 3, 4, 5)}
    best = min(steps, key=lambda stride: steps[stride])
    yield Figure(what="best stride, 20B on H100", claimed=2, ours=best, tolerance=TOLERANCE)


def _own_host() -> Iterator[Figure]:
    """The same with the catalog's host of an H100, with and without the logs' pace of the flush."""
    lazy = sum(_phases_on(OWN, "20B", VARIANTS["interleaved"]))
    logged, linked = f"flush=waits,flush_gb_s={FLUSH_GB_S['H100']}", "flush=waits"
    for words, beside in ((logged, "and the logs' flush"), (linked, "and a flush at the link's pace")):
        gain = sum(_phases_on(OWN, "20B", words)) / lazy
        yield Figure(what=f"the same with Gnomon's own host {beside}", claimed=2.5, ours=gain, unit="x",
                     tolerance=TOLERANCE, note=OWN_HOST)  # fmt: skip


def figures() -> Sequence[Figure]:
    return [*_headline(), *_h100(), *_sweep(), *_a100()]


WHOLE_PASSES = ((209.0, 972.0), (277.0, 850.0))
"""Ms forward and backward with the flush beside it of 20B, all states on the host: without and with interleaving."""
NOTES = {
    "forward": (
        "A layer takes the logs 3.9 to 4.4 ms up to 13B however wide it is, so it does not wait for the chip; "
        "DeepSpeed's hooks around every module, on the host, are the likely cause. Ours takes 1.0 to 2.2 ms there. "
        "Wider layers take the logs 5.3 (20B) and 6.7 ms (30B), ours 2.9 and 3.4: its gathers of ZeRO 3 are hidden "
        "behind the layer before."
    ),
    "backward": (
        "Beside the flush a layer's backward pass takes the logs about 2 ms and 55 ps a parameter, whatever share "
        "leaves the chip (20B: 752 to 844 ms). Ours takes two fifths of it; what it waits for the flush is within 15%."
    ),
    "update": (
        "While subgroups travel, processors and copies meet in the host's memory: the logs' updates then move 53 to "
        "62% of its bandwidth."
    ),
    "step": "Its passes: see the rows of forward and backward, and of the update.",
}
SHARED = (
    "The logs' interleaved updates move 118 to 127 GB/s of the host's 205, whatever the stride; ours moves up "
    "to 164, and with a stride of 10 updates at the pace of DeepSpeed's own update, which also waits for the weights "
    "that return. Passes as on H100."
)
HEADLINE = (
    "Ours has shorter passes than the logs, so that what the technique saves weighs more; by the logs themselves 20B "
    "is 2.87 times quicker."
)
OWN_HOST = (
    "A DGX-H100 updates 9.4 thousand million parameters a second in Gnomon's catalog, the logs' host 6.67. Three "
    "quarters of what the technique saves is the waiting flush, 3.5 s in the logs at 2.24 GB/s a rank: a twenty-fifth "
    "of the link, so that no figure of the machine says it, but DeepSpeed's own way to copy."
)
DERIVATION = Derivation(
    slug="deep-optimizer-states",
    kind="predicted",
    setting="7B to 30B under ZeRO on 4 H100 or 4 A100, a sequence of 2,048 tokens a chip, full recompute",
    source=f"{LOGS} (median, and last but one step); {PAPER}",
    assumptions=(
        "The code is Megatron-DeepSpeed with ZeRO 3. Ours is Megatron-LM of today with ZeRO 3, whose kernels are fused "
        "and whose gathers are hidden: passes come out shorter than in the logs.",
        "Activations are run again, as the logs' arguments say; gated feed-forwards, four heads of keys and values, a "
        "vocabulary of 50,304, which gives the 11.3 thousand million parameters that 13B's log lists by subgroup.",
        "Inner widths of 8.3B, 10B and 20B of 64 layers are not in our source: 8/3 of the width with all heads for the "
        "first two, which gives the parameters of their names, and 4 times it for the third, as for the other 20B.",
        "A step is its forward, backward and update; the logs' iterations are 4 to 13% longer.",
        "7B's update, which the host's pace is solved from, is no figure, nor are updates beside the flush, which in "
        "ours are those of the baseline again. Updates of the baseline are that pace times parameters: only that they "
        "go with the parameters is predicted. Backward passes that wait for the flush, and steps, are passes of ours "
        "and that pace.",
        "Gnomon's own host (DGX-H100, 9.4 thousand million parameters a second) would give a headline of 3.7, with the "
        "logs' flush, or 1.5, with nothing of the logs: both stand among the figures.",
        "Rows of one GPU with micro-batches of four are left out: which GPU it was is not known here.",
    ),
    inputs=(
        Input(
            name="host's Adam",
            value="6.67 (H100), 2.99 (A100) thousand million parameters a second",
            source=f"{LOGS}: 7B's update without interleaving, 714 ms of 80% and 1,991 ms of all states",
        ),
        Input(
            name="waiting flush",
            value="2.24 (H100), 4.17 (A100) GB/s a rank",
            source=f"{LOGS}: 7B's backward with a waiting flush less that beside, 1,063 and 713 ms",
        ),
        Input(
            name="link to the host",
            value="55 GB/s (H100), 25 GB/s (A100)",
            source="index entry, recalled: PCIe 5.0; DataStates-LLM (HPDC'24) on the same A100 nodes",
        ),
        Input(
            name="host's memory",
            value="614 GB/s (H100), 205 GB/s (A100)",
            source="data sheets: two Xeon of 8 channels DDR5-4800, one EPYC of 8 channels DDR4-3200; recalled",
        ),
        Input(
            name="arguments",
            value="ZeRO 3, subgroups of 1e8, one sequence of 2,048 a rank",
            source=f"{LOGS}, first lines",
        ),
        Input(
            name="passes of 20B",
            value="209 and 972 ms, 277 and 850 ms",
            source=f"{LOGS}; taken by the row 'with the logs' own passes' alone",
        ),
    ),
    figures=figures,
    techniques=("offload-optimizer",),
)
