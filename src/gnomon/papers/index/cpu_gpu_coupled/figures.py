"""CPU-GPU coupled systems (Vellaisamy et al. 2025): eager prefills of Llama-3.2-1B, bound by launches or by kernels."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

import gnomon
from gnomon.papers.base import Ours
from gnomon.spec.answers import ModulePrediction

LARGE = 64
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
LAUNCH = {"A100-SXM-80GB": 2260.5 / 2374.6, "H100-PCIe-80GB": 1.0, "GH200-96GB": 2771.6 / 2374.6}
"""Launch of a null kernel relative to that of the H100's host (table V)."""


@cache
def _price(chip: str, batch: int) -> ModulePrediction:
    """Prompts of 512 tokens in one step, kernel by kernel, at the clock that the chip sustains."""
    trace = Path(__file__).with_name(f"prefill-{batch}.trace.json.gz")
    found = gnomon.predict(trace, on=chip, settings={"sustained": True})
    assert isinstance(found, ModulePrediction)
    return found


def _kernels_s(chip: str, batch: int) -> float:
    return sum(line.time_s.value for line in _price(chip, batch).operators)


def _host_s(chip: str, batch: int) -> float:
    return LAUNCH[chip] * _price(chip, batch).host_s


def _step_s(chip: str, batch: int) -> float:
    return max(_kernels_s(chip, batch), _host_s(chip, batch))


def _bound_by_host(chip: str) -> float:
    """The batch at which launches and kernels take as long, between powers of two straight in logarithms."""
    shares = [np.log(_kernels_s(chip, batch) / _host_s(chip, batch)) for batch in BATCHES]
    return float(np.exp(np.interp(0.0, shares, np.log(BATCHES))))


def figures() -> Iterator[Ours]:
    a100, h100, gh200 = LAUNCH
    for name, chip in (("H100-PCIe", h100), ("A100", a100)):
        gain = _step_s(chip, LARGE) / _step_s(gh200, LARGE)
        yield f"prefill of {LARGE} prompts, GH200 over {name}", gain
    yield "largest CPU-bound batch, GH200 over A100", _bound_by_host(gh200) / _bound_by_host(a100)
