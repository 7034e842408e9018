"""Names a shell offers while a command is typed, in any case."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any


def models(incomplete: str) -> list[str]:
    from gnomon.catalog import model_names

    return _completed(incomplete, model_names())


def chips(incomplete: str) -> list[str]:
    """Chips whose name begins with the last word; the short names people use come first."""
    from gnomon.load.chips import try_names

    head, comma, last = incomplete.rpartition(",")
    found = _completed(last, (name for name in try_names() if " " not in name))
    return [f"{head}{comma}{name}" for name in sorted(found, key=lambda name: (len(name), name.lower()))]


def papers(incomplete: str) -> list[str]:
    from gnomon.papers.entries import papers as entries

    return _completed(incomplete, (entry.slug for entry in entries()))


def reproduced(incomplete: str) -> list[str]:
    from gnomon.papers.entries import reproduced as slugs

    return _completed(incomplete, slugs())


def words(known: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """One of a few words, which are looked up when they are asked for."""
    return lambda incomplete: _completed(incomplete, known())


def _listed(module: str, name: str) -> Callable[[], Iterable[str]]:
    """What a module lists under a name; it is imported when that is asked for."""

    def known() -> Iterable[str]:
        found: Any = getattr(import_module(f"gnomon.{module}"), name)
        listed: Iterable[str] = found() if callable(found) else found
        return sorted(listed) if isinstance(listed, frozenset | set) else listed

    return known


formats = _listed("graph.dtypes", "WIDTH")
orders = _listed("load.listings", "ORDERS")
kinds = _listed("spec.model", "KINDS")
topics = _listed("papers.base", "TOPICS")
statuses = _listed("papers.base", "STATUSES")
topic_groups = _listed("papers.entries", "categories")
paper_clusters = _listed("papers.clusters", "clusters")
targets = _listed("export", "targets")
routers = _listed("spec.plan", "ROUTERS")
pool_kinds = _listed("spec.plan", "POOL_KINDS")
kv_transfers = _listed("spec.plan", "KV_TRANSFERS")
schedules = _listed("sim.training", "names")
recompute = _listed("spec.recompute", "WAYS")
cp_comms = _listed("spec.training", "CP_COMM_NAMES")
dispatches = _listed("spec.training", "DISPATCHES")
checkpoint_modes = _listed("spec.reliability", "CHECKPOINT_MODES")
packings = _listed("spec.training", "PACKINGS")
samplings = _listed("spec.training", "SAMPLINGS")
optimizers = _listed("spec.training", "OPTIMIZERS")


def phases() -> Iterable[str]:
    return ("prefill", "decode", "train", "forward")


def _completed(typed: str, names: Iterable[str]) -> list[str]:
    """Names that begin so, with their beginning as it was typed: shells drop those that differ from it."""
    return [typed + name[len(typed) :] for name in names if name.lower().startswith(typed.lower())]
