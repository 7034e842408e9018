"""Effective training time of published runs beside what is predicted with the failure rate of one of them.

    python -m tools.goodput [--rate-of llama-3]

A figure is `reported`, a lower bound (`above`), or `derived` from a run's log: elapsed time that also has divergence,
deadlocks and maintenance in it, which no prediction has. `src/gnomon/catalog/data/failures.yaml` has the figures with
their sources, and what of them was read, derived or assumed.
"""

from __future__ import annotations

import argparse

from gnomon.accuracy.goodput import POINTS, GoodputRow, goodput_rows
from gnomon.catalog.failures import DEFAULT, failure_rate
from gnomon.report.text import table


def row(one: GoodputRow) -> tuple[str, ...]:
    run = one.run
    published = f"{'> ' if run.kind == 'above' else ''}{run.effective or 0:.1%}"
    own = f"{one.own:.1%}" if one.own is not None else ""
    return run.title, f"{run.gpus:,}", published, run.kind, f"{one.predicted:.1%}", f"{100 * one.error:+.1f}", own


def main() -> None:
    parser = argparse.ArgumentParser(description="Effective training time of published runs, predicted.")
    parser.add_argument("--rate-of", default=DEFAULT, help="the run whose failure rate is taken")
    rate = failure_rate(parser.parse_args().rate_of)
    rows = list(goodput_rows(rate.name))
    print(f"{rate.per_gpu_hour:.3g} failures per GPU and hour: {rate.source}\n")
    head = ("run", "GPUs", "published", "", "predicted", "points", "with its own rate")
    print("\n".join(table([head, *map(row, rows)], "<>><>>>")))
    told = [one for one in rows if one.run.kind != "derived"]
    near = sum(one.within for one in told)
    print(f"\n{near} of {len(told)} that were reported are within {100 * POINTS:g} points")
    for one in rows:
        print(f"\n{one.run.title}: {one.run.note}\n  {one.run.source}")
        print(f"  {one.run.how}" if one.run.how else "", end="\n" if one.run.how else "")


if __name__ == "__main__":
    main()
