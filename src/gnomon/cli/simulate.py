"""`gnomon simulate serve` and `gnomon simulate train`"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from gnomon.cli import flags, train_flags
from gnomon.cli.answered import sources
from gnomon.cli.generate import asks
from gnomon.cli.pages import FLAG, PageAsked, outputs, page
from gnomon.spec.questions.serving import SimulateServingQuestion


def add(app: typer.Typer) -> None:
    from gnomon.cli.app import group

    commands = group("Run a load, or a training step, in simulated time.")
    commands.callback()(_group)
    commands.command("serve", cls=PageAsked)(asks(SimulateServingQuestion)(serve))
    commands.command("train", cls=PageAsked)(train)
    app.add_typer(commands, name="simulate")


def _group() -> None:
    """Run a load, or a training step, in simulated time."""


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
    recorder = _recorder() if trace_out else None
    from gnomon.api.simulate import answer

    with Progress("simulating") as tick:
        report = answer(question, record=recorder, progress=tick)
    emit(report, as_json=as_json, files=[*_files(report, recorder, paths), *page(report, paths)])


def _recorder() -> Any:
    from gnomon.sim.serving import Recorder

    return Recorder()


def _files(report: Any, recorder: Any, paths: dict[str, Path]) -> list[Callable[[], None]]:
    """What writes each of the files."""
    from gnomon.paths import written
    from gnomon.report.timeline import write_requests, write_steps

    def requests() -> None:
        with written(paths["--requests-out"]) as file:
            write_requests(report.run, file)

    def steps() -> None:
        with written(paths["--trace-out"]) as file:
            write_steps(recorder.steps, file, report.title)

    return [write for flag, write in {"--requests-out": requests, "--trace-out": steps}.items() if flag in paths]


def train(
    model: flags.Model,
    on: flags.On,
    seq: train_flags.Seq,
    global_batch: train_flags.GlobalBatch,
    micro_batch: train_flags.MicroBatch = 1,
    tp: train_flags.Tp = 1,
    pp: train_flags.Pp = None,
    vp: train_flags.Vp = None,
    cp: train_flags.Cp = None,
    ep: flags.Ep = 1,
    dp: train_flags.Dp = None,
    zero: train_flags.Zero = 0,
    schedule: train_flags.Schedule = None,
    recompute: train_flags.Recompute = None,
    optimizer: train_flags.Optimizer = "adamw",
    engine: train_flags.Engine = "megatron",
    dtype: flags.Dtype = None,
    tokens: train_flags.Tokens = None,
    sequence_parallel: train_flags.SequenceParallel = True,
    cp_comm: train_flags.CpComm = None,
    expert_tp: train_flags.ExpertTp = 0,
    techniques: flags.With = None,
    trace_out: train_flags.TraceOut = None,
    memory_out: train_flags.MemoryOut = None,
    html: flags.Html = None,
    as_json: flags.Json = False,
) -> None:
    """Time, memory of every rank, energy and cost of a training step."""
    from gnomon.cli.output import emit
    from gnomon.cli.training_files import MEMORY, TRACE, checked, files

    paths = checked(model, on, {TRACE: trace_out, MEMORY: memory_out, FLAG: html})
    from gnomon.api.simulate_training import simulate_training

    report = simulate_training(
        model,
        on=on,
        seq=seq,
        global_batch=global_batch,
        micro_batch=micro_batch,
        tp=tp,
        pp=pp,
        vp=vp,
        cp=cp,
        ep=ep,
        dp=dp,
        zero=zero,
        schedule=schedule,
        recompute=recompute,
        optimizer=optimizer,
        sequence_parallel=sequence_parallel,
        cp_comm=cp_comm,
        expert_tp=expert_tp,
        dtype=dtype,
        engine=engine,
        tokens=tokens,
        techniques=techniques or (),
    )
    emit(report, as_json=as_json, files=[*files(report, paths), *page(report, paths)])
