"""KurTail (Akhondzadeh et al. 2025): GPUs that hold a frozen 70B network while rotations are trained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import gnomon
from gnomon.load import model as load_model
from gnomon.papers.base import Ours
from gnomon.spec import Model

MODEL, CARD, TOKENS = "llama-3.1-70b", "H100", 2048
FROZEN = ("lora:rank=1",)
COUNTS = (1, 2, 4, 8, 16)


def _fits(model: Model, gpus: int) -> bool:
    found = gnomon.simulate_training(
        model, on=f"{CARD}:{gpus}", seq=TOKENS, global_batch=gpus, micro_batch=1, zero=3 if gpus > 1 else 0,
        recompute="full", techniques=FROZEN, engine="torch",
    )  # fmt: skip
    return found.fits


def _fewest(model: Model) -> int:
    return next((gpus for gpus in COUNTS if _fits(model, gpus)), 2 * COUNTS[-1])


def figures() -> Iterator[Ours]:
    whole = load_model(MODEL)
    yield "GPUs, end to end", _fewest(whole)
    yield "GPUs, layer by layer", _fewest(replace(whole, blocks=(replace(whole.blocks[0], count=1),)))
