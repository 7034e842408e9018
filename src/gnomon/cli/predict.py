"""`gnomon predict`"""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import flags, names
from gnomon.cli.pages import FLAG, PageAsked, outputs, page


def add(app: typer.Typer) -> None:
    app.command("predict", cls=PageAsked)(predict)


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
        "--phase",
        autocompletion=names.words(names.phases),
        metavar="PHASE",
        help="prefill, decode (where not given) or train; of an encoder prefill, one pass in both directions; of a "
        "diffusion transformer forward, one step; of a module, forward or train.",
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
        typer.Option(
            "--tokens",
            parser=flags.whole("--tokens"),
            metavar="T",
            help="New tokens a sequence, of text; patches of a diffusion transformer's sample.",
        ),
    ] = None,
    context: Annotated[
        int,
        typer.Option(
            "--context", parser=flags.whole("--context", least=0), metavar="C", help="Tokens already in the cache."
        ),
    ] = 0,
    source: Annotated[
        int | None,
        typer.Option(
            "--source",
            parser=flags.whole("--source"),
            metavar="S",
            help="Tokens or frames that an encoder-decoder's encoder reads; all it takes where not given.",
        ),
    ] = None,
    images: Annotated[
        int | None,
        typer.Option(
            "--images",
            parser=flags.whole("--images", least=0),
            metavar="N",
            help="Pictures a sequence, for a model with a vision tower: 1 where not given.",
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(
            "--image",
            parser=flags.word("--image"),
            metavar="WxH",
            help="Pixels of a picture, or of a diffusion transformer's sample; the model's own size, or 1024x1024.",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            "--steps", parser=flags.whole("--steps"), metavar="N", help="Steps of a diffusion transformer: 1."
        ),
    ] = None,
    dtype: flags.Dtype = None,
    kv_dtype: flags.KvDtype = None,
    engine: flags.AnyEngine = None,
    tp: flags.Tp = None,
    pp: flags.Pp = 1,
    ep: flags.Ep = 1,
    cp: flags.Cp = 1,
    dp: Annotated[int | None, flags.degree("--dp", "Data", " Ranks with sequences of their own.")] = None,
    set_: flags.Set = None,
    techniques: flags.With = None,
    html: flags.Html = None,
    as_json: flags.Json = False,
) -> None:
    """Time, memory, energy and cost of one step."""
    from gnomon.cli.output import emit

    paths = outputs({FLAG: html}, {"the model": model, "--on": on})
    from gnomon.api.predict import predict as answer

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
        source=source,
        images=images,
        image=image,
        steps=steps,
        techniques=techniques or (),
    )
    emit(result, as_json=as_json, files=page(result, paths))
