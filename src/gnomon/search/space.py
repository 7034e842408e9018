"""The plans there are: chips, tensor parallel degrees, number formats, step budgets, replicas."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from gnomon.graph.lower import obstacle
from gnomon.search.base import PlanFamily
from gnomon.spec import Cluster, Model, MoeFfn, Pool

Budgets = Mapping[str, Sequence[int]]
FREE_USD_H = 1e-9
"""Taken for a chip without a price, so that a plan with fewer chips still wins."""


def families(
    model: Model,
    fleet: Cluster,
    dtypes: Sequence[str],
    budgets_of: Callable[[Pool], Budgets],
    allowed: Callable[[Mapping[str, int]], bool] = lambda settings: True,
    runs_in: Callable[[Pool, str], str | None] = lambda pool, dtype: pool.chip.instead_of(dtype),
) -> list[PlanFamily]:
    """Every family of the fleet, in a fixed order: pools as written, formats as preferred, budgets as given.

    A chip takes part in a number format only where `runs_in` names the one it runs it in: itself, or fp16 in its place.
    """
    found: list[PlanFamily] = []
    for pool in fleet.pools:
        for settings in filter(allowed, _combinations(budgets_of(pool))):
            for rank, wanted in enumerate(dtypes):
                dtype = runs_in(pool, wanted)
                if dtype is None or dtype in dtypes[:rank]:
                    continue
                for tp in degrees(model, pool):
                    for ep in spreads(model, tp):
                        found.append(_family(pool, tp, ep, dtype, rank, settings, len(found)))
    return found


def degrees(model: Model, pool: Pool) -> list[int]:
    """Powers of two within a node that cut every layer evenly; key-value heads are cut or copied."""
    largest = min(pool.per_node, pool.count)
    powers = [2**power for power in range(largest.bit_length()) if 2**power <= largest]
    return [tp for tp in powers if not obstacle(model, tp)]


def spreads(model: Model, tp: int) -> tuple[int, ...]:
    """Expert-parallel degrees: 1, where experts are sharded like other layers, or all ranks."""
    experts = [block.ffn.experts for block in model.blocks if isinstance(block.ffn, MoeFfn)]
    return (1, tp) if 1 < tp <= min(experts, default=0) else (1,)


def _combinations(budgets: Budgets) -> Iterator[dict[str, int]]:
    for values in itertools.product(*budgets.values()):
        yield dict(zip(budgets, values, strict=True))


def _family(pool: Pool, tp: int, ep: int, dtype: str, rank: int, settings: Mapping[str, int], order: int) -> PlanFamily:
    return PlanFamily(
        chip=pool.chip.name,
        tp=tp,
        ep=ep,
        dtype=dtype,
        dtype_rank=rank,
        settings=tuple(settings.items()),
        usd_h=tp * max(FREE_USD_H, pool.chip.price_usd_h),
        most=pool.count // tp,
        order=order,
    )
