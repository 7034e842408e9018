"""Makes the catalog's books of its YAML files: `python -m gnomon.catalog.build`, or `make catalog`.

YAML is what people write and review; a book is what a command reads, so that nothing is parsed but what is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from gnomon.catalog.base import DATA, fold
from gnomon.catalog.book import BOOKS, squash

Entry = dict[str, Any]


def _listed(files: Iterable[Path]) -> Iterator[Entry]:
    """The entries of files that are lists of them."""
    for file in files:
        yield from _parsed(file)


def _profiles(files: Iterable[Path]) -> Iterator[Entry]:
    """A file each, named by it."""
    for file in files:
        yield {"name": file.stem, **_parsed(file)}


def _parsed(file: Path) -> Any:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(file.read_bytes(), Loader=loader)


def _aliases(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(entry.get("aliases", ()))


def _of_model(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return (entry["title"], entry.get("hub_id", entry["name"]), *entry["aliases"])


def _spelling(value: Any) -> str:
    """A name or an alias: a text, or a whole number such as 4090. YAML takes a bare NO for false, 1.5 for a float."""
    if type(value) not in (str, int):
        raise ValueError(f"{value!r} is no name: put it in quotes")
    return str(value)


def _kinds(entry: Mapping[str, Any]) -> list[str]:
    """Kinds of operators that a profile has families of."""
    return sorted({key.partition(".")[0] for key in entry["families"]})


@dataclass(frozen=True, slots=True, kw_only=True)
class BookRecipe:
    """How one book is made."""

    sources: str
    """Its YAML files, as a pattern under the catalog's data."""
    read: Callable[[Iterable[Path]], Iterator[Entry]] = _listed
    fold: Callable[[str], str] = squash
    spelled: Callable[[Mapping[str, Any]], tuple[Any, ...]] = _aliases
    """What an entry is called beside its name."""
    known: Mapping[str, Callable[[Mapping[str, Any]], Any]] | None = None
    """What is told of every entry beside its line."""


RECIPES = {
    "chips": BookRecipe(sources="chips/*.yaml"),
    "links": BookRecipe(sources="links.yaml"),
    "hosts": BookRecipe(sources="hosts.yaml"),
    "nodes": BookRecipe(sources="nodes.yaml"),
    "sources": BookRecipe(sources="sources.yaml"),
    "grids": BookRecipe(sources="grids.yaml", fold=fold),  # us-east-1 and us-east1 are two places
    "failures": BookRecipe(sources="failures.yaml", fold=fold),
    "models": BookRecipe(sources="models.yaml", fold=fold, spelled=_of_model),
    "profiles": BookRecipe(sources="profiles/*.yaml", read=_profiles, fold=str, known={"kinds": _kinds}),
}


def built(title: str) -> str:
    """The text of a book, from its YAML files."""
    recipe = RECIPES[title]
    entries = list(recipe.read(sorted(DATA.glob(recipe.sources))))
    names = [_spelling(entry["name"]) for entry in entries]
    spellings = {name: name for name in names}
    for name, entry in zip(names, entries, strict=True):
        spellings |= {other: name for other in map(_spelling, recipe.spelled(entry)) if other not in spellings}
    folded: dict[str, str] = {}
    for spelling, name in spellings.items():
        folded.setdefault(recipe.fold(spelling), name)
    computed = {what: {entry["name"]: ask(entry) for entry in entries} for what, ask in (recipe.known or {}).items()}
    head = {"names": names, "spellings": spellings, "folded": folded} | computed
    return "".join(f"{_line(one)}\n" for one in (head, *entries))


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_text)


def _text(value: Any) -> str:
    """A date as YAML writes it; nothing else that JSON lacks stands in the files."""
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"{value!r} has no place in a book")


def main(titles: Iterable[str] = tuple(RECIPES)) -> None:
    """Write books."""
    BOOKS.mkdir(exist_ok=True)
    for title in titles:
        fresh = BOOKS / f"{title}.new"  # whoever reads meanwhile reads the old one whole
        fresh.write_text(built(title), encoding="utf-8", newline="\n")
        fresh.replace(BOOKS / f"{title}.jsonl")


if __name__ == "__main__":
    main()
