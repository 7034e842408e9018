"""`chips` and `models`: what there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnomon.spec.questions.base import Question, argument, flag

if TYPE_CHECKING:
    from pathlib import Path

SORTS_HELP = "By family (the default), name, memory, bandwidth, rate, power or price."


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipsQuestion(Question):
    """The chips Gnomon knows."""

    name: str | None = None
    """One chip, opened up."""
    vendor: str | None = flag("--vendor", "text", "NAME", "Only this maker's.", default=None)
    architecture: str | None = flag("--architecture", "text", "NAME", "Only this one's.", default=None)
    memory: str | float | None = flag("--memory", "text", "SIZE", "This much at least: 80GB.", default=None)
    sort: str = flag("--sort", "order", "ORDER", SORTS_HELP, default="family")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewChipQuestion(Question):
    """A file that describes a chip of your own."""

    name: str = argument("plain", "NAME", "The name of a chip of your own.")
    like: str = flag("--like", "chips", "CHIP", "The chip whose figures to begin with.", default="H100")
    replace: bool = flag("--replace", "switch", "", "Take the place of the shipped chip of that name.", default=False)
    out: str | Path | None = flag(
        "--out", "plain", "FILE.yaml", "Write it here, not into Gnomon's own folder.", default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsQuestion(Question):
    """The models Gnomon knows."""

    name: str | None = None
    """One model, opened up."""
    find: str | None = flag("--find", "text", "WORDS", "Only those with these in their names.", default=None)
    kind: str | None = flag("--kind", "model_kind", "KIND", "Only dense, moe, hybrid, encoder, …", default=None)
