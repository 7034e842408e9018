"""The text of `gnomon import`."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.report.text import INDENT, Style, next_steps, table
from gnomon.spec.imported import UNMODELLED, ImportedPlan


def render(answer: ImportedPlan, style: Style) -> str:
    plan = answer.plan
    lines = [style.strong(answer.title), ""]
    rows = [("router", plan.router if plan.pools else "")]
    for place, pool in enumerate(plan.each_pool, 1):
        which = f" of pool {place}" if plan.pools else ""
        rows += [(f"settings{which}", ", ".join(f"{name} {value}" for name, value in pool.engine.settings.items()))]
        rows += [(f"cache{which}", pool.kv_dtype)]
    rows += [("checkpoint", plan.checkpoint)]
    rows += [("variables", ", ".join(f"{name}={value}" for name, value in answer.variables.items()))]
    shown = [(name, text) for name, text in rows if text]
    lines += [*table(shown, "<<"), ""] if shown else []
    lines += [line for affects in (True, False) for line in _ignored(answer, affects, style)]
    tune = () if plan.pools or plan.trains else ("gnomon tune last --rate 4 --input 1024 --output 256",)
    return "\n".join([*lines, *next_steps(*tune, "gnomon export last")])


def _several(found: list[tuple[str, str]], why: str) -> str:
    """Options of one reason by their names: training commands have dozens of them."""
    names = [option.partition(" ")[0].rstrip(":") for option, reason in found if reason == why]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


NAMED = 2
"""Options that are named of those with one reason."""


def _ignored(answer: ImportedPlan, affects: bool, style: Style) -> Iterator[str]:
    """Options of one kind: those that change what the deployment does come first."""
    found = [(one.option, one.why.removeprefix(UNMODELLED)) for one in answer.ignored if one.affects is affects]
    if answer.plan.trains and not affects:
        found = [(_several(found, why), why) for why in dict.fromkeys(why for _, why in found)]
    if found:
        yield style.faint(f"{INDENT}{'not modelled' if affects else 'without effect on the figures'}")
        yield from (f"{INDENT}{line}" for line in table(found, "<<"))
        yield ""
