"""vLLM's own share of a step, measured: see `overheads.yaml` for the figures, the machine and the date."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.cost.compiled import HostCost
from gnomon.engines.own import own_overheads, own_path
from gnomon.errors import CalibrationError
from gnomon.spec import Model
from gnomon.spec.estimate import DRAWS

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
        draws = np.random.default_rng(zlib.crc32(self.source.encode())).standard_normal(DRAWS)
        return np.asarray(np.exp(self.spread * draws))

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
    kind = "moe" if model.is_moe else "dense"
    own = own_overheads("vllm")
    if own is not None and kind in own["figures"]:
        return _own(own, kind)
    table = _table()
    return Overheads.of(table["figures"][kind], f"vLLM {table['version']}, {table['date']}")


def _own(table: Mapping[str, Any], kind: str) -> Overheads:
    """The figures that the user measured, on the host they run it on."""
    try:
        return Overheads.of(table["figures"][kind], f"vLLM {table['version']}, {table['date']}, on your own host")
    except (KeyError, TypeError, AttributeError) as problem:
        hint = "Remove it, or calibrate again."
        raise CalibrationError(f"is not whole ({kind}: {problem})", where=str(own_path("vllm")), hint=hint) from None
