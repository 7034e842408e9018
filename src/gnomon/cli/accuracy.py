"""`gnomon accuracy`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnomon.cli import flags

if TYPE_CHECKING:
    from collections.abc import Mapping


def add(app: typer.Typer) -> None:
    app.command("accuracy")(accuracy)


def accuracy(
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Compute it again; needs the published tables (GNOMON_TRUTH).")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Compute it again from fewer rows.")] = False,
    chip: Annotated[str | None, typer.Option("--chip", metavar="CHIP", help="Results of one chip.")] = None,
    framework: Annotated[
        str | None, typer.Option("--framework", metavar="NAME", help="Results of one framework or engine.")
    ] = None,
    family: Annotated[
        str | None, typer.Option("--family", metavar="KIND", help="Results of one kind of operator: gemm, attention …")
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE.md", help="Write the page, and its lists in a folder beside.")
    ] = None,
    page: Annotated[
        str | None, typer.Option("--page", metavar="DIR", help="Write a web page with pictures to this folder.")
    ] = None,
    save: Annotated[
        str | None, typer.Option("--save", metavar="FILE.json", help="Keep the results as they are stored.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=64, metavar="N", help="Processes that fit.")] = 1,
    as_json: flags.Json = False,
) -> None:
    """How far off predictions are, on data not fitted to."""
    from gnomon.api.accuracy import accuracy as answer
    from gnomon.cli.files import output_file
    from gnomon.cli.output import emit, put
    from gnomon.cli.progress import Progress

    places = {name: output_file(path, f"--{name}") for name, path in (("out", out), ("save", save)) if path is not None}
    with Progress("accuracy") as tick:
        results = answer(
            fresh=fresh, quick=quick, chip=chip, framework=framework, family=family, jobs=jobs, progress=tick
        )
    found = results.to_dict()
    written = _written(found, places.get("out"), places.get("save"), Path(page) if page is not None else None)
    if as_json:
        emit(found, as_json=True, keep=False)
    elif written:
        put("".join(f"{path}\n" for path in written))
    else:
        from gnomon.report.accuracy import brief

        put(brief(found))


def _written(found: Mapping[str, Any], out: Path | None, save: Path | None, site: Path | None) -> list[Path]:
    """Writes the files that were asked for, all or none of a kind, and gives back where they are."""
    from gnomon.api.accuracy import stored
    from gnomon.paths import write_text
    from gnomon.report.accuracy import listed, page

    texts: dict[Path, str] = {}
    if save is not None:
        texts[save] = stored.text(found)
    if out is not None:
        beside = out.with_suffix("")
        texts |= {out: page(found, beside.name)} | {beside / name: text for name, text in listed(found).items()}
    if site is not None:
        texts |= _site(found, site)
    for path, text in texts.items():
        _folder(path.parent)
        write_text(path, text)
    return list(texts)


def _site(found: Mapping[str, Any], folder: Path) -> dict[Path, str]:
    from gnomon.report.accuracy import listed, page
    from gnomon.report.accuracy.html import document
    from gnomon.report.accuracy.plots import pictures

    drawn = {folder / name: picture.decode() for name, picture in pictures(found).items()}
    return {folder / "index.html": document(found["title"], page(found, "."), listed(found))} | drawn


def _folder(path: Path) -> None:
    from gnomon.errors import InputError

    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InputError(f"cannot be made: {problem.strerror or problem}", where=str(path)) from None
