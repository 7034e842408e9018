"""`import` and `tune`: a deployment that runs already, as a plan, and what to change in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnomon.spec.questions.base import Question, argument, flag

if TYPE_CHECKING:
    from pathlib import Path

    from gnomon.spec.cluster import Pool

SOURCE_HELP = (
    "A command in quotes, a shell script, a Kubernetes manifest, a compose file, or an engine's configuration file."
)
ON_HELP = "The chip where the command does not say it; with N, the chips of all replicas together."
MODEL_HELP = "The known model whose weights they are, where the command's name of it is not known."
LENGTHS_HELP = "Tokens of the sequences that it trains on, which commands do not say: as `simulate train` takes them."
DTYPE_HELP = "Number format of the weights, where their checkpoint cannot be opened."


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportQuestion(Question):
    """A running deployment's command or files as a plan."""

    source: str | Path = argument("plain", "COMMAND_OR_FILE", SOURCE_HELP)
    on: str | Pool | None = flag("--on", "chips", "CHIP[:N]", ON_HELP, default=None)
    model: str | None = flag("--model", "model", "MODEL", MODEL_HELP, default=None)
    dtype: str | None = flag("--dtype", "dtype", "D", DTYPE_HELP, default=None)
    lengths: int | str | None = flag("--lengths", "length", "DISTRIBUTION", LENGTHS_HELP, default=None)
