"""`try`: what a paper's idea would bring on a model and chips."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from gnomon.spec.questions.base import COUNTS, Question, argument, flag
from gnomon.spec.questions.parts import ON_HELP
from gnomon.spec.questions.training import MOST_BATCH, MOST_TOKENS, check_names, dtype, plan_places

if TYPE_CHECKING:
    from pathlib import Path

    from gnomon.spec.cluster import Pool
    from gnomon.spec.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class TryQuestion(Question):
    """What a paper's idea would bring on your model and chips."""

    TRAINING: ClassVar[tuple[str, ...]] = ("seq", "global_batch", "optimizer", "engine")
    """Fields that only ideas of training have."""
    SERVING: ClassVar[tuple[str, ...]] = ("batch", "context")
    slug: str = argument("plain", "SLUG", "A paper, or a technique by its own name.")
    model: str | Path | Model = flag("--model", "model", "MODEL", "A name, a folder, a config or shapes.")
    on: str | Pool = flag("--on", "chips", "CHIP[:N]", ON_HELP)
    seq: int | None = flag(
        "--seq", "whole", "S", f"In training: tokens of a sequence (8192). {COUNTS}", default=None, most=MOST_TOKENS
    )
    global_batch: int | None = flag(
        "--global-batch", "whole", "B", "In training: sequences of a step (8 a chip).", default=None, most=MOST_BATCH
    )
    batch: int | None = flag(
        "--batch", "whole", "N", "In serving: sequences of a step (8, or what fits).", default=None
    )
    context: int | None = flag("--context", "whole", "C", f"In serving: tokens of each (2048). {COUNTS}", default=None)
    optimizer: str | None = flag("--optimizer", "plain", "NAME", "In training: the optimizer (adamw).", default=None)
    dtype: str | None = dtype()
    engine: str | None = flag("--engine", "plain", "NAME", "In training: the engine (megatron).", default=None)

    def __post_init__(self) -> None:
        Question.__post_init__(self)
        check_names(self)

    @classmethod
    def places(cls) -> dict[str, str]:
        """The flag of every field of a plan that an error may be about."""
        return plan_places(cls)
