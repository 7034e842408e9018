"""`gnomon papers new`: a folder for a paper, with an entry to fill in."""

from __future__ import annotations

import re
from pathlib import Path

from gnomon.errors import InputError
from gnomon.papers.entries import papers, rows
from gnomon.paths import home, write_text
from gnomon.spec.questions.known import NewPaperQuestion

_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_ARXIV = re.compile(r"(\d\d)(0[1-9]|1[0-2])\.\d{4,5}")
TEMPLATE = Path(__file__).with_suffix(".yaml")
"""The entry to fill in."""


def begin(asked: NewPaperQuestion) -> tuple[str, ...]:
    """Write the folder of a paper; what is there already is left alone."""
    if not _SLUG.fullmatch(asked.slug):
        hint = "Use lowercase letters, digits and dashes: a-paper."
        raise InputError(f"'{asked.slug}' is not a name for a paper", where="SLUG", hint=hint)
    if asked.slug in rows():
        raise InputError(
            f"'{asked.slug}' is in the index", where="SLUG", hint=f"See `gnomon papers show {asked.slug}`."
        )
    place = Path(asked.out).expanduser() if asked.out is not None else home() / "papers"
    folder = place / asked.slug.replace("-", "_")
    if folder.exists():
        raise InputError(f"'{folder}' is there already", where="--out" if asked.out is not None else "SLUG")
    entry = _filled(asked.slug, asked.arxiv)
    try:
        folder.mkdir(parents=True)
    except OSError as problem:
        raise InputError(f"cannot be made: {problem.strerror or problem}", where=str(folder)) from None
    files = {"paper.yaml": entry}
    if (place / "__init__.py").exists():
        files["__init__.py"] = ""
    for name, text in files.items():
        write_text(folder / name, text)
    return tuple(str(folder / name) for name in files)


def _filled(slug: str, arxiv: str | None) -> str:
    """The entry with its name and, of an arXiv number, that and the month."""
    text = TEMPLATE.read_text(encoding="utf-8").replace("SLUG", slug)
    if arxiv is None:
        return re.sub(r"(?m)^date: .*\n", "", text)
    found = _ARXIV.fullmatch(arxiv.strip().removeprefix("arXiv:"))
    if not found:
        raise InputError(f"'{arxiv}' is not an arXiv number such as 2104.04473", where="--arxiv")
    known = next((paper for paper in papers() if paper.arxiv == found[0]), None)
    if known is not None:
        hint = f"See `gnomon papers show {known.slug}`."
        raise InputError(f"{found[0]} is in the index as '{known.slug}'", where="--arxiv", hint=hint)
    text = re.sub(r"(?m)^ids: .*", f'ids: {{arxiv: "{found[0]}"}}', text)
    return re.sub(r"(?m)^date: .*", f'date: "20{found[1]}-{found[2]}"', text)
