"""The text of a training run with its failures, and the rows that its page has too."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.report.text import Style, digits, headed, plural, scaled
from gnomon.spec.answers import TrainingReport
from gnomon.spec.answers.run import RunReliability
from gnomon.units import DAY_S, format_duration

LOST = {
    "checkpoint_stalls": "waiting for checkpoints",
    "lost_work": "steps lost since the last checkpoint",
    "detection": "detecting failures",
    "restarts": "restarting",
    "loading": "loading checkpoints",
    "repairs": "waiting for nodes in repair",
}
NOTHING = 5e-4
"""Shares below it would be printed as 0.0%."""
SAME = 5e-4
"""Goodput that another interval would add and that is not worth a word."""


def goodput_words(run: RunReliability) -> str:
    """`goodput 91.3% (73.4 to 96.8, 90%)`."""
    found = run.goodput
    edges = f" ({100 * found.low:.1f} to {100 * found.high:.1f}, 90%)" if found.low < found.high else ""
    return f"goodput {found.value:.1%}{edges}"


def failure_words(run: RunReliability) -> str:
    """How many failures are expected, and what the run would take without them."""
    failures = run.failures
    alone = format_duration(run.days_without_failures * DAY_S)
    return (
        f"{_expected(run)}, one every {format_duration(failures['mtbf_s'])}; {alone} without failures and checkpoints"
    )


def _expected(run: RunReliability) -> str:
    count = run.failures["count"]
    return f"{plural(round(count), 'failure') if count >= 9.5 else f'{digits(count, 2)} failures'} expected"


def checkpoint_words(run: RunReliability) -> Iterator[str]:
    """What a checkpoint takes, how often one is saved, and whether another interval would be better."""
    found = run.checkpoints
    every, best = int(found["every_steps"]), int(found["best_every_steps"])
    how_often = f"every {plural(every, 'step')} ({format_duration(found['interval_s'])})"
    written = f", written {format_duration(found['write_s'])} later" if found["write_s"] else ""
    yield (
        f"checkpoints of {scaled(found['bytes'], 'B')} to {found['to']}, {found['mode']}, {how_often}: stall "
        f"{format_duration(found['stall_s'])}{written}, loaded in {format_duration(found['load_s'])}"
    )
    if every == best:
        yield "no other interval is better"
    else:
        gain = found["goodput_at_best"] - run.goodput.value
        more = f"goodput {found['goodput_at_best']:.1%}" if gain >= SAME else "hardly better"
        yield f"best interval: {plural(best, 'step')} ({format_duration(found['best_interval_s'])}), {more}"


def spare_words(run: RunReliability) -> str:
    return f"{plural(run.spares, 'spare node')}, paid for" if run.spares else "no spare nodes"


def lost_rows(run: RunReliability) -> list[tuple[str, str, str]]:
    """Where the time goes that does not count: what, share of the run, how long."""
    wall_s = run.days.value * DAY_S
    return [
        (name, f"{share:.1%}", format_duration(share * wall_s))
        for key, name in LOST.items()
        if (share := run.lost[key]) > NOTHING
    ]


def reliability_lines(answer: TrainingReport, style: Style) -> list[str]:
    """Below the line of days and money."""
    run = answer.reliability
    if run is None:
        return []
    rows = [("where the rest of the run goes", "share", "time"), *lost_rows(run)]
    shown = headed(rows, "<>>", style) if len(rows) > 1 else []
    return [
        f"  {style.strong(goodput_words(run))}: {failure_words(run)}",
        *(["", *shown, ""] if shown else []),
        *(f"  {text}" for text in checkpoint_words(run)),
        f"  {spare_words(run)}",
    ]


def in_a_sentence(run: RunReliability) -> str:
    """For a plan's report: goodput, failures and the interval between checkpoints."""
    every = plural(int(run.checkpoints["every_steps"]), "step")
    return f"{goodput_words(run)}, {_expected(run)}, checkpoints every {every}, {spare_words(run)}"
