"""Fits what published training runs say of earlier software, on every second row, and reports the other half.

    python -m tools.training_software efficiency    kernels of PyTorch 2.0 relative to today's: writes software.yaml
    python -m tools.training_software unaligned     heads whose width is no multiple of 8, in early cuBLAS
    python -m tools.training_software experts       small kernels around Megatron-LM's experts, rows added by atomics
    python -m tools.training_software spread        what is left between systems, by engine and version
    python -m tools.training_software report        errors, order of pairs, fits and coverage on the rows kept out

Rows are those of training.csv in the folder of published measurements (GNOMON_TRUTH) and of
measurements/published/training. A row is kept out of every fit where the checksum of its id is odd.
"""

from __future__ import annotations

import csv
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import yaml

from gnomon.accuracy import runs, truth
from gnomon.accuracy.deployment_rows import Unfit
from gnomon.accuracy.published import training_steps
from gnomon.accuracy.run_rows import NEEDED, RunCase, kept_out, run_case_of
from gnomon.engines.deepspeed.releases import UNALIGNED
from gnomon.engines.megatron import engine, style
from gnomon.engines.torch.efficiencies import SOFTWARE, software
from gnomon.errors import GnomonError
from gnomon.load import chip

PUBLISHED = Path(__file__).resolve().parents[1] / "measurements" / "published" / "training"
STEPS = (0.15, 0.05, 0.02)
NORMAL_95 = 1.645
LEAST = 10
"""Rows on one architecture that a spread of whole runs is found from."""
APART = 0.02
"""Pairs of runs whose measured times differ by more count for their order."""
Row = dict[str, Any]


def cases() -> Iterator[RunCase]:
    """Every row that can be compared."""
    rows = list(truth.rows(Path(os.environ["GNOMON_TRUTH"]) / truth.TRAINING, NEEDED))
    usual = {"confidence": "read", "good_for": "timing+memory"}
    for path in sorted(PUBLISHED.glob("*.csv")):
        with path.open(encoding="utf-8") as file:
            rows += [dict.fromkeys(NEEDED, "") | usual | row for row in csv.DictReader(file)]
    for row in rows:
        try:
            yield run_case_of(row)
        except Unfit:
            continue


def compared(chosen: Sequence[RunCase]) -> list[Row]:
    found: list[Row] = []
    with TemporaryDirectory() as home:
        for case in chosen:
            try:
                found += runs.compare(case, Path(home))
            except GnomonError:
                continue
    return found


def fit_efficiency() -> None:
    """By coordinates: the mean absolute logarithm of predicted over measured."""
    versions = {version: {chip: dict(kinds) for chip, kinds in found.items()} for version, found in software().items()}
    every = list(cases())
    for version, architectures in versions.items():
        for architecture, kinds in architectures.items():
            some = [c for c in every if c.options["engine"] == f"torch@{version}" and not kept_out(c.row["id"])]
            some = [c for c in some if c.options["on"].startswith({"Ampere": "A100", "Hopper": "H100"}[architecture])]
            _descend(kinds, lambda some=some: _loss(compared(some)))  # type: ignore[misc]
            print(version, architecture, {name: round(value, 3) for name, value in kinds.items()}, f"{len(some)} rows")
    rounded = {
        v: {a: {k: round(x, 3) for k, x in kinds.items()} for a, kinds in f.items()} for v, f in versions.items()
    }
    head = "# Relative to today's kernels, fitted on every second row: python -m tools.training_software efficiency\n"
    SOFTWARE.write_text(head + yaml.safe_dump({"schema": "gnomon.software/1", "versions": rounded}), encoding="utf-8")


def _loss(rows: Sequence[Row]) -> float:
    return float(np.mean([abs(np.log1p(row["error"])) for row in rows if row["what"] == "step time"]))


def _descend(kinds: dict[str, float], loss: Callable[[], float]) -> None:
    live: Any = next(f for found in software().values() for f in found.values() if set(f) == set(kinds))
    best = loss()
    for step in STEPS:
        moved = True
        while moved:
            moved = False
            for name in kinds:
                for factor in (1 + step, 1 / (1 + step)):
                    before = live[name]
                    live[name] = before * factor
                    now = loss()
                    if now < best - 1e-6:
                        best, moved, kinds[name] = now, True, live[name]
                    else:
                        live[name] = before


def fit_unaligned() -> None:
    """Batched GEMMs of early cuBLAS over heads whose width is no multiple of 8, against neighbours whose is."""
    early = [c for c in cases() if c.options["engine"] in ("deepspeed@0.5", "deepspeed@0.9")]
    some = [c for c in early if not kept_out(c.row["id"])]
    odd = [int(c.row["hidden"]) // int(c.row["heads"]) % 8 > 0 for c in some]
    live: Any = UNALIGNED["Ampere"]
    for factor in np.geomspace(0.15, 1.0, 16):
        live["gemm_unaligned"] = float(factor)
        rows = compared([c for c, is_odd in zip(some, odd, strict=True) if is_odd])
        print(f"{factor:.3f}", [f"{row['id']} {row['error']:+.1%}" for row in rows if row["what"] == "step time"])
    rows = compared(
        [c for c, is_odd in zip(some, odd, strict=True) if not is_odd and c.row["id"].startswith("bigscience")]
    )
    print("aligned:", np.mean([row["error"] for row in rows if row["what"] == "step time"]))


def fit_experts() -> None:
    """Of Megatron-LM: kernels of routers and dispatchers that are not priced by their bytes, and rows of tokens that
    are added up by atomics. Networks on a chip count alike, however many runs are published of one."""
    live: Any = engine
    found: Any = style
    bridge = [c for c in cases() if c.row["source"].startswith("Megatron-Bridge") and c.row["moe"]]
    some = [case for case in bridge if not kept_out(case.row["id"])]
    alike = Counter((case.row["model"], case.row["gpu"]) for case in some)
    usual = style.ROUTING_KERNELS
    for many, rate in product((0.75, 1.0, 1.35, 1.75), (2.2e9, 2.7e9, 3.2e9, 4e9, 5e9)):
        live.ATOMIC_BYTES_S, found.ROUTING_KERNELS = rate, tuple(round(many * kernels) for kernels in usual)
        rows = [row for row in compared(some) if row["what"] == "step time"]
        keys = [(case.row["model"], case.row["gpu"]) for row in rows for case in some if case.row["id"] == row["id"]]
        weights = [1 / alike[key] for key in keys]
        off = np.average([abs(np.log1p(row["error"])) for row in rows], weights=weights)
        print(found.ROUTING_KERNELS, rate, f"{off:.4f}")


def by_engine(rows: Sequence[Row]) -> Mapping[str, list[Row]]:
    groups = defaultdict[str, list[Row]](list)
    for row in rows:
        if row["what"] == "step time":
            groups[row["engine"]].append(row)
    return groups


def fit_spread() -> None:
    """Beside the operators' own, the spread that takes 90% of the fitted rows inside; and by architecture the shortest
    interval around whole runs that contains 90% of them, towards shorter and towards longer steps."""
    rows = [row for row in compared(list(cases())) if row["what"] == "step time"] + published()
    for name, some in sorted(by_engine([row for row in rows if not kept_out(row["id"])]).items()):
        errors = np.abs([np.log1p(row["error"]) for row in some])
        half = np.array([np.log(row["high"] / row["low"]) / 2 for row in some])
        needed = np.sqrt(np.maximum(errors**2 - half**2, 0.0)) / NORMAL_95
        chips = defaultdict[str, list[float]](list)
        for row in some:
            chips[chip(row["chip"]).architecture.partition(" ")[0]].append(float(-np.log1p(row["error"])))
        whole = {arch: shortest(found) for arch, found in sorted(chips.items()) if len(found) >= LEAST}
        print(f"{name:24} {len(some):4} rows: {np.quantile(needed, 0.9):.3f} beside operators, of whole runs {whole}")


def shortest(logs: Sequence[float]) -> tuple[float, float]:
    """Standard deviations towards less and towards more of the shortest interval around 0 with 90% of the rows."""
    found, inside = sorted(logs), -int(-0.9 * len(logs) // 1)
    ends = [(min(low, 0.0), max(high, 0.0)) for low, high in zip(found, found[inside - 1 :], strict=False)]
    low, high = min(ends, key=lambda pair: pair[1] - pair[0])
    return round(abs(low) / NORMAL_95, 3), round(high / NORMAL_95, 3)


def published() -> list[Row]:
    """Step times of the papers whose tables ship with the catalog, named by table and place."""
    tables = training_steps(PUBLISHED.parents[1])["published"]
    return [
        row | {"engine": row["job"]["engine"], "chip": row["job"]["chip"], "id": f"{table['name']} {place}"}
        for table in tables
        for place, row in enumerate(table["rows"])
        if row["what"] == "step time"
    ]


def report() -> None:
    rows = compared([case for case in cases() if kept_out(case.row["id"])])
    for label, key in (("engine", "engine"), ("source", "source")):
        groups = defaultdict[tuple[str, str], list[Row]](list)
        for row in rows:
            groups[row["what"], row[key]].append(row)
        for (what, name), some in sorted(groups.items()):
            _print(f"{label} {name}", what, some)
    _print("all", "step time", [row for row in rows if row["what"] == "step time"])
    times = [row for row in rows if row["what"] == "step time"]
    print(f"called fitting: {sum(row['fits'] for row in times)} of {len(times)}")
    pairs = list(_pairs(times))
    print(f"pairs of one source, network and number of chips ordered as measured: {sum(pairs)} of {len(pairs)}")


def _pairs(rows: Sequence[Row]) -> Iterator[bool]:
    same = ("source", "model", "chip", "chips", "seq", "global_batch")
    groups = defaultdict[tuple[Any, ...], list[Row]](list)
    for row in rows:
        groups[tuple(row[name] for name in same)].append(row)
    for some in groups.values():
        for one, other in combinations(some, 2):
            if abs(one["measured"] / other["measured"] - 1) > APART:
                yield (one["measured"] < other["measured"]) == (one["predicted"] < other["predicted"])


def _print(name: str, what: str, rows: Sequence[Row]) -> None:
    errors = np.array([row["error"] for row in rows])
    inside = [row["inside"] for row in rows if row["inside"] is not None]
    cover = f"inside {sum(inside)} of {len(inside)}" if inside else ""
    print(f"{name:62} {what:13} {len(rows):4} rows: {np.abs(errors).mean():6.1%}, bias {errors.mean():+6.1%} {cover}")


def main() -> None:
    commands = {
        "efficiency": fit_efficiency, "unaligned": fit_unaligned, "experts": fit_experts, "spread": fit_spread,
        "report": report,
    }  # fmt: skip
    commands[sys.argv[1]]()


if __name__ == "__main__":
    main()
