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
    commands.command("list")(listed)
    commands.command("run")(run)
    commands.command("predict")(predict)
    app.add_typer(commands, name="lab")


def lab(context: typer.Context, as_json: flags.Json = False) -> None:
    """Techniques of papers, run on your own GPU against the plain version."""
    if context.invoked_subcommand is None:
        listed(context, as_json)


def listed(context: typer.Context, as_json: flags.Json = False) -> None:
    """The experiments: what each checks, its sizes, what a stored run gained and what was predicted."""
    from gnomon.cli.output import emit
    from gnomon.lab import EXPERIMENTS, experiment
    from gnomon.spec.answers import JsonAnswer

    found = [_entry(experiment(slug)) for slug in EXPERIMENTS]
    content = {"schema": "gnomon.lab.list/1", "experiments": found}
    emit(JsonAnswer(content=content), as_json=_json(context, as_json), keep=False)


def _json(context: typer.Context, as_json: bool) -> bool:
    """Whether JSON was asked for, of the command or of its group."""
    return as_json or bool(context.parent and context.parent.params.get("as_json"))


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
        "unit": headline.get("unit", "seconds"),
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
        list[str] | None,
        typer.Argument(metavar="SLUG", autocompletion=names.words(_slugs), help="Experiments that `gnomon lab` lists."),
    ] = None,
    all_of_them: Annotated[bool, typer.Option("--all", help="All experiments, into --out-dir.")] = False,
    size: Annotated[
        list[str] | None,
        typer.Option("--size", metavar="NAME=VALUE", help="A size of the experiment; may be repeated."),
    ] = None,
    device: Annotated[
        str, typer.Option("--device", metavar="cuda|cpu", help="On the CPU results are checked and not timed.")
    ] = "cuda",
    out: Annotated[str | None, typer.Option("--out", metavar="FILE.json", help="Store the measurements.")] = None,
    out_dir: Annotated[
        str | None,
        typer.Option(
            "--out-dir", metavar="FOLDER", help="Store each experiment's measurements and log; those there are kept."
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", metavar="S", help="End an experiment of --out-dir after so long (150).", min=1),
    ] = None,
    total_seconds: Annotated[
        float | None,
        typer.Option("--total-seconds", metavar="S", help="End all of --out-dir after so long.", min=1),
    ] = None,
    as_json: flags.Json = False,
) -> None:
    """Check a technique against the plain version, then time both. With --out-dir: several, each in its own process."""
    from gnomon.lab.base import parse_sizes

    limits = {"--seconds": seconds, "--total-seconds": total_seconds}
    chosen = _chosen(slug or [], all_of_them)
    as_json, given = _json(context, as_json), parse_sizes(size or [])
    if out_dir is None:
        _refuse({name: value is not None for name, value in limits.items()}, "is for --out-dir, which was not given")
        if len(chosen) != 1:
            raise _usage(f"{len(chosen)} experiments need a folder for their results", "Give --out-dir FOLDER.")
        _run_one(chosen[0], given, device, out, as_json)
    else:
        _refuse({"--size": bool(size), "--out": out is not None}, "is for one experiment, not for --out-dir")
        _run_several(chosen, device, out_dir, limits, as_json)


def _usage(what: str, hint: str) -> Exception:
    from gnomon.errors import InputError

    return InputError(what, where="SLUG", hint=hint)


def _chosen(slugs: list[str], all_of_them: bool) -> list[str]:
    from gnomon.lab import EXPERIMENTS, experiment

    if all_of_them == bool(slugs):
        raise _usage("give experiments by name, or --all", "`gnomon lab` lists them.")
    return list(EXPERIMENTS) if all_of_them else [experiment(slug).slug for slug in dict.fromkeys(slugs)]


def _refuse(given: dict[str, bool], why: str) -> None:
    from gnomon.errors import InputError

    for name, there in given.items():
        if there:
            raise InputError(why, where=name)


def _run_one(slug: str, given: dict[str, str], device: str, out: str | None, as_json: bool) -> None:
    import json
    import sys
    from contextlib import redirect_stdout

    from gnomon.cli.files import output_file
    from gnomon.cli.output import emit, fail
    from gnomon.cli.progress import Progress
    from gnomon.paths import write_text
    from gnomon.report.text import plural
    from gnomon.spec.answers import JsonAnswer

    path = output_file(out, "--out") if out is not None else None
    if path is not None:
        _check_replaced(path)
    from gnomon.lab.run import run as answer

    with redirect_stdout(sys.stderr), Progress(slug) as tick:
        outcome = answer(slug, given, device, lambda text: tick(text=text))
    result = JsonAnswer(content=outcome.to_dict())
    text = json.dumps(result.to_dict(), indent=2, allow_nan=False) + "\n"
    files = [] if path is None else [lambda: write_text(path, text)]
    emit(result, as_json=as_json, files=files)
    if not outcome.ok:
        failed = [check.what for check in outcome.findings.checks if not check.ok]
        raise typer.Exit(fail(f"{plural(len(failed), 'check')} failed, the first: {failed[0]}", where=slug, code=1))


def _run_several(slugs: list[str], device: str, folder: str, limits: dict[str, float | None], as_json: bool) -> None:
    from gnomon.cli.files import output_folder
    from gnomon.cli.output import emit, fail
    from gnomon.cli.progress import Progress
    from gnomon.lab.batch import SECONDS, BatchLimits, run_batch, to_dict
    from gnomon.lab.run import check_machine
    from gnomon.spec.answers import JsonAnswer

    path = output_folder(folder, "--out-dir")
    check_machine(device)
    allowed = BatchLimits(seconds=limits["--seconds"] or SECONDS, total_s=limits["--total-seconds"])
    with Progress("lab") as tick:
        content = to_dict(run_batch(slugs, device, path, allowed, lambda text: tick(text=text)), device)
    emit(JsonAnswer(content=content), as_json=as_json, keep=False)
    if not content["ok"]:
        raise typer.Exit(fail("not every experiment has a result whose checks hold", where=folder, code=1))


def predict(
    context: typer.Context,
    slug: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SLUG", autocompletion=names.words(_slugs), help="Experiments that `gnomon lab` lists; else all."
        ),
    ] = None,
    on: Annotated[str, typer.Option("--on", metavar="CHIP", autocompletion=names.chips, help="The chip.")] = "H200",
    size: Annotated[
        list[str] | None,
        typer.Option("--size", metavar="NAME=VALUE", help="A size of the experiment; may be repeated."),
    ] = None,
    rates: Annotated[
        list[str] | None,
        typer.Option("--rates", metavar="FILE.json", help="A run on the same machine, for its rates; may be repeated."),
    ] = None,
    as_json: flags.Json = False,
) -> None:
    """What experiments will find on a chip, before they run there."""
    from pathlib import Path

    from gnomon.cli.output import emit
    from gnomon.lab import EXPERIMENTS, experiment
    from gnomon.lab.base import parse_sizes
    from gnomon.lab.predicted import preview, rates_of
    from gnomon.load.chips import chip as find_chip
    from gnomon.spec.answers import JsonAnswer

    for flag, values in {"--on": [on], "--rates": rates or []}.items():
        _refuse({flag: not all(value.strip() for value in values)}, "is empty")
    given, chip = parse_sizes(size or []), find_chip(on)
    if given and len(slug or []) != 1:
        _refuse({"--size": True}, "is for one experiment")
    facts = rates_of([Path(name) for name in rates or []], chip)
    chosen = [experiment(one) for one in dict.fromkeys(slug or EXPERIMENTS)]
    found = [preview(one.slug, one.read_sizes(given, "cuda"), chip, facts) for one in chosen]
    content = {"schema": "gnomon.lab.predict/1", "device": chip.name, "predicted": found}
    emit(JsonAnswer(content=content), as_json=_json(context, as_json), keep=False)
