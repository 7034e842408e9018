"""`gnomon try`"""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import flags, train_flags

Slug = Annotated[str, typer.Argument(metavar="SLUG", help="A paper, or a technique by its own name.")]
Network = Annotated[str, typer.Option("--model", metavar="MODEL", help="A name, a folder, a config or shapes.")]
Sequence = Annotated[
    int | None,
    typer.Option("--seq", parser=flags.whole("--seq"), metavar="S", help="Tokens of a sequence (8192)."),
]
Batch = Annotated[
    int | None,
    typer.Option(
        "--global-batch", parser=flags.whole("--global-batch"), metavar="B", help="Sequences of a step (8 a chip)."
    ),
]


def add(app: typer.Typer) -> None:
    app.command("try")(try_idea)


def try_idea(
    slug: Slug,
    model: Network,
    on: flags.On,
    seq: Sequence = None,
    global_batch: Batch = None,
    optimizer: train_flags.Optimizer = "adamw",
    dtype: flags.Dtype = None,
    engine: train_flags.Engine = "megatron",
    as_json: flags.Json = False,
) -> None:
    """What a paper's idea would bring on your model and chips."""
    from gnomon.api.try_idea import SEQ
    from gnomon.api.try_idea import try_idea as answer
    from gnomon.cli.output import emit
    from gnomon.cli.progress import Progress

    with Progress("searching plans") as tick:
        result = answer(
            slug,
            model=model,
            on=on,
            seq=seq or SEQ,
            global_batch=global_batch,
            optimizer=optimizer,
            dtype=dtype,
            engine=engine,
            progress=tick,
        )
    emit(result.to_dict(), as_json=as_json)
