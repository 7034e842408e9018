"""Fuyou (Liao et al. 2024): GPT-3 of 13 and 175 billion parameters trained on one RTX 4090 with its states on SSDs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import gnomon
from gnomon.papers.base import Ours
from gnomon.papers.machines import cluster, host
from gnomon.papers.shapes import network, plain_layers
from gnomon.spec import Model, Pool
from gnomon.spec.answers import TrainingReport

SEQ, VOCAB = 1024, 50_257
FLOPS, TERA = 6, 1e12
SIZES = {"13B": (40, 5120, 40), "175B": (96, 12288, 96)}
MEMORY_GB_S = 409.6
"""16 channels of DDR4-3200."""
READ, WRITE, SSD_TB = 7.0, 4.2, 3.84
ADAM_GPARAM_S = 6.3
"""46% of the memory's bandwidth at 30 bytes per parameter, as of the catalog's hosts."""
STATES = "offload-optimizer:tier=nvme"
SWAPS = (
    ("full", "offload-activations"),
    ("op", "offload-activations"),
    ("none", "offload-activations"),
    ("none", "offload-activations:share=0.75"),
    ("none", "offload-activations:share=0.5"),
)
"""What is recomputed, and what of the rest is copied to the host."""
TABLE = (("13B", 8, 12), ("13B", 16, 12), ("13B", 32, 12), ("13B", 128, 12), ("175B", 8, 12), ("175B", 16, 12),
         *(("13B", batch, ssds) for batch in (32, 64) for ssds in (1, 2, 3, 6)))  # fmt: skip


@cache
def _pool(ssds: int) -> Pool:
    one = host(cores=52, memory_gib=768, memory_gb_s=MEMORY_GB_S, adam_gparam_s=ADAM_GPARAM_S, link_gb_s=31.5)
    disks = {"nvme_tb": SSD_TB * ssds, "nvme_read_gb_s": READ * ssds, "nvme_write_gb_s": WRITE * ssds}
    return cluster("RTX-4090", 1, 1, one | disks)


@cache
def _model(name: str) -> Model:
    layers, hidden, heads = SIZES[name]
    blocks = plain_layers(layers, hidden, heads, 4 * hidden)
    fields = {"hidden": hidden, "vocab": VOCAB, "max_context": SEQ, "learned_positions": SEQ, "norm_bias": True}
    return network("gpt3", **fields, tied_embeddings=True, blocks=blocks)


def _step(
    name: str, batch: int, ssds: int, recompute: str, *techniques: str, engine: str = "torchtitan", dtype: str = "bf16"
) -> TrainingReport:
    return gnomon.simulate_training(
        _model(name), on=_pool(ssds), seq=SEQ, global_batch=batch, micro_batch=batch, recompute=recompute,
        techniques=["offload-parameters:tier=nvme", *techniques], engine=engine, dtype=dtype,
    )  # fmt: skip


def _fuyou(name: str, batch: int, ssds: int = 12) -> list[TrainingReport]:
    """Every way to swap that fits; recomputing all but the inputs of layers where none does."""
    found = [_step(name, batch, ssds, recompute, f"{STATES},update=beside", swap) for recompute, swap in SWAPS]
    return [one for one in found if one.fits] or found[:1]


def _tflops(name: str, batch: int, found: list[TrainingReport]) -> float:
    seconds = min(one.step_time_s.value for one in found)
    return float(FLOPS * _model(name).parameters * batch * SEQ / seconds / TERA)


def figures() -> Iterator[Ours]:
    yield "13B, 64 sequences", _tflops("13B", 64, _fuyou("13B", 64))
    plain = _step("13B", 64, 12, "full", STATES, engine="deepspeed@0.14", dtype="fp16")
    yield "13B under ZeRO-Infinity", _tflops("13B", 64, [plain])
    for batch in (16, 32):
        yield f"175B fits with {batch} sequences (1 for yes)", float(_fuyou("175B", batch)[0].fits)
    for name, batch, ssds in TABLE:
        disks = "" if ssds == 12 else f", {ssds} SSD" + "s" * (ssds > 1)
        yield f"{name}, {batch} sequences{disks}", _tflops(name, batch, _fuyou(name, batch, ssds))
