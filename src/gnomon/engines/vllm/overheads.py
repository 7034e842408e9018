"""vLLM's own share of a step, measured: see `overheads.yaml` for the figures, the machine and the date."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gnomon.catalog.base import packaged
from gnomon.cost.host import HostModel
from gnomon.engines.base import Deployment
from gnomon.engines.own import SPEED, figures_of

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
    """One kind of model under one version of vLLM."""

    figures: Mapping[str, float]
    """As `overheads.yaml` has them; `spread` is the standard deviation of the logarithm of a first token's time,
    simulated over measured."""
    source: str

    def _s(self, name: str) -> float:
        return self.figures[f"{name}_us"] * 1e-6

    def host(self, layers: int, captured: tuple[int, ...]) -> HostModel:
        """What the engine adds to the operators of so many layers."""
        return HostModel(
            eager_launch_s=self._s("eager_base") + self._s("eager_layer") * layers,
            captured_launch_s=self._s("captured_base") + self._s("captured_layer") * layers,
            decode_base_s=self._s("decode_base"),
            decode_sequence_s=self._s("decode_sequence"),
            gap_base_s=self._s("gap"),
            gap_sequence_s=self._s("gap_sequence"),
            captured=captured,
            spread=self.figures["spread"],
            source=self.source,
        )

    def latencies(self, draw: int | None = None) -> dict[str, Any]:
        """Seconds of a request outside its steps, as `ServingLimits` has them; under a draw, as slow as the host is."""
        factor = 1.0 if draw is None else float(self.host(0, ()).factors[draw])
        return {f"{name}_s": factor * self._s(name) for name in ("ingress", "egress", "idle_start")}


@cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = packaged(FILE)
    return found


def overheads(deployment: Deployment) -> Overheads:
    """Figures for a model: mixtures of experts run on vLLM's first model runner, dense models on its second."""
    kind = "moe" if deployment.model.is_moe else "dense"
    own = figures_of(deployment.overheads, "vllm", kind, RANGES)
    if own is not None:
        return Overheads(figures=own.figures, source=f"vLLM {own.version}, {own.date}, on your own host")
    table = _table()
    figures, source = table["figures"][kind], f"vLLM {table['version']}, {table['date']}"
    host = deployment.overheads.get(SPEED)
    if host is not None:
        figures = {name: value / host["speed"] if name.endswith("_us") else value for name, value in figures.items()}
        source = f"{source}, {host['source']}"
    return Overheads(figures=figures, source=source)
