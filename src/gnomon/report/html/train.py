"""The page of `gnomon simulate train`."""

from __future__ import annotations

from gnomon.report.figures import Headline, interval
from gnomon.report.html.blocks import Drawing, Page, PageBlock, inputs_table, notes, plot, table
from gnomon.report.html.svg import Bar, stacked
from gnomon.report.run import LOST, checkpoint_words, failure_words, goodput_words, lost_rows, spare_words
from gnomon.report.shortage import IF_IT_FITTED
from gnomon.report.text import gib, technique_lines
from gnomon.report.train import described, exposed_words, figures, fit_words, host_words, run_lines, share, spent_s
from gnomon.spec.answers import TrainingReport
from gnomon.units import format_duration, format_money

MOST_RANKS = 64
"""Pipeline ranks that are drawn; of more, the fullest."""


def page(answer: TrainingReport) -> Page:
    fits = answer.fits
    verdict = f"fits: {fit_words(answer)}" if fits else f"does not fit: {fit_words(answer)}; {IF_IT_FITTED}"
    return Page(
        title=answer.title,
        subtitle=described(answer.inputs),
        verdict=verdict,
        good=fits,
        figures=step_figures(answer),
        blocks=[*step_blocks(answer), *inputs_table(answer.inputs)],
    )


def step_figures(answer: TrainingReport) -> list[Headline]:
    """Those of the text, with the memory of the fullest rank and what a step costs."""
    peak, usable = answer.peak_memory_bytes, answer.usable_memory_bytes
    memory = Headline("memory, fullest rank", f"{gib(peak.value)} of {gib(usable)} GiB", interval(peak, gib))
    return [*figures(answer), memory, Headline("cost of a step", format_money(answer.cost_usd))]


def step_blocks(answer: TrainingReport) -> list[PageBlock]:
    """Where the time of a step goes, and the memory of its ranks."""
    step, spent = answer.step_time_s.value, spent_s(answer)
    drawn = [
        Bar(name, seconds, seconds, seconds, f"{format_duration(seconds)}, {share(seconds, step)}")
        for name, seconds in spent
    ]
    rows = [(name, format_duration(seconds), share(seconds, step)) for name, seconds in spent]
    run = run_lines(answer) if answer.run else []
    return [
        *plot("Where the time goes", drawn, "time of a step by part"),
        *table("Time of a step", ("part", "time", "share"), rows, "<>>"),
        *notes("", [exposed_words(answer)]),
        *_memory(answer),
        *notes("The run", [line.strip() for line in run]),
        *_reliability(answer),
    ]


def _reliability(answer: TrainingReport) -> list[PageBlock]:
    """Goodput of the run, and where the rest of its time goes."""
    run = answer.reliability
    if run is None:
        return []
    rows = lost_rows(run)
    drawn = [
        Bar(name, run.lost[key], run.lost[key], run.lost[key], f"{run.lost[key]:.1%}")
        for key, name in LOST.items()
        if name in [row[0] for row in rows]
    ]
    told = [f"{goodput_words(run)}: {failure_words(run)}", *checkpoint_words(run), spare_words(run)]
    return [
        *notes("", told),
        *plot("Where the rest of the run goes", drawn, "share of the run by cause"),
        *table("Time of the run that does not count", ("what", "share", "time"), rows, "<>>"),
    ]


def _memory(answer: TrainingReport) -> list[PageBlock]:
    """The parts of every pipeline rank against what is usable, drawn and in numbers."""
    usable = answer.usable_memory_bytes
    ranks = [(rank, parts, sum(parts.values())) for rank, parts in enumerate(answer.memory_parts)]
    fullest = sorted(sorted(ranks, key=lambda entry: -entry[2])[:MOST_RANKS], key=lambda entry: entry[0])
    drawn = [(f"pipeline rank {rank}", parts, f"{gib(size)} of {gib(usable)} GiB") for rank, parts, size in fullest]
    names = list(dict.fromkeys(name for _, parts, _ in ranks for name, size in parts.items() if size))
    rows = [(str(rank), *(gib(parts.get(name, 0.0)) for name in names), gib(size)) for rank, parts, size in ranks]
    some = f", the fullest {MOST_RANKS} of {len(ranks)}" if len(ranks) > MOST_RANKS else ""
    head = ("pipeline rank", *names, "together")
    return [
        Drawing(f"Memory by pipeline rank{some}", stacked(drawn, usable, usable, "memory by pipeline rank")),
        *table("Memory by pipeline rank, in GiB", head, rows, ">" * len(head)),
        *notes("", [*host_words(answer), *technique_lines(answer.techniques)]),
    ]
