"""`gnomon try`"""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import flags
from gnomon.cli.pages import FLAG, PageAsked, outputs, page

Slug = Annotated[str, typer.Argument(metavar="SLUG", help="A paper, or a technique by its own name.")]
Network = Annotated[str, typer.Option("--model", metavar="MODEL", help="A name, a folder, a config or shapes.")]
Sequence = Annotated[
    int | None,
    typer.Option("--seq", parser=flags.whole("--seq"), metavar="S", help="In training: tokens of a sequence (8192)."),
]
Batch = Annotated[
    int | None,
    typer.Option(
        "--global-batch",
        parser=flags.whole("--global-batch"),
        metavar="B",
        help="In training: sequences of a step (8 a chip).",
    ),
]
Together = Annotated[
    int | None,
    typer.Option(
        "--batch",
        parser=flags.whole("--batch"),
        metavar="N",
        help="In serving: sequences of a step (8, or what fits).",
    ),
]
Context = Annotated[
    int | None,
    typer.Option("--context", parser=flags.whole("--context"), metavar="C", help="In serving: tokens of each (2048)."),
]
Optimizer = Annotated[
    str | None, typer.Option("--optimizer", metavar="NAME", help="In training: the optimizer (adamw).")
]
Engine = Annotated[str | None, typer.Option("--engine", metavar="NAME", help="In training: the engine (megatron).")]


def add(app: typer.Typer) -> None:
    app.command("try", cls=PageAsked)(try_idea)


def try_idea(
    slug: Slug,
    model: Network,
    on: flags.On,
    seq: Sequence = None,
    global_batch: Batch = None,
    batch: Together = None,
    context: Context = None,
    optimizer: Optimizer = None,
    dtype: flags.Dtype = None,
    engine: Engine = None,
    html: flags.Html = None,
    as_json: flags.Json = False,
) -> None:
    """What a paper's idea would bring on your model and chips."""
    from gnomon.cli.output import emit
    from gnomon.cli.progress import Progress
    from gnomon.papers.tried import try_idea as answer

    paths = outputs({FLAG: html}, {"--model": model, "--on": on})
    with Progress("searching plans") as tick:
        result = answer(
            slug,
            model=model,
            on=on,
            seq=seq,
            global_batch=global_batch,
            batch=batch,
            context=context,
            optimizer=optimizer,
            dtype=dtype,
            engine=engine,
            progress=tick,
        )
    emit(result, as_json=as_json, files=page(result, paths))
