"""vLLM's own share of a step, measured: see `overheads.yaml` for the figures, the machine and the date."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gnomon.cost.host import HostModel
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

    def host(self, layers: int, captured: tuple[int, ...]) -> HostModel:
        """What the engine adds to the operators of so many layers."""
        return HostModel(
            eager_launch_s=self.eager_base_s + self.eager_layer_s * layers,
            captured_launch_s=self.captured_base_s + self.captured_layer_s * layers,
            decode_base_s=self.decode_base_s,
            decode_sequence_s=self.decode_sequence_s,
            gap_base_s=self.gap_s,
            gap_sequence_s=self.gap_sequence_s,
            captured=captured,
            spread=self.spread,
            source=self.source,
        )

    def latencies(self, draw: int | None = None) -> dict[str, Any]:
        """Seconds of a request outside its steps, as `ServingLimits` has them; under a draw, as slow as the host is."""
        factor = 1.0 if draw is None else float(self.host(0, ()).factors[draw])
        return {name: factor * getattr(self, name) for name in ("ingress_s", "egress_s", "idle_start_s")}


@cache
def _table() -> dict[str, Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: dict[str, Any] = yaml.load(FILE.read_bytes(), Loader=loader)
    return found


def overheads(deployment: Deployment) -> Overheads:
    """Figures for a model: mixtures of experts run on vLLM's first model runner, dense models on its second."""
    kind = "moe" if deployment.model.is_moe else "dense"
    own = figures_of(deployment.overheads, "vllm", kind, RANGES)
    if own is not None:
        return Overheads.of(own.figures, f"vLLM {own.version}, {own.date}, on your own host")
    table = _table()
    return Overheads.of(table["figures"][kind], f"vLLM {table['version']}, {table['date']}")
