"""From FLOPs to Footprints (Falk et al. 2025): A100 whose service life the training of GPT-4 takes."""

from __future__ import annotations

from collections.abc import Iterator

import gnomon
from gnomon.papers.base import Ours

CHIP, FORMAT = "A100-SXM-40GB", "bf16"
TRAINING_FLOPS = 1.7316e25
YEAR_S, PERCENT = 365 * 24 * 3600.0, 100.0
LEAST, MOST, LONG = 0.2, 0.6, 5
"""Utilisations, and years of the longest life."""


def _gpus(utilisation: float, years: float) -> float:
    (chip,) = gnomon.chips(CHIP).chips
    return float(TRAINING_FLOPS / (chip["rates_flops"][FORMAT] * utilisation * years * YEAR_S))


def figures() -> Iterator[Ours]:
    yield "A100 for GPT-4 at 35% for two years", _gpus(0.35, 2)
    yield "A100 for GPT-4 at 50% for three years", _gpus(0.5, 3)
    yield "A100 for GPT-4 at 20% for five years", _gpus(LEAST, LONG)
    yield "saved by 60% for 20%", PERCENT * (1 - _gpus(MOST, 1) / _gpus(LEAST, 1))
    yield "saved by 60% and five times the life", PERCENT * (1 - _gpus(MOST, LONG) / _gpus(LEAST, 1))
