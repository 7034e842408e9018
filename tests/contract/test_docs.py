"""Documentation names files that exist, and every page can be found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "gnomon"
DOCS = ROOT / "docs"
MAP = (DOCS / "architecture.md").read_text(encoding="utf-8")
PAGES = sorted((*DOCS.glob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))))
MEASURED = ROOT / "measurements" / "h200-2026-11-15"
NOT_OURS = {"paper.yaml", "config.json"}
"""Files of users, or one of many folders."""
APART = {"sweeps.md"}
"""A page that the index names before it is written."""
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
WANTED = (
    "decode attention",
    "host overhead",
    "bandwidth of a chip",
    "serving search",
    "training search",
    "paper's claim",
    "text of an error",
    "text of an answer",
)
"""What a reader of the map is to find in two minutes each."""


def paths() -> list[tuple[str, str]]:
    """What the map names in code as a path, and a definition inside it where it names one."""
    found = []
    for code in re.findall(r"`([^`\n]+)`", MAP):
        path, _, inner = code.partition(": ")
        if re.fullmatch(r"[\w./*-]+", path) and ("/" in path or re.search(r"\.(py|yaml|json|csv|md)$", path)):
            found.append((path, inner))
    return found


def places(path: str) -> list[Path]:
    roots = (SRC, ROOT, MEASURED)
    return [place for root in roots for place in root.glob(path.rstrip("/"))]


def test_the_map_names_many_files() -> None:
    assert len(paths()) > 100


def test_every_path_of_the_map_exists() -> None:
    assert sorted({path for path, _ in paths() if path not in NOT_OURS and not places(path)}) == []


def test_what_the_map_names_inside_a_file_is_there() -> None:
    for path, inner in paths():
        if inner:
            (place,) = places(path)
            assert re.search(rf"\b(def|class) {inner}\b", place.read_text(encoding="utf-8")), f"{path}: {inner}"


def test_the_map_begins_with_what_people_look_for() -> None:
    table = MAP.partition("## Where is …")[2].partition("\n## ")[0]
    rows = [line.split(" | ", 1) for line in table.splitlines() if line.startswith("| ")]
    for what in WANTED:
        found = [files for name, files in rows if what in name]
        assert found, what
        assert all("`" in files for files in found), what


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in sorted(DOCS.glob("*.md")) if f"]({page.name})" not in index] == ["README.md"]


def anchors(page: Path) -> set[str]:
    """Headings as GitHub links to them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    lost = []
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://")) or target in APART:
            continue
        place = (page.parent / target).resolve() if target else page
        if not place.exists() or (anchor and place.suffix == ".md" and anchor not in anchors(place)):
            lost.append(f"{target}#{anchor}" if anchor else target)
    assert lost == []
