"""`gnomon simulate serve`"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from gnomon.cli import flags, simulate_train
from gnomon.cli.answered import as_asked, plotted, sources
from gnomon.cli.generate import asks
from gnomon.cli.pages import FLAG, PageAsked, outputs, page
from gnomon.spec.questions.serving import SimulateServingQuestion


def add(app: typer.Typer) -> None:
    from gnomon.cli.app import group

    commands = group("Run a load, or a training step, in simulated time.")
    commands.command("serve", cls=PageAsked)(asks(SimulateServingQuestion)(serve))
    simulate_train.add(commands)
    app.add_typer(commands, name="simulate")


def serve(
    question: SimulateServingQuestion,
    requests_out: Annotated[
        str | None, typer.Option("--requests-out", metavar="FILE.csv", help="Write the times of every request.")
    ] = None,
    trace_out: Annotated[
        str | None, typer.Option("--trace-out", metavar="FILE.json", help="Write every step, for ui.perfetto.dev.")
    ] = None,
    html: flags.Html = None,
    as_json: flags.Json = False,
) -> None:
    """TTFT, TPOT, throughput, energy and cost of a served load."""
    from gnomon.cli.output import emit
    from gnomon.cli.progress import Progress

    named = {"--requests-out": requests_out, "--trace-out": trace_out, FLAG: html}
    paths = outputs(named, sources(question))
    from gnomon.api.simulate import answer
    from gnomon.sim.serving import Recorder

    recorder = Recorder() if trace_out else None
    with Progress("simulating") as tick:
        report = answer(plotted(question) if html else question, record=recorder, progress=tick)
    emit(as_asked(report, question), as_json=as_json, files=[*_files(report, recorder, paths), *page(report, paths)])


def _files(report: Any, recorder: Any, paths: dict[str, Path]) -> list[Callable[[], None]]:
    """What writes each of the files."""
    from gnomon.paths import written
    from gnomon.report.timeline import write_requests, write_steps

    def requests() -> None:
        with written(paths["--requests-out"]) as file:
            write_requests(report, file)

    def steps() -> None:
        with written(paths["--trace-out"]) as file:
            write_steps(recorder.steps, file, report.title)

    return [write for flag, write in {"--requests-out": requests, "--trace-out": steps}.items() if flag in paths]
