"""Fields that several questions share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gnomon.spec.questions.base import FLAG, Flag, Question, argument, flag

if TYPE_CHECKING:
    from pathlib import Path

    from gnomon.spec.cluster import Pool
    from gnomon.spec.model import Model

MODEL_HELP = "A known name, a hub id, or a folder with a config.json."
ON_HELP = "The chip, and how many of it; or a chip's or a cluster's YAML file."
SETTINGS_HELP = "An engine setting; may be repeated. {settings}"
ENGINE_HELP = "The engine that runs it."
POWER_LIMIT_HELP = "Watts that each chip may draw, below its own limit; time and energy follow."
WITH_HELP = (
    "A technique, such as int4-weights or offload-optimizer:stride=2; `gnomon techniques` lists them; in plans, auto "
    "weighs them."
)


def settings() -> Any:
    """`--set KEY=VALUE`, any number of them."""
    made = Flag(names=("--set",), kind="settings", metavar="KEY=VALUE", help=SETTINGS_HELP)
    return field(default_factory=dict, metadata={FLAG: made})


def techniques() -> Any:
    """`--with TECHNIQUE`, any number of them."""
    return flag("--with", "techniques", "TECHNIQUE", WITH_HELP, default=())


def power_limit(note: str = "") -> Any:
    """`--power-limit W`."""
    return flag("--power-limit", "watts", "W", f"{POWER_LIMIT_HELP}{note}", default=None)


def degree(name: str, what: str, note: str = "", *, default: int | None = 1) -> Any:
    return flag(f"--{name}", "whole", "N", f"{what} parallel degree.{note}", default=default)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedQuestion(Question):
    """One replica of a model under a serving engine."""

    model: str | Path | Model = argument("model", "MODEL", MODEL_HELP)
    on: str | Pool = flag("--on", "chips", "CHIP[:N]", ON_HELP)
    dtype: str | None = flag("--dtype", "dtype", "D", "Number format of the weights, such as fp8.", default=None)
    kv_dtype: str | None = flag("--kv-dtype", "kv_dtype", "D", "Number format of the KV cache.", default=None)
    tp: int | None = degree("tp", "Tensor", " All chips of --on where it is not given.", default=None)
    pp: int = degree("pp", "Pipeline", " Stages that layers are shared among.")
    ep: int = degree("ep", "Expert", " Ranks that full experts are spread over.")
    cp: int = degree("cp", "Context", " Ranks that share the tokens of a sequence.")
    dp: int | None = degree("dp", "Data", " Ranks with sequences of their own.")
    settings: Mapping[str, Any] | None = settings()
    techniques: Sequence[str] = techniques()
