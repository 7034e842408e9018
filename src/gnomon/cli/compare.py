"""`gnomon compare`"""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import flags
from gnomon.cli.pages import FLAG, PageAsked, outputs, page

Plans = Annotated[
    list[str],
    typer.Argument(metavar="A B…", help="Two or more: a plan's file, a run's id, `last`, an answer's .json."),
]


def add(app: typer.Typer) -> None:
    app.command("compare", cls=PageAsked)(compare)


def compare(
    plans: Plans,
    trace: flags.Trace = None,
    rate: flags.Rate = None,
    input: flags.Input = None,
    output: flags.Output = None,
    requests: Annotated[int | None, flags.requests()] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", parser=flags.whole("--seed", least=0), metavar="S", help="Seed of the draw."),
    ] = None,
    html: flags.Html = None,
    as_json: flags.Json = False,
) -> None:
    """Plans, or answers of one command, side by side.

    Serving plans are simulated under one load, the first one's where none is given; training plans do the first one's
    job.
    """
    from gnomon.api.compare import compare as answer
    from gnomon.cli.output import emit
    from gnomon.cli.progress import Progress

    paths = outputs({FLAG: html}, {f"plan {place}": plan for place, plan in enumerate(plans, 1)} | {"--trace": trace})
    with Progress("comparing"):
        result = answer(*plans, trace=trace, rate=rate, input=input, output=output, requests=requests, seed=seed)
    emit(result.to_dict(), as_json=as_json, keep=False, files=page(result, paths))
