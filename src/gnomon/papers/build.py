"""Builds the index of all paper folders: `python -m gnomon.papers.build`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gnomon.errors import GnomonError
from gnomon.papers import entries, source
from gnomon.papers.clusters import clusters_of
from gnomon.papers.index import file_of
from gnomon.papers.ranking import stems_of


def stored_counts() -> dict[str, Any]:
    """Counts of figures within tolerance, from the existing index; empty without one, or where a merge has left one
    that cannot be read: `make papers` counts again."""
    try:
        return {slug: row["counts"] for slug, row in entries.rows().items()}
    except (FileNotFoundError, ValueError):
        return {}


def built(counts: Mapping[str, Any]) -> str:
    """The text of the index, one paper per line, with these counts of reproduced figures."""
    rows = []
    for paper in source.read_all():
        given = source.read(paper.slug)[1]
        reproduced = file_of(paper.slug, "figures.py").exists()
        rows.append(
            {
                "paper": asdict(paper),
                "clusters": clusters_of(paper),
                "reproduced": reproduced,
                "counts": counts.get(paper.slug) if reproduced else None,
                "stems": stems_of(paper, given.techniques if given else ()),
            }
        )
    lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def build(counts: Mapping[str, Any]) -> None:
    """Write the index and clear cached reads of the old one."""
    entries.INDEX.write_text(built(counts), encoding="utf-8")
    for kept in (entries.rows, entries.papers, entries.reproduced):
        kept.cache_clear()


if __name__ == "__main__":
    try:
        build(stored_counts())
    except GnomonError as error:
        sys.exit(f"error: {error}")
    print(f"{entries.INDEX.name}: {len(entries.papers())} papers")
