"""The results of one chip, framework, family of operators or number format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from gnomon.accuracy.deployment_rows import kept_out
from gnomon.accuracy.operators import by_family
from gnomon.accuracy.runs import whole_of
from gnomon.accuracy.scores import summaries
from gnomon.errors import InputError, UnknownNameError, unknown_name
from gnomon.load import chip as find_chip

Row = Mapping[str, Any]
Keep = Callable[[Row], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to keep; nothing that is left out narrows anything."""

    chip: str | None = None
    framework: str | None = None
    family: str | None = None
    dtype: str | None = None

    def keeps(self, row: Row) -> bool:
        return (
            self.chip in (None, _name(str(row["chip"])))
            and self.framework in (None, _framework(row))
            and (self.family is None or str(row.get("kind", "")).startswith(self.family))
            and self.dtype in (None, str(row.get("dtype", "")))
        )

    def leaves_out(self, row: Row) -> bool:
        """Whether a table that was left out would have been kept; its name is the words of what it is of."""
        chip, _, rest = str(row["source"]).partition(" ")
        words = rest.split()
        return (
            self.chip in (None, _name(chip))
            and (self.framework is None or self.framework in words[:1])
            and (self.family is None or any(word.startswith(self.family) for word in words[1:]))
            and (self.dtype is None or self.dtype in words[1:])
        )

    def __str__(self) -> str:
        parts = {"--chip": self.chip, "--framework": self.framework, "--family": self.family, "--dtype": self.dtype}
        return " ".join(f"{flag} {word}" for flag, word in parts.items() if word is not None)


def narrowed(found: Mapping[str, Any], wanted: Wanted) -> dict[str, Any]:
    """The results, less what concerns other chips, frameworks, families or formats; summaries are made again."""
    if wanted == Wanted():
        return dict(found)
    wanted = _checked(found, wanted)
    keep = wanted.keeps
    left = [row for row in found["operators"]["left_out"] if wanted.leaves_out(row)]
    if not any(map(keep, _all(found))):
        reasons = "; ".join(f"{row['source']}: {row['why']}" for row in left[:3])
        hint = f"Left out: {reasons}." if left else "Leave out one of them."
        raise InputError("nothing was compared of these together", where=str(wanted), hint=hint)
    return dict(found) | {
        "operators": _operators(found["operators"], keep) | {"left_out": left},
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


def _checked(found: Mapping[str, Any], wanted: Wanted) -> Wanted:
    """In the results' own words. Those of a table that was left out are known too."""
    rows = list(_all(found))
    left = [str(row["source"]).split() for row in found["operators"]["left_out"]]
    chip = None if wanted.chip is None else find_chip(wanted.chip).name
    framework, dtype = (None if word is None else word.casefold() for word in (wanted.framework, wanted.dtype))
    frameworks = {_framework(row) for row in rows} | {words[1] for words in left if len(words) > 1}
    kinds = {str(row["kind"]) for row in rows if "kind" in row}
    family = next((kind for kind in sorted(kinds) if wanted.family and kind.startswith(wanted.family)), None)
    for what, word, known in (
        ("chip", chip, {_name(str(row["chip"])) for row in rows} | {_name(words[0]) for words in left}),
        ("framework", framework, frameworks),
        ("family", wanted.family if family is None else family, kinds),
        ("number format", dtype, {str(row.get("dtype", "")) for row in rows} - {""}),
    ):
        if word is not None and word not in known:
            raise unknown_name(f"{what} with results", word, sorted(known))
    return replace(wanted, chip=chip, framework=framework, dtype=dtype)


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
    apart: dict[str, Any] = {"kept_out": kept_out(rows)} if "kept_out" in section else {}
    apart |= {"whole": whole_of(rows)} if "whole" in section else {}
    return dict(section) | {"rows": rows} | made | apart


def _tables(tables: Iterable[Row], keep: Keep) -> Iterable[dict[str, Any]]:
    for table in tables:
        rows = [row for row in table["rows"] if keep(row["job"])]
        if rows:
            yield dict(table) | {"rows": rows, "summaries": summaries(rows)}
