"""The plans that no other plan beats in every figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def pareto(items: Iterable[T], figures: Callable[[T], tuple[float, ...]]) -> list[T]:
    """Items for which no other is at least as good in all figures (lower is better) and better in one.

    Of items with equal figures the first stays. The answer is sorted by its figures.
    """
    kept: list[tuple[tuple[float, ...], T]] = []
    for point, item in sorted(((figures(item), item) for item in items), key=lambda pair: pair[0]):
        # Sorted, so nothing later can beat an earlier one.
        if not any(all(a <= b for a, b in zip(other, point, strict=True)) for other, _ in kept):
            kept.append((point, item))
    return [item for _, item in kept]
