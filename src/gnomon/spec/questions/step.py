"""`predict`, `fit` and `ops`: one step, the memory it runs in, and single operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gnomon.spec.questions.base import COUNTS, Question, argument, flag
from gnomon.spec.questions.parts import MODEL_HELP, ServedQuestion, degree, power_limit

if TYPE_CHECKING:
    from pathlib import Path

    from gnomon.spec.cluster import Pool
    from gnomon.spec.model import Model

ANY_ENGINE_HELP = "The engine that runs it: vllm where it can, else torch."
SCRIPT_HELP = (
    " Or SCRIPT.py:FUNCTION of your own, which is imported and run: it returns (module, inputs), any torch module and "
    "what to call it with; or a FILE.trace.json of one that was traced before."
)
SUSTAINED_HELP = (
    "At the clock that the chip keeps under its power limit if it runs this step without end; else at its full clock."
)
PHASE_HELP = (
    "prefill, decode (where not given) or train; of an encoder prefill, one pass in both directions; of a diffusion "
    "transformer forward, one step; of a module, forward or train."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictQuestion(ServedQuestion):
    """Time, memory, energy and cost of one step."""

    model: str | Path | Model = argument("model", "MODEL", MODEL_HELP + SCRIPT_HELP)
    phase: str | None = flag("--phase", "phase", "PHASE", PHASE_HELP, default=None)
    batch: int | None = flag(
        "--batch", "whole", "B", "Sequences in the step: 1, or what a module's inputs have.", default=None
    )
    tokens: int | None = flag(
        "--tokens",
        "whole",
        "T",
        f"New tokens of each sequence, of text; patches of a diffusion transformer's sample. {COUNTS}",
        default=None,
    )
    context: int = flag("--context", "whole", "C", f"Tokens already in the cache. {COUNTS}", default=0, least=0)
    source: int | None = flag(
        "--source",
        "whole",
        "S",
        "Tokens or frames that an encoder-decoder's encoder reads; all it takes where not given.",
        default=None,
    )
    images: int | None = flag(
        "--images",
        "whole",
        "N",
        "Images of each sequence, for a model with a vision tower: 1 where not given.",
        default=None,
        least=0,
    )
    image: str | None = flag(
        "--image",
        "text",
        "WxH",
        "Pixels of an image, or of a diffusion transformer's sample; the model's own size, or 1024x1024.",
        default=None,
    )
    steps: int | None = flag(
        "--steps",
        "whole",
        "N",
        "Steps of a diffusion transformer, or forward passes of a traced module: 1.",
        default=None,
    )
    engine: str | None = flag("--engine", "any_engine", "NAME[@VERSION]", ANY_ENGINE_HELP, default=None)
    dp: int | None = degree("dp", "Data", " Ranks with sequences of their own.", default=None)
    sustained: bool = flag("--sustained", "switch", "", SUSTAINED_HELP, default=False)
    power_limit_w: float | None = power_limit(" Implies --sustained.")

    @property
    def sequences(self) -> int:
        """Those of the step: one where none are named."""
        return 1 if self.batch is None else self.batch

    @property
    def clock_inputs(self) -> dict[str, bool]:
        """Of the inputs of an answer, whether the step is at the clock that the chip sustains."""
        return {"sustained": True} if self.sustained or self.power_limit_w is not None else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class FitQuestion(ServedQuestion):
    """Whether a model fits to be served, and what would make it fit."""

    engine: str | None = flag("--engine", "any_engine", "NAME[@VERSION]", ANY_ENGINE_HELP, default=None)
    context: int | None = flag("--context", "whole", "C", f"Tokens of each sequence. {COUNTS}", default=None)
    dp: int = degree("dp", "Data", " Ranks with sequences of their own.")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsQuestion(Question):
    """Times of single operators, added to a table of them."""

    source: str | Path | Mapping[str, Any] | Iterable[Mapping[str, Any]] = argument(
        "plain", "FILE.csv", "One operator a line."
    )
    on: str | Pool = flag("--on", "chips", "CHIP", "The chip.")
