"""`gnomon export`"""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import flags, names

TO = "vllm or kubernetes for serving, megatron or torchrun for training; by default what the plan's engine needs."


def add(app: typer.Typer) -> None:
    app.command("export")(export)


def export(
    plan: flags.PlanRef,
    to: Annotated[
        str | None,
        typer.Option("--to", autocompletion=names.words(names.targets), metavar="TARGET", help=TO),
    ] = None,
    out: Annotated[str | None, typer.Option("--out", metavar="DIR", help="Write the files into this folder.")] = None,
    as_json: flags.Json = False,
) -> None:
    """A plan as the files that start it. Without --out the first file is printed."""
    from gnomon.api.export import export as answer
    from gnomon.cli.files import keep_apart, output_folder, write_all
    from gnomon.cli.output import emit, put, say
    from gnomon.errors import named_by
    from gnomon.export import target

    with named_by("--to"):
        chosen = _usual(plan) if to is None else target(to).NAME
    result = answer(plan, to=chosen)
    names = list(result.files)
    if out is not None:
        folder = output_folder(out, "--out")
        keep_apart({"--out": folder / "plan.yaml"} if "plan.yaml" in names else {}, plan, "the plan")
        write_all(dict(result.files), folder)
    if as_json:
        emit(result.to_dict(), as_json=True, keep=False)
        return
    for line in result.not_expressed:
        say(f"left to you: {line}")
    if out is None:
        put(result.files[names[0]])
        say(f"--out DIR writes {' and '.join(names)}")
    else:
        put("".join(f"{folder / name}\n" for name in names))


def _usual(plan: str) -> str:
    """The target of the plan's own engine."""
    from gnomon.export import SERVING, TRAINING
    from gnomon.spec import TrainingLoad
    from gnomon.store import resolve_plan

    chosen = resolve_plan(plan)
    if not isinstance(chosen.load, TrainingLoad):
        return SERVING[0]
    return chosen.engine.name if chosen.engine.name in TRAINING else "torchrun"
