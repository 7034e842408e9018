"""The page of `gnomon plan train`."""

from __future__ import annotations

from gnomon.report.html.blocks import Listing, Page, PageBlock, inputs_table, notes, table
from gnomon.report.html.train import step_blocks, step_figures
from gnomon.report.objectives import goal_lines, mixture_lines
from gnomon.report.plan_train import axes_rows, others, searched_words
from gnomon.report.text import band
from gnomon.report.train import memory_range
from gnomon.spec.answers import TrainingPlanReport
from gnomon.units import format_count, format_duration


def page(answer: TrainingPlanReport) -> Page:
    told = (*goal_lines(answer), *mixture_lines(answer), *others(answer))
    beside = [f"{name}: {text}".removeprefix(": ") for name, text in told]
    best, second = answer.best, answer.runner_up
    rows = [("best", answer.label, f"{format_duration(best.step_time_s.value)} {band(best.step_time_s)}")]
    rows += [("runner-up", second["label"], format_duration(second["step_time_s"]))] if second else []
    why = [(reason, format_count(count)) for reason, count in answer.rejected.items()]
    start: list[PageBlock] = [Listing("Run it on each node", answer.command)] if answer.command else []
    return Page(
        title=answer.title,
        subtitle=searched_words(answer),
        verdict=f"best: {answer.label}",
        good=True,
        figures=step_figures(best),
        blocks=[
            *table("Plans", ("", "plan", "step time"), rows, "<<>"),
            *notes("", [*beside, memory_range(best)]),
            *step_blocks(best),
            *table("Plans that were not chosen", ("why", "plans"), why, "<>"),
            *table("What was searched", ("choice", "values"), axes_rows(answer), "<<"),
            *start,
            *inputs_table(answer.inputs),
            *inputs_table(best.inputs, "The plan"),
        ],
    )
