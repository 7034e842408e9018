"""A folder of derivations and lab results of the test's own, in the place of the shipped ones."""

from __future__ import annotations

import sys
from pathlib import Path

from gnomon.papers import derivations, derived, shelf

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
        self.derived, self.home = folder / "derived", folder
        self.derived.mkdir()
        (folder / "lab").mkdir()
        (folder / "shelves").symlink_to(shelf.HERE / "shelves")

    def derive(self, slug: str, text: str) -> None:
        (self.derived / f"{slug.replace('-', '_')}.py").write_text(text)
        forget()

    def gpipe(self, old: str = "", new: str = "") -> None:
        """A derivation of GPipe, with a part of its text changed."""
        assert not old or GPIPE.count(old) == 1
        self.derive("gpipe", GPIPE.replace(old, new) if old else GPIPE)

    def execute(self, slug: str) -> None:
        (self.home / "lab" / f"{slug}.json").write_text("{}")
        forget()


def forget() -> None:
    for cached in (derivations.slugs, derivations.derivation, shelf.papers):
        cached.cache_clear()
    for name in [name for name in sys.modules if name.startswith(f"{derived.__name__}.")]:
        del sys.modules[name]
