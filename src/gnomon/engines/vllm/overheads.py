"""vLLM's own share of a step, measured: see `overheads.yaml` for the figures, the machine and the date."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gnomon.spec import Model

FILE = Path(__file__).parent / "overheads.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Host seconds of a step: a base, and parts that grow with the layers and the sequences."""

    base_s: float
    layer_s: float
    sequence_s: float

    def seconds(self, layers: int, sequences: int) -> float:
        return self.base_s + self.layer_s * layers + self.sequence_s * sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    """One kind of model under one version of vLLM."""

    decode: Launch
    captured: Launch
    eager: Launch
    gap_s: float
    """Device time between the kernels of one step and the next, whatever they do."""
    gap_sequence_s: float
    ingress_s: float
    egress_s: float
    idle_start_s: float
    source: str


@cache
def _table() -> dict[str, Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: dict[str, Any] = yaml.load(FILE.read_bytes(), Loader=loader)
    return found


def overheads(model: Model) -> Overheads:
    """Figures for a model: mixtures of experts run on vLLM's first model runner, dense models on its second."""
    table = _table()
    figures = table["figures"]["moe" if model.is_moe else "dense"]
    return Overheads(
        decode=_launch(figures["decode"]),
        captured=_launch(figures["captured"]),
        eager=_launch(figures["eager"]),
        gap_s=figures["gap_us"] * 1e-6,
        gap_sequence_s=figures["gap_sequence_us"] * 1e-6,
        ingress_s=figures["ingress_us"] * 1e-6,
        egress_s=figures["egress_us"] * 1e-6,
        idle_start_s=figures["idle_start_us"] * 1e-6,
        source=f"vLLM {table['version']}, {table['date']}",
    )


def _launch(figures: Mapping[str, float]) -> Launch:
    return Launch(
        base_s=figures["base_us"] * 1e-6,
        layer_s=figures["layer_us"] * 1e-6,
        sequence_s=figures["sequence_us"] * 1e-6,
    )
