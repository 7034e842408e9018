"""`verify`, `launch`, `calibrate` and `trace`: what is run, measured or traced on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gnomon.spec.questions.base import Question, argument, flag

if TYPE_CHECKING:
    from pathlib import Path

    from gnomon.spec.cluster import Pool
    from gnomon.spec.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyQuestion(Question):
    """A plan run for real, or an earlier measurement of it, beside its prediction."""

    plan: str | Path | Plan = argument(
        "plain", "PLAN", "A plan's file, a run's id, `last`, or an earlier measurement's .json."
    )
    rate: Sequence[float] | None = flag(
        "--rate", "rates", "R", "Requests a second of a served load; may be repeated.", default=None
    )
    probe: bool = flag("--probe", "switch", "", "Also measure prompts and decodes by themselves.", default=False)
    out: str | Path | None = flag("--out", "plain", "FILE.json", "Keep what was measured.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchQuestion(Question):
    """A plan's replicas started on this machine."""

    plan: str | Path | Plan = argument("plain", "PLAN", "A plan's file, a run's id, or `last`.")
    dry_run: bool = flag("--dry-run", "switch", "", "Say what would be started, and start nothing.", default=False)
    force: bool = flag(
        "--force", "switch", "", "With --dry-run: show a plan that would not run all the same.", default=False
    )


BUDGET_S = 440.0
"""Of measuring alone: with what comes before and after, a calibration stays under eight minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateQuestion(Question):
    """A GPU, or an engine on it, measured and fitted; or measurements made before."""

    out: str | Path | None = flag(
        "--out", "plain", "FILE.csv", "The table of measurements (calibration.csv); one begun earlier goes on.",
        default=None,
    )  # fmt: skip
    source: str | Path | None = flag(
        "--from", "plain", "PATH",
        "Read measurements (CSV, Parquet, an engine's steps, vLLM or AIPerf results); measure nothing.", default=None,
    )  # fmt: skip
    on: str | None = flag(
        "--on", "plain", "CHIP", "With --from: the chip it was measured on; with --quick: the chip it must be.",
        default=None,
    )  # fmt: skip
    profile: str | Path | None = flag(
        "--profile", "plain", "FILE.yaml", "Write the profile here, not where it is used.", default=None
    )
    families: Sequence[str] | None = flag(
        "--families", "listed", "NAME[,NAME]", "Only these families of operators.", default=None
    )
    budget: float | None = flag(
        "--budget", "duration", "TIME", "How long to measure, earlier runs counted in (7m20s).", default=None
    )
    force: bool = flag(
        "--force", "switch", "", "Measure a card that others use or that is held back; the profile says so.",
        default=False,
    )  # fmt: skip
    quick: bool = flag(
        "--quick", "switch", "", "About a minute: this card's and host's factors on the shipped profile.",
        default=False,
    )  # fmt: skip
    engine: str | None = flag(
        "--engine", "plain", "ENGINE", "Measure this engine's own overheads instead.", default=None
    )
    model: str | None = flag(
        "--model", "plain", "MODEL", "With --engine: what it runs, with dummy weights.", default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceQuestion(Question):
    """How a torch module is called and priced; no command line has it."""

    on: str | Pool
    phase: str = "forward"
    dtype: str | None = None
    autocast: str | None = None
    batch: int | None = None
    loss: Callable[[Any], Any] | None = None
    optimizer: str | Callable[[Any], Any] = "adamw"
    launch: str = "eager"
    tf32: bool = False
    sustained: bool = False
    fused: bool = False
    steps: int = 1
