"""`gnomon lab`"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from gnomon.cli import flags, names


def _slugs() -> Iterable[str]:
    from gnomon.lab import EXPERIMENTS

    return EXPERIMENTS


def add(app: typer.Typer) -> None:
    from gnomon.cli.app import group

    commands = group("Techniques of papers, run on your own GPU.")
    commands.callback(invoke_without_command=True)(lab)
    commands.command("run")(run)
    app.add_typer(commands, name="lab")


def lab(context: typer.Context, as_json: flags.Json = False) -> None:
    """Techniques of papers, run on your own GPU against the plain version."""
    if context.invoked_subcommand is None:
        from gnomon.cli.output import emit
        from gnomon.lab import EXPERIMENTS, experiment
        from gnomon.spec.answers import JsonAnswer

        found = [_entry(experiment(slug)) for slug in EXPERIMENTS]
        emit(JsonAnswer(content={"schema": "gnomon.lab.list/1", "experiments": found}), as_json=as_json, keep=False)


def _entry(experiment: Any) -> dict[str, Any]:
    from dataclasses import asdict

    from gnomon.papers.executed import executed, outcome

    stored = outcome(experiment.slug) if experiment.slug in executed() else None
    headline = stored["compared"][0] if stored else {}
    return {
        "slug": experiment.slug,
        "title": experiment.title,
        "checks": experiment.checks,
        "sizes": [asdict(size) for size in experiment.sizes],
        "claim": asdict(experiment.claim),
        "ran_on": stored["device"] if stored else None,
        "gain": headline.get("gain"),
        "predicted": headline.get("predicted_gain"),
    }


def _check_replaced(path: Path) -> None:
    """Refuse to overwrite a file that is not an outcome."""
    from gnomon.errors import InputError
    from gnomon.lab.base import SCHEMA
    from gnomon.load.files import read_json

    if not path.is_file() or path.stat().st_size == 0:
        return
    try:
        kept = read_json(path).get("schema") == SCHEMA
    except InputError:
        kept = False
    if not kept:
        hint = "Give the name of a new file."
        raise InputError(f"'{path}' exists and is not an outcome of `gnomon lab`", where="--out", hint=hint)


def run(
    context: typer.Context,
    slug: Annotated[
        str,
        typer.Argument(
            metavar="SLUG", autocompletion=names.words(_slugs), help="An experiment that `gnomon lab` lists."
        ),
    ],
    size: Annotated[
        list[str] | None,
        typer.Option("--size", metavar="NAME=VALUE", help="A size of the experiment; may be repeated."),
    ] = None,
    device: Annotated[
        str, typer.Option("--device", metavar="cuda|cpu", help="On the CPU results are checked and not timed.")
    ] = "cuda",
    out: Annotated[str | None, typer.Option("--out", metavar="FILE.json", help="Store the measurements.")] = None,
    as_json: flags.Json = False,
) -> None:
    """Check a technique against the plain version, then time both."""
    import json
    import sys
    from contextlib import redirect_stdout

    from gnomon.cli.files import output_file
    from gnomon.cli.output import emit, fail
    from gnomon.cli.progress import Progress
    from gnomon.lab.base import parse_sizes
    from gnomon.paths import write_text
    from gnomon.spec.answers import JsonAnswer

    path = output_file(out, "--out") if out is not None else None
    if path is not None:
        _check_replaced(path)
    given = parse_sizes(size or [])
    from gnomon.lab.run import run as answer

    with redirect_stdout(sys.stderr), Progress(slug) as tick:
        outcome = answer(slug, given, device, lambda text: tick(text=text))
    result = JsonAnswer(content=outcome.to_dict())
    text = json.dumps(result.to_dict(), indent=2, allow_nan=False) + "\n"
    files = [] if path is None else [lambda: write_text(path, text)]
    as_json = as_json or bool(context.parent and context.parent.params.get("as_json"))
    emit(result, as_json=as_json, files=files)
    if not outcome.ok:
        failed = [check.what for check in outcome.findings.checks if not check.ok]
        raise typer.Exit(fail(f"{len(failed)} checks failed, the first: {failed[0]}", where=slug, code=1))
