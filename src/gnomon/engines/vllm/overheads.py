"""vLLM's own share of a step, measured: see `overheads.yaml` for the figures, the machine and the date."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.catalog.base import packaged
from gnomon.cost.compiled import HostCost
from gnomon.cost.draws import normals
from gnomon.engines.base import Deployment
from gnomon.engines.own import figures_of

FILE = Path(__file__).parent / "overheads.yaml"
DECODE = {
    "gap_us": (150.0, 0.0, 1000.0),
    "gap_sequence_us": (3.0, 0.0, 20.0),
    "decode_base_us": (1900.0, 200.0, 5000.0),
    "decode_sequence_us": (18.0, 0.0, 60.0),
}
LAUNCH = {
    "captured_base_us": (5000.0, 500.0, 15000.0),
    "captured_layer_us": (80.0, 0.0, 600.0),
    "eager_base_us": (6000.0, 500.0, 20000.0),
    "eager_layer_us": (500.0, 0.0, 3000.0),
    "idle_start_us": (3000.0, 0.0, 9000.0),
}
"""Each figure's start, least and most; microseconds, by layer or by sequence where the name says so."""
RANGES = {
    **{name: (least, most) for name, (_, least, most) in (DECODE | LAUNCH).items()},
    "ingress_us": (0.0, 1e5),
    "egress_us": (0.0, 1e5),
    "spread": (0.0, 3.0),
}
"""What each figure of a file may be."""


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
    spread: float
    """Standard deviation of the logarithm of a first token's time, simulated over measured."""
    source: str

    @classmethod
    def of(cls, figures: Mapping[str, float], source: str) -> Overheads:
        """From figures in microseconds, as `overheads.yaml` has them."""
        seconds = {n.removesuffix("_us") + "_s": value * 1e-6 for n, value in figures.items() if n.endswith("_us")}
        return cls(**seconds, spread=figures["spread"], source=source)

    def host(self, layers: int, captured: tuple[int, ...]) -> HostCost:
        """What the engine adds to the operators of a model of so many layers."""
        return HostCost(
            decode=self.decode,
            captured_launch_s=self.captured(layers),
            eager_launch_s=self.eager(layers),
            gap=self.gap,
            captured=captured,
        )

    def drawn(self, draw: int) -> Overheads:
        """All of it slower or quicker by one draw of the spread."""
        factor = float(self.factors()[draw])
        times = {name: getattr(self, name) * factor for name in self.__dataclass_fields__ if name.endswith("_s")}
        return replace(self, **times)

    def factors(self) -> NDArray[np.float64]:
        """What each draw multiplies the engine's own times by."""
        return np.asarray(np.exp(self.spread * normals(self.source)))

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
    found: dict[str, Any] = packaged(FILE)
    return found


def overheads(deployment: Deployment) -> Overheads:
    """Figures for a model: mixtures of experts run on vLLM's first model runner, dense models on its second."""
    kind = "moe" if deployment.model.is_moe else "dense"
    own = figures_of(deployment.overheads, "vllm", kind, RANGES)
    if own is not None:
        return Overheads.of(own.figures, f"vLLM {own.version}, {own.date}, on your own host")
    table = _table()
    return Overheads.of(table["figures"][kind], f"vLLM {table['version']}, {table['date']}")
