"""A folder of derivations and lab results of the test's own, in the place of the shipped ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from gnomon.papers import derivations, derived, executed, holds, shelf

GPIPE = """
from gnomon.papers.base import Derivation, Figure, Input

STAGES, MICRO_BATCHES = 8, 32


def figures():
    share = (STAGES - 1) / (MICRO_BATCHES + STAGES - 1)
    return [
        Figure(what="idle share", claimed=0.18, ours=share, tolerance=0.01, kind="identity"),
        Figure(what="speed", claimed=3.5, ours=2.8, unit="x", note="a reason"),
    ]


DERIVATION = Derivation(
    slug="gpipe",
    kind="identity",
    setting="8 stages, 32 micro-batches.",
    source="section 2",
    assumptions=("stages are equal",),
    inputs=(Input(name="micro-batches", value="32", source="section 2"),),
    figures=figures,
    techniques=(),
)
"""


class Shelved:
    """Puts derivations and lab results beside the shelves."""

    def __init__(self, folder: Path) -> None:
        self.derived, self.lab = folder / "derived", folder / "lab"
        self.derived.mkdir()
        self.lab.mkdir()
        self.counts = folder / "holds.json"
        self.counts.write_text("{}")

    def derive(self, slug: str, text: str) -> None:
        (self.derived / f"{slug.replace('-', '_')}.py").write_text(text)
        forget()

    def gpipe(self, old: str = "", new: str = "") -> None:
        """A derivation of GPipe, with a part of its text changed."""
        assert not old or GPIPE.count(old) == 1
        self.derive("gpipe", GPIPE.replace(old, new) if old else GPIPE)

    def execute(self, slug: str, /, **changed: Any) -> None:
        """A result of `gnomon lab` that ships."""
        compared = [{"what": "one step", "gain": 2.5, "deferred_s": 0.0}]
        comparable = {"claim": "3 times faster", "comparable": False, "why": "another GPU"}
        found = {"schema": "gnomon.lab/1", "slug": slug, "ok": True, "device": "NVIDIA H200", "date": "2026-11-15"}
        (self.lab / f"{slug}.json").write_text(
            json.dumps(found | {"compared": compared, "comparable": comparable} | changed)
        )
        forget()


def forget() -> None:
    for cached in (
        derivations.slugs,
        derivations.kind,
        derivations.missing,
        derivations.derivation,
        executed.outcome,
        holds.stored,
        shelf.papers,
    ):
        cached.cache_clear()
    for name in [name for name in sys.modules if name.startswith(f"{derived.__name__}.")]:
        del sys.modules[name]
