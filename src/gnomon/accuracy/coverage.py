"""Whether 90% intervals contain 90% of the measurements, by engine and version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import exp, lgamma, log, log1p
from typing import Any

from gnomon.accuracy.deployment_rows import OLD
from gnomon.accuracy.disaggregated_rows import NO_CLIENTS, UNRECORDED
from gnomon.accuracy.scores import Row, summary
from gnomon.accuracy.sglang_rows import FORM

SHARE = 0.9
"""Of the measurements that an interval should contain."""
LEAST_ROWS = 20
"""A group of fewer rows is counted in the pooled figure only: its share says little."""
LEVEL = 0.05
"""Of the binomial test that rejects a group."""
POOLED = "all"
NOT_COUNTED = (OLD, UNRECORDED, NO_CLIENTS, FORM)
"""Deployments of vLLM's first years, which Gnomon has no version table of, and those whose conditions are not known."""


def binomial_p(inside: int, rows: int, share: float = SHARE) -> float:
    """Chance of a count at least as unlikely as `inside` of `rows`, where each is inside with probability `share`."""
    whole = lgamma(rows + 1)
    logs = (
        whole - lgamma(k + 1) - lgamma(rows - k + 1) + k * log(share) + (rows - k) * log1p(-share)
        for k in range(rows + 1)
    )
    chances = [exp(each) for each in logs]
    seen = chances[inside] * (1 + 1e-9)
    return min(sum(chance for chance in chances if chance <= seen), 1.0)


def coverage(found: Mapping[str, Any]) -> list[Row]:
    """Of all rows with an interval together, then of each engine, version and quantity with enough of them: how many
    are inside, the binomial test's p-value, and the interval's half-width over the error, both at the median."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for engine, row in _banded(found):
        groups.setdefault((engine, str(row["what"]).partition(",")[0]), []).append(row)
    pooled = [row for rows in groups.values() for row in rows]
    listed = [((POOLED, POOLED), pooled)] if pooled else []
    listed += [(key, rows) for key, rows in sorted(groups.items()) if len(rows) >= LEAST_ROWS]
    return [{"engine": engine, "what": what} | _scored(rows) for (engine, what), rows in listed]


def _scored(rows: Sequence[Mapping[str, Any]]) -> Row:
    found = summary(rows)
    wide = found["half_width"] / max(found["median_error"], 1e-9)
    return found | {"p_value": binomial_p(found["inside"], found["banded"]), "half_width_over_error": wide}


def _banded(found: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Rows with an interval, each with the engine and version that were measured; an interval is of one program and
    its conditions."""
    for row in found["steps"]["rows"]:
        if row["inside"] is not None:
            yield f"{row['engine']}, ours", row
    for row in found["deployments"]["rows"]:
        if row["inside"] is not None and row["group"] not in NOT_COUNTED:
            yield f"{str(row.get('predicted_as', 'vllm')).partition(' ')[0]} {row['engine_version']}", row
    for row in found["runs"]["rows"]:
        if row["inside"] is not None:
            yield row["engine"], row
    for name in ("published", "measured"):
        for table in found[name]:
            for row in table["rows"]:
                if row["inside"] is not None:
                    yield row["job"]["engine"], row
