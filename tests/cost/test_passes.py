"""Sorts, instructions and rows of the host's memory: what they move by hand, what is at least and at most."""

from __future__ import annotations

from typing import Any

import pytest

import gnomon
from gnomon.cost.host_link import LINK_SHARE, SUSTAINED
from gnomon.errors import InputError
from gnomon.papers.machines import cluster, host

CHIP, GB = "A100-SXM-80GB", 1e9
MACHINE = {"cores": 24, "memory_gib": 256, "memory_gb_s": 100.0, "adam_gparam_s": 1.0, "link_gb_s": 25.0}
POOL = cluster("RTX-3090", 2, 2, host(**MACHINE))


def micros(on: Any = CHIP, **row: Any) -> float:
    return float(gnomon.ops([{"dtype": "fp16"} | row], on=on)[0]["time_us"])


def test_a_sort_is_its_streams() -> None:
    """2^26 keys of four bytes: one pass of counts, four that move each key and 28 bytes beside each run of 32."""
    keys = 2.0**26
    counted = micros(op="elementwise", bytes_read=4 * keys, bytes_written=0)
    moved = micros(op="elementwise", bytes_read=4 * keys, bytes_written=keys * (4 + 28 / 32))
    assert micros(op="radix_sort", keys=keys, key_bytes=4) == pytest.approx(counted + 4 * moved, rel=1e-4)
    twice = micros(op="radix_sort", keys=keys, key_bytes=4, reads=2)
    assert twice == pytest.approx(4 * (counted + moved), rel=1e-4)


@pytest.mark.parametrize(
    "more", [{"value_bytes": 4}, {"key_bytes": 8}, {"digit_bits": 4}, {"reads": 2}, {"keys": 2**25}]
)
def test_more_to_move_takes_longer(more: dict[str, float]) -> None:
    plain = {"op": "radix_sort", "keys": 2**24, "key_bytes": 4}
    assert micros(**plain | more) > 1.1 * micros(**plain)


def test_instructions_run_at_the_rate_or_as_they_come_back() -> None:
    one = {"op": "mma", "m": 16, "n": 8, "k": 16, "cycles": 24.7, "count": 10**6}
    alone = micros(**one, warps=1, ilp=1)
    assert alone == pytest.approx(24.7 * 1e6 / 1410e6 * 1e6, rel=1e-3)
    assert micros(**one, warps=4, ilp=1) == pytest.approx(alone, rel=1e-3)  # four times as many, all in flight
    full = micros(**one, warps=8, ilp=4)
    assert full == pytest.approx(8e6 * 16 * 8 * 16 / (312e12 / 2 / 108) * 1e6, rel=1e-3)
    assert micros(**one, warps=16, ilp=4) == pytest.approx(2 * full, rel=1e-3)


def test_rows_are_read_at_the_link_or_collected_and_copied() -> None:
    rows = {"rows": 1_000_000, "row_bytes": 4096}
    moved = 4096e6
    copied = moved / (LINK_SHARE * 25 * GB)
    assert micros(POOL, op="host_gather", **rows) / 1e6 == pytest.approx(
        3 * moved / (SUSTAINED * 100 * GB) + copied, rel=1e-4
    )
    in_place = micros(POOL, op="host_rows", **rows) / 1e6
    assert copied < in_place < 1.3 * copied
    assert micros(POOL, op="host_gather", **rows, readers=2) > micros(POOL, op="host_gather", **rows)
    crowd = micros(POOL, op="host_rows", **rows, readers=8) / 1e6
    assert crowd >= 8 * moved / (SUSTAINED * 100 * GB)


def test_short_rows_waste_requests_and_shifted_threads_save_some() -> None:
    def per_byte(size: int, **more: int) -> float:
        return micros(POOL, op="host_rows", rows=10_000_000, row_bytes=size, **more) / size

    assert per_byte(16) > per_byte(32) > per_byte(128) == pytest.approx(per_byte(1024), rel=1e-3)
    assert per_byte(516, unaligned=1) > 1.05 * per_byte(516) > per_byte(512)
    assert per_byte(512, unaligned=1) == per_byte(512)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"op": "radix_sort", "keys": 10, "key_bytes": 4, "digit_bits": 40}, "column digit_bits"),
        ({"op": "radix_sort", "keys": 10, "key_bytes": 4, "reads": 3}, "column reads"),
        ({"op": "radix_sort", "keys": 0.5, "key_bytes": 4}, "column keys"),
        ({"op": "host_rows", "rows": 10}, "column row_bytes"),
        ({"op": "mma", "m": 16, "n": 8, "k": 16, "warps": 8, "ilp": 1, "cycles": 0.5}, "column cycles"),
    ],
)
def test_sizes_that_cannot_be_are_refused(row: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as problem:
        gnomon.ops([{"dtype": "fp16"} | row], on=CHIP)
    assert words in str(problem.value)
