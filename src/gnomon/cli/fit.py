"""`gnomon fit`"""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import flags
from gnomon.cli.pages import FLAG, PageAsked, outputs, page

FitPp = Annotated[int, flags.degree("--pp", "Pipeline", "")]
FitEp = Annotated[int, flags.degree("--ep", "Expert", "")]
FitCp = Annotated[int, flags.degree("--cp", "Context", "")]
FitDp = Annotated[int, flags.degree("--dp", "Data", "")]


def add(app: typer.Typer) -> None:
    app.command("fit", cls=PageAsked)(fit)


def fit(
    model: flags.Model,
    on: flags.On,
    dtype: flags.Dtype = None,
    kv_dtype: flags.KvDtype = None,
    engine: flags.AnyEngine = None,
    tp: flags.Tp = None,
    pp: FitPp = 1,
    ep: FitEp = 1,
    cp: FitCp = 1,
    dp: FitDp = 1,
    context: Annotated[
        int | None,
        typer.Option("--context", parser=flags.whole("--context"), metavar="C", help="Tokens of each sequence."),
    ] = None,
    set_: flags.Set = None,
    techniques: flags.With = None,
    html: flags.Html = None,
    as_json: flags.Json = False,
) -> None:
    """Whether a model fits to be served, and what would make it fit."""
    from gnomon.cli.output import emit

    paths = outputs({FLAG: html}, {"the model": model, "--on": on})
    from gnomon.api.fit import fit as answer

    settings = flags.settings(set_)
    result = answer(
        model, on=on, dtype=dtype, kv_dtype=kv_dtype, engine=engine, tp=tp, pp=pp, ep=ep, cp=cp, dp=dp,
        context=context, settings=settings, techniques=techniques or (),
    )  # fmt: skip
    emit(result, as_json=as_json, files=page(result, paths))
