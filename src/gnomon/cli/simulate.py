"""`gnomon simulate serve` and `gnomon simulate train`"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from gnomon.cli import flags, train_flags
from gnomon.cli.pages import FLAG, PageAsked, outputs, page


def add(app: typer.Typer) -> None:
    from gnomon.cli.app import group

    commands = group("Run a load, or a training step, in simulated time.")
    commands.callback()(_group)
    commands.command("serve", cls=PageAsked)(serve)
    commands.command("train", cls=PageAsked)(train)
    app.add_typer(commands, name="simulate")


def _group() -> None:
    """Run a load, or a training step, in simulated time."""


def serve(
    model: flags.Model,
    on: flags.On,
    dtype: flags.Dtype = None,
    kv_dtype: flags.KvDtype = None,
    engine: flags.Engine = "vllm",
    tp: flags.Tp = None,
    pp: flags.Pp = 1,
    ep: flags.Ep = 1,
    cp: flags.Cp = 1,
    dp: flags.Dp = 1,
    trace: flags.Trace = None,
    rate: flags.Rate = None,
    input: flags.Input = None,
    output: flags.Output = None,
    requests: Annotated[int | None, flags.requests()] = None,
    seed: flags.Seed = 0,
    set_: flags.Set = None,
    techniques: flags.With = None,
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
    paths = outputs(named, {"--trace": trace, "the model": model, "--on": on})
    settings = flags.settings(set_)
    recorder = _recorder() if trace_out else None
    from gnomon.api.simulate import simulate_serving

    with Progress("simulating") as tick:
        report = simulate_serving(
            model,
            on=on,
            dtype=dtype,
            kv_dtype=kv_dtype,
            engine=engine,
            tp=tp,
            pp=pp,
            ep=ep,
            cp=cp,
            dp=dp,
            trace=trace,
            rate=rate,
            input=input,
            output=output,
            requests=requests,
            seed=seed,
            settings=settings,
            techniques=techniques or (),
            record=recorder,
            progress=tick,
        )
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
