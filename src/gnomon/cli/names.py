"""Names a shell offers while a command is typed, in whatever case it is typed."""

from __future__ import annotations

from collections.abc import Callable, Iterable


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


def rederived(incomplete: str) -> list[str]:
    from gnomon.papers.entries import rederived as slugs

    return _completed(incomplete, slugs())


def words(known: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """One of a few words, which are looked up when they are asked for."""

    def offered(incomplete: str) -> list[str]:
        return _completed(incomplete, known())

    return offered


def formats() -> Iterable[str]:
    from gnomon.graph.dtypes import WIDTH

    return WIDTH


def orders() -> Iterable[str]:
    from gnomon.load.listings import ORDERS

    return ORDERS


def kinds() -> Iterable[str]:
    from gnomon.spec.model import KINDS

    return KINDS


def topics() -> Iterable[str]:
    from gnomon.papers.base import TOPICS

    return sorted(TOPICS)


def statuses() -> Iterable[str]:
    from gnomon.papers.base import STATUSES

    return STATUSES


def shelves() -> Iterable[str]:
    from gnomon.papers.entries import shelves as known

    return known()


def targets() -> Iterable[str]:
    from gnomon.export import TARGETS

    return TARGETS


def routers() -> Iterable[str]:
    from gnomon.spec.plan import ROUTERS

    return ROUTERS


def schedules() -> Iterable[str]:
    from gnomon.spec.training import SCHEDULES

    return SCHEDULES


def recompute() -> Iterable[str]:
    from gnomon.spec.training import RECOMPUTE

    return RECOMPUTE


def cp_comms() -> Iterable[str]:
    from gnomon.spec.training import CP_COMMS

    return CP_COMMS


def optimizers() -> Iterable[str]:
    from gnomon.load.recipe import OPTIMIZERS

    return OPTIMIZERS


def phases() -> Iterable[str]:
    return ("prefill", "decode", "train", "forward")


def _completed(typed: str, names: Iterable[str]) -> list[str]:
    """Names that begin so, with their beginning as it was typed: shells drop those that differ from it."""
    return [typed + name[len(typed) :] for name in names if name.lower().startswith(typed.lower())]
