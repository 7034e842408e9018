"""PyTorch's caching allocator: its rules, and the training steps measured on an H200 that ran through it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from tools.transformers_cases import Case, predicted

from gnomon.engines.training.allocator import MIB, CachingAllocator, MemoryBlock, OutOfMemory
from gnomon.report.train import fit_words

MEASURED = Path(__file__).parents[2] / "measurements" / "h200-2026-11-18-check" / "transformers.jsonl"
ROWS = [json.loads(line) for line in MEASURED.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("size", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
        (21 * MIB, 21 * MIB + MIB, 22 * MIB),
    ],
)
def test_sizes_are_rounded_and_segments_too(size: int, allocated: int, reserved: int) -> None:
    """What is left of a segment is cut off where it is more than 1 MiB, of a small one where it is 512 bytes."""
    card = CachingAllocator()
    card.allocate(size)
    assert card.reserved_bytes == reserved
    assert card.allocated_bytes == allocated


def test_the_smallest_free_block_that_holds_it_is_taken() -> None:
    card = CachingAllocator()
    blocks = [card.allocate(size * MIB) for size in (40, 24, 32)]
    for block in blocks:
        card.release(block)
    taken = card.allocate(30 * MIB)
    assert taken is blocks[2]
    assert card.reserved_bytes == 96 * MIB


def test_freed_neighbours_join_and_whole_segments_go_in_need() -> None:
    card = CachingAllocator(100 * MIB)
    first = card.allocate(60 * MIB)
    card.release(first)
    parts = [card.allocate(20 * MIB) for _ in range(3)]
    assert card.reserved_bytes == 60 * MIB
    card.release(parts[0])
    card.release(parts[2])
    with pytest.raises(OutOfMemory):  # 40 MiB are free in the segment, in two pieces, and 40 beside it
        card.allocate(44 * MIB)
    card.release(parts[1])
    card.allocate(80 * MIB)
    assert card.reserved_bytes == 80 * MIB


def test_what_is_freed_in_any_order_is_whole_again() -> None:
    chosen = random.Random(7)
    card, live = CachingAllocator(), list[MemoryBlock | None]()
    for _ in range(3000):
        if live and chosen.random() < 0.5:
            card.release(live.pop(chosen.randrange(len(live))))
        else:
            live.append(card.allocate(chosen.choice((300, 5_000, 700_000, 3 * MIB, 50 * MIB)) * chosen.uniform(1, 3)))
        assert 0 <= card.allocated_bytes <= card.reserved_bytes
    for block in live:
        card.release(block)
    assert card.allocated_bytes == 0
    card.capacity_bytes = card.reserved_bytes
    card.allocate(card.capacity_bytes)
    assert card.reserved_bytes <= card.capacity_bytes


def case_of(row: dict[str, object]) -> Case:
    return Case(**{name: row[name] for name in ("part", "kind", "model", "batch", "seq", "recompute", "optimizer")})  # type: ignore[arg-type]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: case_of(row).name)
def test_measured_steps_fit_where_they_did(row: dict[str, object]) -> None:
    """Half of the edge's steps were predicted to fit, and nothing is fitted to them: whether they do, what they
    allocate and what the allocator reserves for it follow from its rules and the order of the tensors."""
    found = predicted(case_of(row))
    assert found.fits == (row["outcome"] == "ok")
    if found.fits:
        assert found.peak_memory_bytes.value == pytest.approx(row["allocated_bytes"], rel=0.04)
        assert found.reserved_memory_bytes == pytest.approx(row["reserved_bytes"], rel=0.1)


def test_what_fragmentation_keeps_from_fitting_is_said() -> None:
    found = predicted(Case("check", "edge", "qwen2.5-14b", 4, 5504, "full"))
    assert not found.fits
    assert found.peak_memory_bytes.value < found.usable_memory_bytes < found.reserved_memory_bytes
    assert found.cause is not None
    assert found.cause.part == "fragmentation"
    assert "allocator would reserve 155" in fit_words(found)
