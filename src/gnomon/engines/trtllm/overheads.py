"""TensorRT-LLM's own share of a step, fitted: see `overheads.yaml` for the figures and the rows they are from."""

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
from gnomon.engines.trtllm.graphs import UnpaddedHost

FILE = Path(__file__).parent / "overheads.yaml"
RANGES = {
    "gap_us": (0.0, 5000.0),
    "gap_sequence_us": (0.0, 100.0),
    "decode_base_us": (100.0, 20000.0),
    "decode_sequence_us": (0.0, 200.0),
    "response_us": (0.0, 400.0),
    "eager_base_us": (100.0, 40000.0),
    "eager_layer_us": (0.0, 3000.0),
    "launch_sequence_us": (0.0, 200.0),
    "launch_prompt_us": (0.0, 2000.0),
    "idle_start_us": (0.0, 20000.0),
    "request_us": (0.0, 2e4),
    "output_us": (0.0, 2e3),
    "ingress_us": (0.0, 1e5),
    "egress_us": (0.0, 1e5),
    "egress_sequence_us": (0.0, 2e3),
    "tokenize_us": (0.0, 100.0),
    "spread": (0.0, 3.0),
}
"""What each figure may be: microseconds, by layer, sequence, prompt, request, output token or token of a
prompt's text (`tokenize_us`, as measured of the tokenizers that serving engines share) where the name says so."""
SERVE, BENCH = "trtllm-serve", "trtllm-bench"
SERVED_BY = (SERVE, BENCH)
FRONT = ("ingress", "egress", "request", "output", "egress_sequence", "tokenize")
BY_INTERVAL = ("output", "egress_sequence")
"""Work on tokens that leave, which is done once for as many as a client gets at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrtllmOverheads:
    """The host under one version of TensorRT-LLM."""

    figures: Mapping[str, float]
    http: Mapping[str, float]
    """Those that differ behind the HTTP server."""
    source: str

    def _s(self, name: str) -> float:
        return self.figures[f"{name}_us"] * 1e-6

    def host(self, layers: int, captured: tuple[int, ...], padded: bool, responses: float) -> HostModel:
        """What the engine adds to the operators of so many layers, where a sequence has so many responses in a step.
        Steps with prompts are launched kernel by kernel whatever their size."""
        eager = self._s("eager_base") + self._s("eager_layer") * layers
        told = self._s("response") * responses
        times: dict[str, Any] = {
            "eager_launch_s": eager,
            "captured_launch_s": eager,
            "decode_base_s": self._s("decode_base"),
            "decode_sequence_s": self._s("decode_sequence") + told,
            "gap_base_s": self._s("gap"),
            "gap_sequence_s": self._s("gap_sequence"),
            "launch_sequence_s": self._s("launch_sequence") + told,
            "launch_prompt_s": self._s("launch_prompt"),
            "spread": self.figures["spread"],
            "source": self.source,
        }
        if padded or not captured:
            return HostModel(captured=captured, **times)
        return UnpaddedHost(captured=tuple(range(1, captured[-1] + 1)), graphs=frozenset(captured), **times)

    def latencies(self, settings: Mapping[str, Any], draw: int | None = None) -> dict[str, Any]:
        """Seconds of a request outside its steps, as `ServingLimits` has them; under a draw, as slow as the host is."""
        factor = 1.0 if draw is None else float(self.host(0, (), True, 0.0).factors[draw])
        figures = {**self.figures, **(self.http if settings["served_by"] == SERVE else {})}
        seconds = {f"{name}_s": factor * figures[f"{name}_us"] * 1e-6 for name in (*FRONT, "idle_start")}
        for name in BY_INTERVAL:
            seconds[f"{name}_s"] /= int(settings["stream_interval"])
        return seconds


def responses(settings: Mapping[str, Any]) -> float:
    """Of a sequence in a step: the executor's loop makes one whenever the client gets tokens (`stream_interval`), which
    of `trtllm-bench` is at the end."""
    return 1 / int(settings["stream_interval"]) if settings["served_by"] == SERVE else 0.0


@cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = packaged(FILE)
    return found


def overheads(deployment: Deployment) -> TrtllmOverheads:
    """The shipped figures, or the user's own where they were measured."""
    table = _table()
    figures, http = table["figures"], table["front_ends"][SERVE]
    own = figures_of(deployment.overheads, "trtllm", "all", RANGES)
    if own is not None:
        return TrtllmOverheads(
            figures=own.figures, http=http, source=f"TensorRT-LLM {own.version}, {own.date}, your own host"
        )
    source = f"TensorRT-LLM {table['version']}, {table['date']}, published loads"
    host = deployment.overheads.get(SPEED)
    if host is None:
        return TrtllmOverheads(figures=figures, http=http, source=source)
    slower, http_slower = (
        {name: value / host["speed"] if name.endswith("_us") else value for name, value in each.items()}
        for each in (figures, http)
    )
    return TrtllmOverheads(figures=slower, http=http_slower, source=f"{source}, {host['source']}")
