"""Published training runs, predicted through the public API and compared."""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gnomon.accuracy import truth
from gnomon.accuracy.deployment_rows import Unfit
from gnomon.accuracy.run_rows import NEEDED, RESERVED, RunCase, run_case_of
from gnomon.accuracy.scores import LeftOut, Row, compare_all, compared, tabulated
from gnomon.api.simulate_training import simulate_training
from gnomon.load import parse_pool
from gnomon.spec import Pool

EACH_QUICK = 1
"""Rows of each network on each system in one format that are compared under `quick`."""
RELEASES = "Megatron-Bridge performance summary"
BY = ("group", "source", "what")
READ, ASSUMED = "plan read", "plan partly assumed"


def runs(folder: Path, *, quick: bool = False, progress: Callable[[int, int], None] | None = None) -> Row:
    """Rows compared, their summaries, and what was left out and why."""
    left, cases = LeftOut(), []
    for row in truth.rows(folder / truth.TRAINING, NEEDED):
        try:
            cases.append(run_case_of(row))
        except Unfit as why:
            left.add(_source(row["source"]), str(why))
    kept = list(latest(cases, left))
    chosen = sampled(kept, EACH_QUICK) if quick else kept
    with TemporaryDirectory() as home:
        compare_here = partial(compare, home=Path(home))
        rows = compare_all(chosen, compare_here, lambda case: _source(case.row["source"]), left, progress)
    found = {"usable": len(cases), "sampled": len(chosen), **tabulated(rows, (READ, ASSUMED), BY)}
    return found | {"left_out": left.listed()}


def latest(cases: Sequence[RunCase], left: LeftOut) -> Iterator[RunCase]:
    """The last release of each network on each system in one format: releases repeat each other."""
    last: dict[tuple[str, ...], str] = {}
    for case in cases:
        if case.row["source"].startswith(RELEASES):
            last[_system(case)] = max(last.get(_system(case), ""), case.row["source"])
    for case in cases:
        source = case.row["source"]
        if source.startswith(RELEASES) and source != last[_system(case)]:
            left.add(_source(source), "a later release has the same run")
        else:
            yield case


def _system(case: RunCase) -> tuple[str, ...]:
    return case.row["model"], case.row["gpu"], case.options["dtype"]


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
    answer = simulate_training(_network(case, home), **{**case.options, "on": _pool(case)})
    step = answer.step_time_s
    about = _about(case, answer.fits)
    reserved = answer.reserved_memory_bytes
    peak = reserved if case.row["framework"] in RESERVED else answer.peak_memory_bytes.value
    said = {"peak memory": peak, "device memory": reserved + answer.runtime_memory_bytes}
    measured = case.measured
    rows = [about | compared(what, "bytes", measured[what], said[what], None) for what in said if what in measured]
    if "step time" in measured:
        rows.insert(0, about | compared("step time", "s", measured["step time"], step.value, (step.low, step.high)))
    return rows


def _pool(case: RunCase) -> Pool:
    """The row's chips in nodes with the adapters that its source gives."""
    pool = parse_pool(case.options["on"])
    if pool.node is None or case.adapters is None:
        return pool
    count, rate, sharing = case.adapters
    adapter = replace(pool.node.adapter, bandwidth_bytes_s=rate)
    every = round(count * pool.node.chips / (sharing or pool.node.chips))
    return replace(pool, node=replace(pool.node, adapters=every, adapter=adapter))


def _network(case: RunCase, home: Path) -> str | Path:
    if isinstance(case.network, str):
        return case.network
    path = home / f"{case.row['id']}.yaml"
    path.write_text(json.dumps(case.network), encoding="utf-8")
    return path


def _about(case: RunCase, fits: bool) -> dict[str, Any]:
    row, options = case.row, case.options
    return {
        "id": row["id"],
        "group": ASSUMED if case.assumed else READ,
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
