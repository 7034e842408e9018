"""A paper as BibTeX: what is known of it, and nothing else."""

from __future__ import annotations

import unicodedata

from gnomon.papers.base import Paper

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_SPECIAL = {"&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}", "~": r"\~{}"}
CITED = ("author", "year", "eprint", "doi")
"""Fields that a reader looks for, with the facts that they are made of."""


def bibtex(paper: Paper) -> str:
    """An entry whose key is the paper's slug.

    Letters beyond ASCII stay as they are, which BibLaTeX and today's BibTeX read.
    """
    fields = {
        "title": f"{{{_escaped(paper.title)}}}",  # in two braces, which keep its capitals
        "author": " and ".join(map(_escaped, paper.authors)),
        "year": paper.date[:4],
        "eprint": paper.arxiv,
        "archivePrefix": "arXiv" if paper.arxiv else "",
        "doi": paper.doi,
        "url": _address(paper),
        "note": f"code: {paper.repository}" if paper.repository else "",
    }
    lines = [f"  {name:<13} = {{{value}}}," for name, value in fields.items() if value]
    if len(paper.date) > 4:
        lines.insert(_place_of_month(lines), f"  {'month':<13} = {MONTHS[int(paper.date[5:7]) - 1]},")
    return "\n".join([f"@misc{{{paper.slug},", *lines, "}"]) + "\n"


def unknown(paper: Paper) -> tuple[str, ...]:
    """Fields that nothing is known of."""
    known = {"author": paper.authors, "year": paper.date, "eprint": paper.arxiv, "doi": paper.doi}
    return tuple(name for name in CITED if not known[name])


def _address(paper: Paper) -> str:
    if paper.arxiv:
        return f"https://arxiv.org/abs/{paper.arxiv}"
    return f"https://doi.org/{paper.doi}" if paper.doi else next(iter(paper.links), "")


def _place_of_month(lines: list[str]) -> int:
    return 1 + next(at for at, line in enumerate(lines) if line.lstrip().startswith("year"))


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(letter, letter) for letter in unicodedata.normalize("NFC", text))
