"""The chips, models and techniques that Gnomon knows."""

from __future__ import annotations

from pathlib import Path

from gnomon.load.listings import (
    FAMILY,
    Chips,
    Models,
    NewChip,
    Techniques,
    list_chips,
    list_models,
    list_techniques,
    write_chip,
)  # fmt: skip
from gnomon.spec.questions.known import ChipsQuestion, ModelsQuestion, NewChipQuestion


def chips(
    name: str | None = None,
    *,
    vendor: str | None = None,
    architecture: str | None = None,
    memory: str | float | None = None,
    sort: str = FAMILY,
) -> Chips:
    """Every known chip, or the one of a name, an alias or a file with the sources of its figures.

    A list can be cut to a vendor, an architecture and a least memory.
    """
    return list_chips(ChipsQuestion(name=name, vendor=vendor, architecture=architecture, memory=memory, sort=sort))


def new_chip(name: str, *, like: str = "H100", replace: bool = False, out: str | Path | None = None) -> NewChip:
    """Write a file that describes a custom chip, filled with another chip's figures, where Gnomon finds it.

    With `out` it is written there instead. A file that is there already is left alone.
    """
    return write_chip(NewChipQuestion(name=name, like=like, replace=replace, out=out))


def models(name: str | None = None, *, find: str | None = "", kind: str | None = "") -> Models:
    """Every known model, or the one of a name, a hub id, a folder or a file with its shapes.

    `find` keeps those that have all of its words in one of their names, `kind` those built so: see `KINDS`.
    """
    return list_models(ModelsQuestion(name=name, find=None if find == "" else find, kind=None if kind == "" else kind))


def techniques() -> Techniques:
    """All techniques by name: what each does, its parameters and their ranges, what it excludes, its papers."""
    return list_techniques()
