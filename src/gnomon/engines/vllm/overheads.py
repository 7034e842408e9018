"""vLLM's own share of a step, measured: see `overheads.yaml` for the figures, the machine and the date."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gnomon.spec import Model

FILE = Path(__file__).parent / "overheads.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    """One kind of model under one version of vLLM, in seconds; per layer and per sequence where the name says so."""

    gap_s: float
    """Device time between the kernels of one step and the next, whatever they do."""
    gap_sequence_s: float
    decode_base_s: float
    """What the host needs for a decode step at least."""
    decode_sequence_s: float
    captured_base_s: float
    """Host time to prepare and launch a step with prompts from captured pieces."""
    captured_layer_s: float
    eager_base_s: float
    """The same for a step larger than any captured one."""
    eager_layer_s: float
    ingress_s: float
    egress_s: float
    idle_start_s: float
    source: str

    def gap(self, sequences: int) -> float:
        return self.gap_s + self.gap_sequence_s * sequences

    def decode(self, sequences: int) -> float:
        return self.decode_base_s + self.decode_sequence_s * sequences

    def captured(self, layers: int) -> float:
        return self.captured_base_s + self.captured_layer_s * layers

    def eager(self, layers: int) -> float:
        return self.eager_base_s + self.eager_layer_s * layers


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
    seconds = {name.removesuffix("_us") + "_s": value * 1e-6 for name, value in figures.items()}
    return Overheads(**seconds, source=f"vLLM {table['version']}, {table['date']}")
