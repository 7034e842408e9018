"""SGLang's own share of a step: see `overheads.yaml` for the figures, what they were fitted to and the date."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gnomon.catalog.base import packaged
from gnomon.cost.host import HostModel
from gnomon.engines.base import Deployment
from gnomon.engines.own import SPEED, figures_of
from gnomon.engines.sglang import graphs
from gnomon.engines.vllm.overheads import LATER, RANGES, Overheads

FILE = Path(__file__).parent / "overheads.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangHost(HostModel):
    """Steps with prompts have captured sizes of their own, beyond the largest decode step's."""

    decodes: int = 0
    """Sequences of the largest captured decode step."""
    kernels_s: float = 0.0
    """To launch a decode step kernel by kernel."""

    def decode(self, sequences: float) -> float:
        least = self.decode_base_s + self.decode_sequence_s * sequences
        return least if sequences <= self.decodes else max(least, self.kernels_s)


@cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = packaged(FILE)
    return found


def overheads(deployment: Deployment) -> Overheads:
    """Figures for a model, by whether it has experts."""
    kind, table = "moe" if deployment.model.is_moe else "dense", _table()
    figures = dict(table["figures"][kind])
    own = figures_of(deployment.overheads, "sglang", kind, RANGES, LATER)
    if own is not None:
        return Overheads(figures={**figures, **own.figures}, source=f"SGLang {own.version}, {own.date}, your own host")
    source, host = f"SGLang {table['version']}, {table['date']}", deployment.overheads.get(SPEED)
    if host is not None:
        figures = {name: value / host["speed"] if name.endswith("_us") else value for name, value in figures.items()}
        source = f"{source}, {host['source']}"
    return Overheads(figures=figures, source=source)


def captured_sizes(deployment: Deployment) -> tuple[int, ...]:
    """Tokens of captured steps: of decodes, and beyond their largest of steps with prompts."""
    settings, strategy = deployment.settings, deployment.strategy
    decodes = graphs.decode_sizes(settings, deployment.pool.chip, strategy)
    most = decodes[-1] if decodes else 0
    prompts = graphs.prompt_sizes(settings, deployment.model, strategy)
    return (*decodes, *(size for size in prompts if size > most))


def host(deployment: Deployment, layers: int) -> SglangHost:
    """What the engine adds to the operators of so many layers."""
    plain = overheads(deployment).host(layers, captured_sizes(deployment))
    decodes = graphs.decode_sizes(deployment.settings, deployment.pool.chip, deployment.strategy)
    known = {name: getattr(plain, name) for name in HostModel.__dataclass_fields__}
    return SglangHost(**known, decodes=decodes[-1] if decodes else 0, kernels_s=plain.eager_launch_s)
