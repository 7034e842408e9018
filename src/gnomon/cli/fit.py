"""`gnomon fit`"""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import flags


def add(app: typer.Typer) -> None:
    app.command("fit")(fit)


def fit(
    model: flags.Model,
    on: flags.On,
    dtype: flags.Dtype = None,
    kv_dtype: flags.KvDtype = None,
    engine: flags.AnyEngine = None,
    tp: flags.Tp = None,
    context: Annotated[
        int | None,
        typer.Option("--context", parser=flags.whole("--context"), metavar="C", help="Tokens of each sequence."),
    ] = None,
    set_: flags.Set = None,
    as_json: flags.Json = False,
) -> None:
    """Whether a model fits, and the changes that make it fit."""
    from gnomon.api.fit import fit as answer
    from gnomon.cli.output import emit

    settings = flags.settings(set_)
    result = answer(
        model, on=on, dtype=dtype, kv_dtype=kv_dtype, engine=engine, tp=tp, context=context, settings=settings
    )
    emit(result.to_dict(), as_json=as_json)
