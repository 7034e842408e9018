"""`gnomon accuracy`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnomon.cli import flags

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gnomon.errors import InputError


def add(app: typer.Typer) -> None:
    app.command("accuracy")(accuracy)


def _narrow(flag: str, metavar: str, says: str) -> Any:
    return typer.Option(flag, parser=flags.word(flag), metavar=metavar, help=says)


def accuracy(
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Recompute; needs the published tables (GNOMON_TRUTH).")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Recompute from fewer rows.")] = False,
    part: Annotated[
        str | None,
        _narrow(
            "--part",
            "NAME",
            "Recompute this alone: training, steps, deployments, runs or operators.",
        ),
    ] = None,
    chip: Annotated[str | None, _narrow("--chip", "CHIP", "Results of one chip.")] = None,
    framework: Annotated[str | None, _narrow("--framework", "NAME", "Results of one framework or engine.")] = None,
    family: Annotated[
        str | None, _narrow("--family", "KIND", "Results of one kind of operator: gemm, attention …")
    ] = None,
    dtype: Annotated[str | None, _narrow("--dtype", "FORMAT", "Results in one number format: bf16, fp8 …")] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE.md", help="Write the page, and its lists in a folder next to it."),
    ] = None,
    page: Annotated[
        str | None, typer.Option("--page", metavar="DIR", help="Write a web page with plots to this folder.")
    ] = None,
    save: Annotated[
        str | None, typer.Option("--save", metavar="FILE.json", help="Write the results in the stored format.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=64, metavar="N", help="Parallel processes.")] = 1,
    as_json: flags.Json = False,
) -> None:
    """Errors of predictions on held-out data."""
    from gnomon.accuracy import accuracy as answer
    from gnomon.cli.output import emit, fail, put
    from gnomon.cli.progress import Progress

    places, site = _places(out, save, page)
    words = {"chip": chip, "framework": framework, "family": family, "dtype": dtype}
    with Progress("accuracy") as tick:
        results = answer(fresh=part or fresh, quick=quick, jobs=jobs, progress=tick, **words)
    found = results.to_dict()
    written, problem = _written(found, places.get("--out"), places.get("--save"), site)
    if as_json:
        emit(results, as_json=True, keep=False)
    elif written and not problem:
        put("".join(f"{path}\n" for path in written))
    else:
        put(f"{results}\n")
    if problem:
        raise typer.Exit(fail(problem.message, where=problem.where, hint="Not all files were written."))


def _places(out: str | None, save: str | None, page: str | None) -> tuple[dict[str, Path], Path | None]:
    """Where files go, checked before anything is computed: none takes the place of another."""
    from gnomon.cli.files import keep_apart, output_files, output_folder
    from gnomon.errors import InputError
    from gnomon.report.accuracy import LISTS
    from gnomon.report.accuracy.plots import NAMES

    paths = output_files({"--out": out, "--save": save})
    if (path := paths.get("--out")) is not None:
        if not path.suffix:
            hint = f"Call it {path.name}.md: the lists go to the folder {path.name} next to it."
            raise InputError(f"'{out}' has no extension", where="--out", hint=hint)
        beside = output_folder(str(path.with_suffix("")), "--out")
        for name in LISTS:
            keep_apart({"--save": paths["--save"]} if save else {}, beside / f"{name}.md", "a list of --out")
    site = output_folder(page, "--page") if page is not None else None
    for name in ("index.html", *NAMES) if site else ():
        keep_apart(paths, Path(page or "", name), "--page")
    return paths, site


def _written(
    found: Mapping[str, Any], out: Path | None, save: Path | None, site: Path | None
) -> tuple[list[Path], InputError | None]:
    """Writes the files that were asked for, and gives back where they are, and what stood in the way of the first that
    could not be written."""
    from gnomon.accuracy import stored
    from gnomon.paths import unwritten
    from gnomon.report.accuracy import listed, page

    texts: dict[Path, str] = {}
    if save is not None:
        texts[save] = stored.text(found)
    if out is not None:
        beside = out.with_suffix("")
        texts |= {out: page(found, beside.name)} | {beside / name: text for name, text in listed(found).items()}
    if site is not None:
        texts |= _site(found, site)
    problems = [unwritten(path, text) for path, text in texts.items()]
    return list(texts), next(filter(None, problems), None)


def _site(found: Mapping[str, Any], folder: Path) -> dict[Path, str]:
    from gnomon.report.accuracy import listed, page
    from gnomon.report.accuracy.html import document
    from gnomon.report.accuracy.plots import pictures

    drawn = {folder / name: picture.decode() for name, picture in pictures(found).items()}
    return {folder / "index.html": document(found["title"], page(found, "."), listed(found))} | drawn
