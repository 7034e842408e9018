"""`gnomon predict`"""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import flags, names


def add(app: typer.Typer) -> None:
    app.command("predict")(predict)


def _any_engine(text: str) -> str:
    from gnomon.engines import SERVING, TRAINING
    from gnomon.errors import unknown_name

    label = flags.word("--engine")(text)
    name = label.partition("@")[0]
    if name not in (*SERVING, *TRAINING):
        raise unknown_name("engine", name, (*SERVING, *TRAINING), where="--engine")
    return label


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        autocompletion=names.models,
        help="A known name, a hub id, or a folder with a config.json. Or SCRIPT.py:FUNCTION of your own, which is "
        "imported and run: it returns (module, inputs), any torch module and what to call it with.",
    ),
]
Phase = Annotated[
    str | None,
    typer.Option(
        "--phase", metavar="PHASE", help="prefill, decode (where not given) or train; of a module, forward or train."
    ),
]
Batch = Annotated[
    int | None,
    typer.Option(
        "--batch",
        parser=flags.whole("--batch"),
        metavar="B",
        help="Sequences in the step: 1, or what a module's inputs have.",
    ),
]


def predict(
    model: Model,
    on: flags.On,
    phase: Phase = None,
    batch: Batch = None,
    tokens: Annotated[
        int | None,
        typer.Option("--tokens", parser=flags.whole("--tokens"), metavar="T", help="New tokens a sequence."),
    ] = None,
    context: Annotated[
        int,
        typer.Option(
            "--context", parser=flags.whole("--context", least=0), metavar="C", help="Tokens already in the cache."
        ),
    ] = 0,
    dtype: flags.Dtype = None,
    kv_dtype: flags.KvDtype = None,
    engine: Annotated[
        str | None,
        typer.Option("--engine", parser=_any_engine, metavar="NAME[@VERSION]", help="The engine that runs it."),
    ] = None,
    tp: flags.Tp = None,
    pp: flags.Pp = 1,
    ep: flags.Ep = 1,
    cp: flags.Cp = 1,
    dp: Annotated[int | None, flags.degree("--dp", "Data", " Ranks with sequences of their own.")] = None,
    set_: flags.Set = None,
    as_json: flags.Json = False,
) -> None:
    """Time, memory, energy and cost of one step."""
    from gnomon.api.predict import predict as answer
    from gnomon.cli.output import emit

    result = answer(
        model,
        on=on,
        phase=phase,
        batch=batch,
        tokens=tokens,
        context=context,
        dtype=dtype,
        kv_dtype=kv_dtype,
        engine=engine,
        tp=tp,
        pp=pp,
        ep=ep,
        cp=cp,
        dp=dp,
        settings=flags.settings(set_),
    )
    emit(result.to_dict(), as_json=as_json)
