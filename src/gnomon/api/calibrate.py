"""A GPU, or an engine on it, measured and fitted; later predictions use the fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from gnomon.api.predict import predict
from gnomon.api.simulate import simulate_serving
from gnomon.calibrate.engine_overheads import EngineCalibrated, calibrate_engine
from gnomon.calibrate.from_files import fitted_from
from gnomon.calibrate.profiles import TABLE, Calibrated, calibrated, check_families, refuse_foreign
from gnomon.calibrate.quick import QuickCalibrated
from gnomon.calibrate.quick import quick as quick_calibrated
from gnomon.execution.checked import Checked, checked_deployment
from gnomon.spec.questions.running import BUDGET_S, CalibrateQuestion


def calibrate(
    out: str | Path = TABLE,
    *,
    source: str | Path | None = None,
    on: str | None = None,
    profile: str | Path | None = None,
    families: Sequence[str] | None = None,
    budget_s: float = BUDGET_S,
    force: bool = False,
    engine: str | None = None,
    model: str | None = None,
    quick: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
) -> Calibrated | EngineCalibrated | QuickCalibrated | Checked:
    """Measure the first GPU into the CSV file `out`, which a later call resumes, and fit a profile to it.

    The profile goes to `profile`, or to the user's own profiles, where every later prediction for the chip finds it.
    A GPU that is in use, hot or throttled is refused; with `force` it is measured and the profile records that.

    `source` holds measurements made before, on the chip `on`: nothing is measured. With `engine`, its own overheads
    are measured in place of the GPU, with a `model` of dummy weights. With `quick`, about a minute of kernels gives
    factors of this card and host on the shipped profile, and `out` is a JSON file of what was measured.
    """
    table = "quick.json" if quick and out == TABLE else out
    question = CalibrateQuestion(
        out=table, source=source, on=on, profile=profile, families=families, budget=budget_s, force=force,
        engine=engine, model=model, quick=quick,
    )  # fmt: skip
    return answer(question, progress)


def answer(
    question: CalibrateQuestion, progress: Callable[[int, int, str], None] | None = None
) -> Calibrated | EngineCalibrated | QuickCalibrated | Checked:
    """The profile fitted to a question's measurements, or how they compare with their prediction."""
    check_families(question.families)
    if question.profile is not None:
        refuse_foreign(Path(question.profile))
    if question.source is not None:
        return fitted_from(question) or checked_deployment(question, simulate_serving, predict)
    if question.quick:
        return quick_calibrated(question, progress)
    if question.engine is not None:
        tell = progress or (lambda done, total, text: None)
        return calibrate_engine(question.engine, question.model, question.out, progress=lambda text: tell(0, 1, text))
    return calibrated(question, progress)
