"""`gnomon simulate train`"""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import flags
from gnomon.cli.answered import sources
from gnomon.cli.generate import asks
from gnomon.cli.pages import FLAG, PageAsked, page
from gnomon.spec.questions.training import SimulateTrainingQuestion

TraceOut = Annotated[
    str | None, typer.Option("--trace-out", metavar="FILE.json", help="Write the timeline, for ui.perfetto.dev.")
]
MemoryOut = Annotated[
    str | None,
    typer.Option(
        "--memory-out",
        metavar="FILE.csv|.svg|.png",
        help="Write the memory of every pipeline rank over the step, as a table or drawn.",
    ),
]


def add(commands: typer.Typer) -> None:
    commands.command("train", cls=PageAsked)(asks(SimulateTrainingQuestion)(train))


def train(
    question: SimulateTrainingQuestion,
    trace_out: TraceOut = None,
    memory_out: MemoryOut = None,
    html: flags.Html = None,
    as_json: flags.Json = False,
) -> None:
    """Time, memory of every rank, energy and cost of a training step."""
    from gnomon.cli.output import emit
    from gnomon.cli.training_files import MEMORY, TRACE, checked, files

    paths = checked(sources(question), {TRACE: trace_out, MEMORY: memory_out, FLAG: html})
    from gnomon.api.simulate_training import answer

    report = answer(question)
    emit(report, as_json=as_json, files=[*files(report, paths), *page(report, paths)])
