"""`chips`, `models` and `papers`: what there is."""

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


FIRST_YEAR, LAST_YEAR = 1900, 9999
MOST_JOBS, MOST_FOUND = 64, 1_000_000
FOLDER_HELP = "Papers of your own too, from this folder of folders, beside those of Gnomon's own."
CODE_HELP = "Run the Python of papers of your own."


@dataclass(frozen=True, slots=True, kw_only=True)
class PapersQuestion(Question):
    """The papers Gnomon knows, or some of them."""

    topic: str | None = flag("--topic", "text", "TOPIC", "Only those on this topic.", default=None)
    status: str | None = flag("--status", "text", "STATUS", "Only those of this status.", default=None)
    category: str | None = flag("--shelf", "text", "SHELF", "Only those of this topic group.", default=None)
    cluster: str | None = flag("--cluster", "text", "CLUSTER", "Only those of this cluster.", default=None)
    hardware: str | None = flag("--hardware", "text", "NAME", "Only those that used this hardware.", default=None)
    since: int | None = flag(
        "--since", "size", "YEAR", "Only those of this year or later.", default=None, least=FIRST_YEAR, most=LAST_YEAR
    )
    folder: str | Path | None = flag("--papers", "plain", "DIR", FOLDER_HELP, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperSearchQuestion(Question):
    """Papers by what they say."""

    words: str = argument("plain", "WORDS", "What it is about.")
    limit: int = flag("--limit", "size", "N", "How many, at most.", default=10, most=MOST_FOUND)
    folder: str | Path | None = flag("--papers", "plain", "DIR", FOLDER_HELP, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperQuestion(Question):
    """One paper; without a name, all that are reproduced, in processes."""

    slug: str | None = argument("plain", "SLUG", "A paper's name.")
    jobs: int = flag("--jobs", "size", "N", "Processes that share all papers.", default=1, most=MOST_JOBS)
    folder: str | Path | None = flag("--papers", "plain", "DIR", FOLDER_HELP, default=None)
    allow_code: bool = flag("--allow-code", "switch", "", CODE_HELP, default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPaperQuestion(Question):
    """A folder for a paper of your own."""

    slug: str = argument("plain", "SLUG", "A name for it: lowercase letters, digits and dashes.")
    arxiv: str | None = flag("--arxiv", "text", "ID", "Its arXiv number: 2104.04473.", default=None)
    out: str | Path | None = flag("--out", "plain", "DIR", "Make it here, not in Gnomon's own folder.", default=None)
