"""Published training runs, predicted through the public API and compared."""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gnomon.accuracy import truth
from gnomon.accuracy.deployment_rows import Unfit
from gnomon.accuracy.run_figures import LAYER, memory, times
from gnomon.accuracy.run_rows import NEEDED, NOT_REPEATABLE, RunCase, run_case_of
from gnomon.accuracy.scores import LeftOut, Row, compare_all, compared, summaries, tabulated
from gnomon.api.simulate_training import simulate_training
from gnomon.load import parse_pool
from gnomon.spec import Pool

EACH_QUICK = 1
"""Rows of each network on each system in one format that are compared under `quick`."""
BY = ("group", "source", "what")
READ, ASSUMED, RECALLED, UNSTEADY, FITTED = GROUPS = (
    "plan read", "plan partly assumed", "recalled", "not repeatable", "fitted",
)  # fmt: skip
ALL, HELD_OUT = "all", "nothing fitted"


def runs(
    folder: Path, *, quick: bool = False, jobs: int = 1, progress: Callable[[int, int], None] | None = None
) -> Row:
    """Rows compared, their summaries, and what was left out and why. `jobs` processes share the work."""
    left, cases = LeftOut(), []
    published = truth.rows(folder / truth.TRAINING, NEEDED)
    for row in published:
        try:
            cases.append(run_case_of(row))
        except Unfit as why:
            left.add(_source(row["source"]), str(why))
    chosen = sampled(cases, EACH_QUICK) if quick else cases
    with TemporaryDirectory() as home:
        compare_here = partial(compare, home=Path(home))
        rows = compare_all(chosen, compare_here, lambda case: _source(case.row["source"]), left, progress, jobs)
    found = {"published": len(published), "usable": len(cases), "sampled": len(chosen), "whole": whole_of(rows)}
    return found | tabulated(rows, GROUPS, BY) | {"left_out": left.listed()}


def whole_of(rows: Sequence[Row]) -> list[Row]:
    """Of all rows that were predicted, and of those that nothing was fitted to: how many, and errors by quantity and of
    the first figure of each row."""
    found = []
    for of, some in ((ALL, rows), (HELD_OUT, [row for row in rows if row["group"] != FITTED])):
        if some:
            first = {row["id"]: row | {"what": "each run's first figure"} for row in reversed(some)}
            found += [{"of": of} | one for one in [*summaries(first.values()), *summaries(some)]]
    return found


def sampled(cases: Iterable[RunCase], each: int) -> list[RunCase]:
    groups = defaultdict[tuple[str, ...], list[RunCase]](list)
    for case in cases:
        groups[tuple(case.row[name] for name in ("source", "model", "gpu", "precision"))].append(case)
    found = []
    for some in groups.values():
        found += sorted(some, key=lambda case: zlib.crc32(case.row["id"].encode()))[:each]
    return found


def compare(case: RunCase, home: Path) -> list[Row]:
    """Step time and, where it was read, peak memory with the prediction."""
    options = {**case.options, "on": _pool(case)}
    if LAYER in case.figures.seconds:
        return [_one_layer(case, home, options)]
    answer = simulate_training(_network(case, home), **options)
    about, seconds = _about(case, answer.fits), times(case.figures, answer)
    found = [about | compared(what, "s", measured, said, band) for what, measured, said, band in seconds]
    bytes_read = memory(case.figures, answer, case.row["framework"])
    return found + [about | compared(what, "bytes", measured, said, None) for what, measured, said in bytes_read]


def _one_layer(case: RunCase, home: Path, options: Mapping[str, Any]) -> Row:
    """The passes of two layers without those of one."""
    answers = [simulate_training(_network(case, home, layers), **options) for layers in (1, 2)]
    one, two = (answer.step_parts["pipeline_s"] for answer in answers)
    about = _about(case, answers[0].fits)
    return about | compared(LAYER, "s", case.figures.seconds[LAYER], two - one, None)


def _pool(case: RunCase) -> Pool:
    """The row's chips in nodes with the adapters that its source gives."""
    pool = parse_pool(case.options["on"])
    if pool.node is None or case.adapters is None:
        return pool
    count, rate, sharing = case.adapters
    adapter = replace(pool.node.adapter, bandwidth_bytes_s=rate)
    every = round(count * pool.node.chips / (sharing or pool.node.chips))
    return replace(pool, node=replace(pool.node, adapters=every, adapter=adapter))


def _network(case: RunCase, home: Path, layers: int = 0) -> str | Path:
    """Its name, or a file of its shapes, with so many layers where they are given."""
    if isinstance(case.network, str):
        return case.network
    network = dict(case.network)
    if layers:
        network["blocks"] = [{**network["blocks"][0], "count": layers}]
    path = home / f"{case.row['id']}-{layers}.{'json' if 'model_type' in network else 'yaml'}"
    path.write_text(json.dumps(network), encoding="utf-8")
    return path


def _group(case: RunCase) -> str:
    if case.fitted:
        return FITTED
    if case.row["confidence"] != "read":
        return RECALLED
    if case.row["source"].startswith(NOT_REPEATABLE):
        return UNSTEADY
    return ASSUMED if case.assumed else READ


def _about(case: RunCase, fits: bool) -> dict[str, Any]:
    row, options = case.row, case.options
    return {
        "id": row["id"],
        "group": _group(case),
        "fitted": case.fitted,
        "assumed": ", ".join(case.assumed),
        "source": _source(row["source"]),
        "model": row["model"],
        "chip": options["on"].partition(":")[0],
        "chips": int(options["on"].partition(":")[2]),
        "framework": row["framework"],
        "engine": options["engine"],
        "dtype": options["dtype"],
        **{
            name: options[name] for name in ("tp", "pp", "vp", "cp", "ep", "zero", "seq", "micro_batch", "global_batch")
        },
        "recompute": options["recompute"],
        "fits": fits,
    }


def _source(name: str) -> str:
    """The source, without the part that tells its tables apart."""
    return name.partition(":")[0].partition(" (")[0]
