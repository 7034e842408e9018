"""Of all results those of one chip, one framework or one family of operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from gnomon.api.accuracy.operators import by_family
from gnomon.api.accuracy.scores import summaries
from gnomon.errors import UnknownNameError, unknown_name
from gnomon.load import chip as find_chip

Row = Mapping[str, Any]
Keep = Callable[[Row], bool]


def narrowed(
    found: Mapping[str, Any], *, chip: str | None, framework: str | None, family: str | None
) -> dict[str, Any]:
    """The results, less what concerns other chips, frameworks or families; summaries are made again."""
    if chip is framework is family is None:
        return dict(found)
    wanted = None if chip is None else find_chip(chip).name
    _check(found, wanted, framework, family)

    def keep(row: Row) -> bool:
        same_chip = wanted is None or _name(str(row["chip"])) == wanted
        same_framework = framework is None or _framework(row) == framework.casefold()
        return same_chip and same_framework and (family is None or str(row.get("kind", "")).startswith(family))

    return dict(found) | {
        "operators": _operators(found["operators"], keep),
        "unseen_chips": [row for row in found["unseen_chips"] if keep(row)],
        **{name: _section(found[name], keep) for name in ("steps", "deployments", "runs")},
        **{name: list(_tables(found[name], keep)) for name in ("published", "measured")},
    }


@cache
def _name(chip: str) -> str:
    """As the catalog has it; published rows name some that it has not."""
    try:
        return find_chip(chip).name
    except UnknownNameError:
        return chip


def _framework(row: Row) -> str:
    """Of operators their framework, of others the engine that predicts them."""
    named = row["framework"] if "kind" in row else row.get("engine") or row.get("predicted_as") or ""
    return str(named).casefold().partition("@")[0].partition(" ")[0]


def _check(found: Mapping[str, Any], chip: str | None, framework: str | None, family: str | None) -> None:
    rows = list(_all(found))
    chips = sorted({_name(str(row["chip"])) for row in rows})
    if chip is not None and chip not in chips:
        raise unknown_name("chip with results", chip, chips)
    frameworks = sorted({_framework(row) for row in rows})
    if framework is not None and framework.casefold() not in frameworks:
        raise unknown_name("framework with results", framework, frameworks)
    kinds = sorted({str(row["kind"]) for row in rows if "kind" in row})
    if family is not None and not any(kind.startswith(family) for kind in kinds):
        raise unknown_name("family with results", family, kinds)


def _all(found: Mapping[str, Any]) -> Iterable[Row]:
    yield from found["operators"]["tables"]
    yield from found["unseen_chips"]
    for name in ("steps", "deployments", "runs"):
        yield from found[name]["rows"]
    for name in ("published", "measured"):
        for table in found[name]:
            yield from (row["job"] for row in table["rows"])


def _operators(section: Row, keep: Keep) -> dict[str, Any]:
    tables = [row for row in section["tables"] if keep(row)]
    return dict(section) | {"tables": tables, "families": by_family(tables)}


def _section(section: Row, keep: Keep) -> dict[str, Any]:
    """Groups of summaries are those that the section had."""
    rows = [row for row in section["rows"] if keep(row)]
    made = {}
    for name in ("totals", "summaries"):
        first: Row = next(iter(section[name]), {})
        by = [key for key in first if key in ("group", "source", "chip", "model", "what")]
        made[name] = summaries(rows, by)
    return dict(section) | {"rows": rows} | made


def _tables(tables: Iterable[Row], keep: Keep) -> Iterable[dict[str, Any]]:
    for table in tables:
        rows = [row for row in table["rows"] if keep(row["job"])]
        if rows:
            yield dict(table) | {"rows": rows, "summaries": summaries(rows)}
