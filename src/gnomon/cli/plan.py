"""`gnomon plan serve` and `gnomon plan train`"""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import flags, names, train_flags
from gnomon.cli.pages import FLAG, PageAsked, outputs, page

SLO = (
    "Limits on times, such as ttft_p90=1s,tpot_p90=40ms. "
    "Metrics: ttft, tpot, e2e. Statistics: mean, p50, p90, p95, p99. May be repeated."
)


def add(app: typer.Typer) -> None:
    from gnomon.cli.app import group

    commands = group("Find the best way to run a model.")
    commands.callback()(_group)
    commands.command("serve", cls=PageAsked)(serve)
    commands.command("train", cls=PageAsked)(train)
    app.add_typer(commands, name="plan")


def _group() -> None:
    """Find the best way to run a model."""


def serve(
    model: flags.Model,
    fleet: Annotated[
        str,
        typer.Option(
            "--fleet",
            metavar="CHIP:N[,CHIP:N]",
            autocompletion=names.chips,
            help="The chips one may use, one kind for all replicas of a plan; or a cluster's YAML file.",
        ),
    ],
    trace: flags.Trace = None,
    rate: flags.Rate = None,
    input: flags.Input = None,
    output: flags.Output = None,
    requests: Annotated[int | None, flags.requests("Requests the best plan is judged on, at least.")] = None,
    seed: flags.Seed = 0,
    slo: Annotated[list[str] | None, typer.Option("--slo", metavar="GOALS", help=SLO)] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            "--objective",
            parser=flags.word("--objective"),
            metavar="WHAT",
            help="cost (the default), throughput, latency or energy.",
        ),
    ] = None,
    router: Annotated[
        str,
        typer.Option(
            "--router",
            parser=flags.word("--router"),
            autocompletion=names.words(names.routers),
            metavar="HOW",
            help="How requests reach replicas: random (as in a Kubernetes Service), round-robin or least-requests.",
        ),
    ] = "random",
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype",
            parser=flags.word("--dtype"),
            metavar="D[,D]",
            help="Number formats to choose from, the preferred one first: the checkpoint's, or bf16,fp8 of a wide one.",
        ),
    ] = None,
    kv_dtype: Annotated[
        str,
        typer.Option("--kv-dtype", parser=flags.word("--kv-dtype"), metavar="D", help="Number format of the KV cache."),
    ] = "bf16",
    engine: flags.Engine = "vllm",
    set_: flags.Set = None,
    techniques: flags.With = None,
    html: flags.Html = None,
    as_json: flags.Json = False,
) -> None:
    """The best deployment for a load and its goals, and why it won."""
    from gnomon.api.plan import plan_serving
    from gnomon.cli.output import emit
    from gnomon.cli.progress import Progress
    from gnomon.errors import named_by
    from gnomon.search import objective as named_objective

    paths = outputs({FLAG: html}, {"the model": model, "--fleet": fleet, "--trace": trace})
    if objective is not None:
        with named_by("--objective"):
            named_objective(objective)
    settings, dtypes = flags.settings(set_), flags.formats(dtype, "--dtype") if dtype else None
    with Progress("searching plans") as tick:
        report = plan_serving(
            model,
            fleet=fleet,
            trace=trace,
            rate=rate,
            input=input,
            output=output,
            requests=requests,
            seed=seed,
            slo=",".join(slo or ()),
            objective=objective,
            router=router,
            dtypes=dtypes,
            kv_dtype=kv_dtype,
            engine=engine,
            settings=settings,
            techniques=techniques or (),
            progress=tick,
        )
    emit(report, as_json=as_json, files=page(report, paths))


def train(
    model: flags.Model,
    cluster: Annotated[str, typer.Option("--cluster", metavar="CHIP:N", help="The chips to train on.")],
    seq: train_flags.Seq,
    global_batch: train_flags.GlobalBatch,
    tokens: train_flags.Tokens = None,
    optimizer: train_flags.Optimizer = "adamw",
    dtype: flags.Dtype = None,
    engine: train_flags.Engine = "megatron",
    techniques: flags.With = None,
    html: flags.Html = None,
    as_json: flags.Json = False,
) -> None:
    """The quickest way to train a model on a cluster, how long it takes, and what it needs."""
    from gnomon.api.plan_training import plan_training
    from gnomon.cli.output import emit
    from gnomon.cli.progress import Progress

    paths = outputs({FLAG: html}, {"the model": model, "--cluster": cluster})
    with Progress("searching plans") as tick:
        report = plan_training(
            model,
            cluster=cluster,
            seq=seq,
            global_batch=global_batch,
            tokens=tokens,
            optimizer=optimizer,
            dtype=dtype,
            engine=engine,
            techniques=techniques or (),
            progress=tick,
        )
    emit(report, as_json=as_json, files=page(report, paths))
