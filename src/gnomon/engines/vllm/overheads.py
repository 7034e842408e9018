"""vLLM's own share of a step, measured: see `overheads.yaml` for the figures, the machine and the date."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from gnomon.catalog.base import packaged
from gnomon.cost.host import HostModel
from gnomon.engines.base import Deployment
from gnomon.engines.own import SPEED, figures_of
from gnomon.engines.vllm.releases import FIRST, Release

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
BUSY = {
    "launch_sequence_us": (20.0, 0.0, 100.0),
    "launch_prompt_us": (150.0, 0.0, 1500.0),
    "idle_launch": (1.5, 1.0, 4.0),
}
"""What steps of an engine under load add to these, by sequence and by prompt, and how much longer a launch takes while
an idle engine wakes."""
FRONT = {
    "request_us": (400.0, 5.0, 2e4),
    "output_us": (16.0, 0.0, 2e3),
    "egress_us": (900.0, 0.0, 1e5),
    "egress_sequence_us": (25.0, 0.0, 2e3),
}
"""Of the front end: its work on a request and on an output token, and what an output takes to the client."""
RANGES = {
    **{name: (least, most) for name, (_, least, most) in (DECODE | LAUNCH | BUSY | FRONT).items()},
    "ingress_us": (0.0, 1e5),
    "spread": (0.0, 3.0),
}
"""What each figure of a file may be."""
LATER = (*BUSY, "request_us", "output_us", "egress_sequence_us")
"""Figures that files measured with earlier versions lack; the shipped ones stand in."""
IN_PROCESS, HTTP = "in_process", "http"
FRONT_ENDS = (HTTP, IN_PROCESS)
"""`vllm serve` behind its HTTP server, or the asynchronous engine called by a program of one's own."""
LATENCIES = ("ingress", "egress", "idle_start", "request", "output", "egress_sequence")
TOKENIZE = "tokenize"
"""Of a token of a prompt, which is text where it comes over HTTP; a program of one's own hands tokens over. vLLM 0.24
has one thread for it (`renderer_num_workers`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    """One kind of model under one version of vLLM."""

    figures: Mapping[str, float]
    """As `overheads.yaml` has them; `spread` is the standard deviation of the logarithm of a first token's time,
    simulated over measured."""
    source: str
    http: Mapping[str, float] = field(default_factory=dict)
    """Those that differ behind the HTTP server."""

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
            launch_sequence_s=self._s("launch_sequence"),
            launch_prompt_s=self._s("launch_prompt"),
            captured=captured,
            spread=self.figures["spread"],
            source=self.source,
        )

    def latencies(self, draw: int | None = None, front_end: str = IN_PROCESS) -> dict[str, Any]:
        """Seconds of a request outside its steps, as `ServingLimits` has them; under a draw, as slow as the host is."""
        factor = 1.0 if draw is None else float(self.host(0, ()).factors[draw])
        figures = {**self.figures, **(self.http if front_end == HTTP else {})}
        seconds = {f"{name}_s": factor * figures[f"{name}_us"] * 1e-6 for name in LATENCIES}
        seconds[f"{TOKENIZE}_s"] = factor * figures.get(f"{TOKENIZE}_us", 0.0) * 1e-6
        return seconds | {"idle_launch": figures["idle_launch"]}


@cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = packaged(FILE)
    return found


def overheads(deployment: Deployment, release: Release = FIRST) -> Overheads:
    """Figures for a model: mixtures of experts run on the measured version's first model runner, dense models on its
    second. Other releases have the same ones, as the source says, and an interval that has another kind's in it."""
    kind = "moe" if deployment.model.is_moe else "dense"
    own, table = figures_of(deployment.overheads, "vllm", kind, RANGES, LATER), _table()
    shipped, http = table["figures"][kind], table["front_ends"][HTTP]
    if own is not None and not release.host:
        figures = {**shipped, **own.figures}
        slower = figures["request_us"] / shipped["request_us"]
        http = {name: value * slower for name, value in http.items()}
        return Overheads(figures=figures, http=http, source=f"vLLM {own.version}, {own.date}, on your own host")
    figures, source = shipped, f"vLLM {table['version']}, {table['date']}"
    if release.host:
        ranks = release.gap_ranks_us if deployment.strategy.ranks > 1 else 0.0
        figures = {**shipped, **release.host, "gap_us": release.host["gap_us"] + ranks}
        source = f"{release.title}, fitted on {release.fitted_on}; tested on {release.tested_on}"
    elif not release.measured:
        source = f"{source}; not measured on {release.version}"
        figures = {**shipped, "spread": math.hypot(*(kind["spread"] for kind in table["figures"].values()))}
    host = deployment.overheads.get(SPEED)
    if host is not None:
        figures, http = (
            {name: value / host["speed"] if name.endswith("_us") else value for name, value in each.items()}
            for each in (figures, http)
        )
        source = f"{source}, {host['source']}"
    return Overheads(figures=figures, http=http, source=source)
