"""MoE Parallel Folding (Liu et al. 2025): MFU of mixtures of experts whose experts have a layout of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import gnomon
from gnomon.errors import InputError
from gnomon.load import model as load_model
from gnomon.papers.base import Ours
from gnomon.spec import AttentionMixer, DenseFfn, Model, MoeFfn
from gnomon.spec.answers import TrainingReport

SEQ, PEAK, TERA = 4096, 989.5e12, 1e12
MIXTRAL, QWEN, FINE, LLAMA = "Mixtral 8x22B", "Qwen2-57B-A14B", "64 fine experts", "Llama3-8x70B"
DEGREES = {
    # tensor, pipeline and expert parallel ranks, and virtual stages that layers allow
    MIXTRAL: (2, 8, 4, (1, 7)),
    QWEN: (2, 4, 4, (1, 7)),
    FINE: (2, 8, 8, (1, 7)),
    LLAMA: (8, 8, 4, (1, 2, 5, 10)),
}
SCALED = {MIXTRAL: (128, 256, 512, 1024), QWEN: (64, 256, 1024), FINE: (128, 1024), LLAMA: (256, 1024)}
FOLDED = {MIXTRAL: (8,), QWEN: (4, 8)}
"""Expert-parallel ranks of folded rows, of which the fastest is taken."""
FLAT = {MIXTRAL: (4, 8), QWEN: (4, 4)}
"""Tensor and expert-parallel ranks without a pipeline."""


@cache
def _model(name: str) -> Model:
    mixtral = load_model("mixtral-8x22b")
    of = mixtral.blocks[0].ffn
    assert isinstance(of, MoeFfn)
    if name == MIXTRAL:
        return mixtral
    if name == QWEN:
        return load_model("qwen2-57b-a14b")
    if name == FINE:
        return _with(mixtral, name, replace(of, experts=64, topk=8, inner=of.inner // 8))
    llama = load_model("llama-3-70b")
    dense = llama.blocks[0].ffn
    assert isinstance(dense, DenseFfn)
    return _with(llama, name, replace(of, inner=dense.inner))


def _with(model: Model, name: str, ffn: MoeFfn) -> Model:
    return replace(model, name=name, blocks=tuple(replace(block, ffn=ffn) for block in model.blocks))


@cache
def _flops(name: str, batch: int) -> float:
    """Three times those of a forward pass: matrices that a token meets, and attention over the whole square."""
    model = _model(name)
    matrices = model.active_parameters - model.vocab * model.hidden
    attention = 0
    for block in model.blocks:
        assert isinstance(block.mixer, AttentionMixer)
        attention += 12 * block.count * block.mixer.heads * block.mixer.head_dim * SEQ
    return float(batch * SEQ * (6 * matrices + attention))


def _rate(found: TrainingReport, name: str) -> float:
    """FLOP/s of a GPU."""
    flops = _flops(name, found.step.job.load.global_batch)
    return float(flops / (found.step_time_s.value * found.plan.strategy.ranks))


def _fastest(name: str, chips: int, batch: int, virtual: tuple[int, ...], **words: Any) -> float:
    """FLOP/s of the fastest plan that fits, of those that differ in what is not published."""
    found: list[tuple[bool, float]] = []
    for parts in virtual:
        for recompute in ("none", "selective"):
            common: dict[str, Any] = {
                "seq": SEQ,
                "global_batch": batch,
                "capacity_factor": 1.0,
                "engine": "megatron",
                "zero": 1,
            }
            plan = common | {"vp": parts, "recompute": recompute} | words
            try:
                answer = gnomon.simulate_training(_model(name), on=f"H100-SXM-80GB:{chips}", **plan)
            except InputError:  # so many virtual stages need another number of micro-batches
                continue
            found.append((answer.fits, _rate(answer, name)))
    return max(found)[1]


@cache
def _unfolded(name: str, chips: int, batch: int) -> float:
    tensor, stages, experts, virtual = DEGREES[name]
    return _fastest(name, chips, batch, virtual, tp=tensor, pp=stages, ep=experts)


@cache
def _folded(name: str, chips: int, batch: int, dtype: str = "bf16") -> float:
    tensor, stages, _, virtual = DEGREES[name]
    words = {"tp": tensor, "pp": stages, "expert_tp": 1, "dtype": dtype}
    return max(_fastest(name, chips, batch, virtual, ep=experts, **words) for experts in FOLDED[name])


def figures() -> Iterator[Ours]:
    for name, sizes in SCALED.items():
        for chips in sizes:
            yield f"{name} on {chips:,}, batch 1,024: MFU", 100 * _unfolded(name, chips, 1024) / PEAK
    for name, chips in ((MIXTRAL, 128), (QWEN, 64)):
        where, plain, folded = f"{name} on {chips}, table 1", _unfolded(name, chips, 256), _folded(name, chips, 256)
        yield f"{where}, unfolded: MFU", 100 * plain / PEAK
        yield f"{where}, folded: MFU", 100 * folded / PEAK
        yield f"{where}: folded over unfolded", folded / plain
        tensor, experts = FLAT[name]
        yield f"{where}, TP, EP and DP: MFU", 100 * _fastest(name, chips, 256, (1,), tp=tensor, ep=experts) / PEAK
    yield "Mixtral 8x22B on 128, FP8, folded: a GPU", _folded(MIXTRAL, 128, 256, "fp8") / TERA
