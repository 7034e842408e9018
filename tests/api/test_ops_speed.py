"""A million operators a second: the mixed table of `bench/ops_speed.py`, a tenth of it."""

from __future__ import annotations

import runpy
from pathlib import Path

BENCH = runpy.run_path(str(Path(__file__).parents[2] / "bench" / "ops_speed.py"))


def test_a_mixed_table_is_priced_at_a_million_a_second() -> None:
    """Of CPU time, so that a busy machine does not count; three times as quick on an ordinary core."""
    assert BENCH["a_second"](BENCH["mixed"], 100_000) > BENCH["TARGET"]


def test_the_bench_prices_every_kind_in_its_mixed_table() -> None:
    table = BENCH["mixed"](1000, 7)
    assert set(table["op"]) == set(BENCH["KINDS"])
    assert not (BENCH["mixed"](1000, 8)["m"] == table["m"]).all(), "each run has shapes of its own"
