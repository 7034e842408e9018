"""The plans there are: chips, parallel degrees, number formats, step budgets, replicas."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

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
                for degree in degrees(model, pool):
                    found.append(_family(pool, degree, dtype, rank, settings, len(found)))
    return found


class Degrees(NamedTuple):
    """How the ranks of a replica share the model."""

    tp: int
    ep: int = 1
    dp: int = 1
    pp: int = 1


def degrees(model: Model, pool: Pool) -> list[Degrees]:
    """Tensor-parallel degrees, each with experts sharded or spread over all ranks; then data-parallel ranks of them
    that share the experts; then, over several nodes, pipelines of the largest ones."""
    within = tensor_degrees(model, pool)
    found = [Degrees(tp, ep) for tp in within for ep in spreads(model, tp)]
    found += [Degrees(tp, tp * dp, dp) for tp in within for dp in _doubled(pool.count // tp) if _spread(model, tp * dp)]
    if within:
        found += [Degrees(within[-1], pp=pp) for pp in _doubled(min(pool.count // within[-1], model.layers))]
    return found


def tensor_degrees(model: Model, pool: Pool) -> list[int]:
    """Powers of two within a node that cut every layer evenly; key-value heads are cut or copied."""
    return [tp for tp in (1, *_doubled(min(pool.per_node, pool.count))) if not obstacle(model, tp)]


def _doubled(most: int) -> list[int]:
    """Powers of two from 2 up to so many."""
    return [2**power for power in range(1, most.bit_length()) if 2**power <= most]


def _spread(model: Model, ranks: int) -> bool:
    """Whether every rank gets an expert of every layer that has some."""
    experts = [block.ffn.experts for block in model.blocks if isinstance(block.ffn, MoeFfn)]
    return 1 < ranks <= min(experts, default=0)


def spreads(model: Model, tp: int) -> tuple[int, ...]:
    """Expert-parallel degrees: 1, where experts are sharded like other layers, or all ranks."""
    return (1, tp) if _spread(model, tp) else (1,)


def _combinations(budgets: Budgets) -> Iterator[dict[str, int]]:
    for values in itertools.product(*budgets.values()):
        yield dict(zip(budgets, values, strict=True))


def _family(pool: Pool, degree: Degrees, dtype: str, rank: int, settings: Mapping[str, int], order: int) -> PlanFamily:
    chips = degree.tp * degree.dp * degree.pp
    return PlanFamily(
        chip=pool.chip.name,
        **degree._asdict(),
        dtype=dtype,
        dtype_rank=rank,
        settings=tuple(settings.items()),
        usd_h=chips * max(FREE_USD_H, pool.chip.price_usd_h),
        most=pool.count // chips,
        order=order,
    )
