"""The books that commands read are what the YAML files make, and one entry is parsed at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gnomon import catalog
from gnomon.catalog import build
from gnomon.catalog.base import DATA
from gnomon.catalog.book import BOOKS, Book
from gnomon.load.files import read_yaml


@pytest.mark.parametrize("title", build.RECIPES)
def test_books_are_what_the_files_make(title: str) -> None:
    stored = (BOOKS / f"{title}.jsonl").read_text(encoding="utf-8")
    assert stored == build.built(title), "run `make catalog`"


def test_every_book_has_a_recipe() -> None:
    assert {path.stem for path in BOOKS.iterdir()} == set(build.RECIPES)


def test_every_yaml_file_of_the_catalog_is_in_a_book_or_read_whole() -> None:
    bound = {path for recipe in build.RECIPES.values() for path in DATA.glob(recipe.sources)}
    whole = {DATA / "collectives.yaml", DATA / "published" / "training.yaml"}
    assert set(DATA.rglob("*.yaml")) == bound | whole


def test_profiles_are_their_files() -> None:
    paths = catalog.profile_paths()
    assert set(paths) == set(catalog.PROFILES.glob("*.yaml"))
    for path in paths:
        said = read_yaml(path)
        assert catalog.profile_data(path) == said
        assert set(catalog.profile_kinds(path)) == {key.partition(".")[0] for key in said["families"]}


def test_one_entry_is_parsed_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[Any] = []
    loads = json.loads

    def counted(text: Any) -> Any:
        parsed.append(text)
        return loads(text)

    monkeypatch.setattr(json, "loads", counted)
    for title, name in {"chips": "H100", "models": "llama-3.1-8b", "profiles": "h200-sxm-141gb"}.items():
        parsed.clear()
        book = Book(title, build.RECIPES[title].fold)
        found = book.find(name)
        assert found is not None
        assert book.entry(found)["name"] == found
        assert len(parsed) == 2  # names, and the entry


def test_names_that_yaml_takes_for_something_else_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "DATA", tmp_path)
    fields = "place: Norway\n  aliases: []\n"
    for bare in ("NO", "off", "1.0e+5", "1.5", "2025-01-01", "null"):
        (tmp_path / "grids.yaml").write_text(f"- name: {bare}\n  {fields}")
        with pytest.raises(ValueError, match="put it in quotes"):
            build.built("grids")
        (tmp_path / "grids.yaml").write_text(f'- name: "{bare}"\n  {fields}')
        assert json.loads(build.built("grids").splitlines()[0])["names"] == [bare]
        (tmp_path / "grids.yaml").write_text(f'- name: "{bare}"\n  place: Norway\n  aliases: [{bare}]\n')
        with pytest.raises(ValueError, match="put it in quotes"):
            build.built("grids")
