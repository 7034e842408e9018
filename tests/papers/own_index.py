"""An index of the test's own, of a few papers, in the place of the shipped one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

from gnomon.papers import build, entries, executed, index, source
from gnomon.papers.base import USUAL_TOLERANCE, Expected, seal

SHIPPED = Path(index.__file__).parent
PAPERS = ("cuda", "gpipe", "gptq", "zero-offload")
REPRODUCTION = """
kind: identity
setting: "8 stages, 32 micro-batches."
source: section 2
assumptions: ["stages are equal"]
inputs: [{name: "micro-batches", value: "32", source: section 2}]
techniques: []
notes: {reason: a reason}
expected:
  - {what: idle share, claimed: 0.18, tolerance: 0.01, kind: identity}
  - {what: speed, claimed: 3.5, unit: x, note: reason}
"""
FIGURES = """
STAGES, MICRO_BATCHES = 8, 32


def figures():
    yield "speed", 2.8
    yield "idle share", (STAGES - 1) / (MICRO_BATCHES + STAGES - 1)
"""


class OwnIndex:
    """Writes folders of papers and builds their index. None is re-derived and none was run until a test says so."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.index = folder / "index", folder / "index.json"
        self.entries: dict[str, dict[str, Any]] = {}
        for slug in PAPERS:
            text = (SHIPPED / slug.replace("-", "_") / "paper.yaml").read_text(encoding="utf-8")
            self.entries[slug] = {"status": "modelled", "why": "Not built."} | yaml.safe_load(text)
            self.entries[slug].pop("reproduction", None)
            self.write(slug, "paper.yaml", yaml.safe_dump(self.entries[slug]))

    def write(self, slug: str, name: str, text: str) -> None:
        path = self.folder / slug.replace("-", "_") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def build(self, counts: dict[str, Any] | None = None) -> None:
        forget()
        build.build(counts or {})

    def reproduce(self, slug: str, reproduction: str, figures: str) -> None:
        """A paper re-derived, by the text of its reproduction and of its figures.py."""
        entry = {name: value for name, value in self.entries[slug].items() if name not in ("status", "why")}
        if "\nsealed:" not in reproduction:
            reproduction = f'{reproduction.strip()}\nsealed: "{sealed(reproduction)}"'
        inner = "".join(f"  {line}\n" for line in reproduction.splitlines())
        self.write(slug, "paper.yaml", f"{yaml.safe_dump(entry)}reproduction:\n{inner}")
        self.write(slug, "figures.py", figures)
        self.build()

    def gpipe(self, old: str = "", new: str = "") -> None:
        """GPipe re-derived, with a part of its texts changed."""
        assert not old or (REPRODUCTION + FIGURES).count(old) == 1
        changed = [text.replace(old, new) if old else text for text in (REPRODUCTION, FIGURES)]
        self.reproduce("gpipe", *changed)

    def execute(self, slug: str, /, **changed: Any) -> None:
        """A result of `gnomon lab` that ships."""
        compared = [{"what": "one step", "gain": 2.5, "deferred_s": 0.0}]
        comparable = {"claim": "3 times faster", "comparable": False, "why": "another GPU"}
        found = {"schema": "gnomon.lab/1", "slug": slug, "ok": True, "device": "NVIDIA H200", "date": "2026-11-15"}
        self.write(slug, "lab.json", json.dumps(found | {"compared": compared, "comparable": comparable} | changed))
        self.build()


def sealed(reproduction: str) -> str:
    """The seal of its expected figures; of one that is written wrongly, any."""
    try:
        rows = yaml.safe_load(reproduction)["expected"]
        return seal(
            Expected(
                what=row["what"],
                claimed=row["claimed"],
                unit=row.get("unit", ""),
                tolerance=row.get("tolerance", USUAL_TOLERANCE),
                kind=row.get("kind", "predicted"),
                claim=row.get("claim", 0),
            )
            for row in rows
        )
    except (yaml.YAMLError, KeyError, TypeError):
        return "0" * 12


def forget() -> None:
    for cached in (entries.rows, entries.papers, entries.reproduced, executed.outcome, source.read):
        cached.cache_clear()
    for name in [name for name in sys.modules if name.startswith(f"{index.__name__}.")]:
        del sys.modules[name]
