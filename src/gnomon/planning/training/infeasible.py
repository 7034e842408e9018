"""Why no plan is left of a search for one to train with, and what would help."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnomon.cost.tiers import HOST, rooms
from gnomon.errors import DoesNotFitError, GnomonError, InputError
from gnomon.planning.training.checks import CHIPS
from gnomon.planning.training.search import Search, joins, label, search_of
from gnomon.planning.training.step import usable_bytes
from gnomon.spec.training import OPTIMIZERS
from gnomon.techniques import last_resorts, search_space
from gnomon.techniques.hosts import tier_bytes
from gnomon.techniques.plans import unchanged
from gnomon.units import format_bytes

ORDER = ("pp", "vp", "cp", "ep", "dp", "micro_batch", "schedule", "recompute", "cp_comm")
"""Of plans that techniques reject, the reason is told of the one with least of these, the first of them first."""
LARGER = (2, 4, 8, 16, 32, 64, 128, 256)
"""A model that does not fit is tried on so many times the nodes, to say how many it needs."""


def infeasible(search: Search) -> GnomonError:
    """Why no plan is left: techniques that apply to none, hosts that hold none, or the plan that lacks least on a chip
    and the chips with which one would fit."""
    usable = usable_bytes(search.pool, search.traits)
    if search.applied and not search.allowed.any():
        return _unsuited(search)
    row = int(np.argmin(np.where(search.allowed, search.peak_bytes, np.inf) if search.applied else search.peak_bytes))
    if search.peak_bytes[row] <= usable:
        return _full_tier(search)
    chip, count = search.pool.chip, search.pool.count
    message = (
        f"no plan of {search.model.name} fits {count:,} x {chip.name}: the smallest ({label(search.grid, row)}) needs "
        f"{format_bytes(float(search.peak_bytes[row]))} of {format_bytes(usable)} usable"
    )
    enough = _enough(search)
    idea = next((words for words in search_space() if _helps(search, words)), "")
    also = f" With --with {idea} it fits here." if idea else ""
    if enough:
        where = f"{chip.reference}:{enough}" if not search.pool.file else f"{enough} chips of such nodes"
        return DoesNotFitError(message, where=CHIPS, hint=f"It fits {where}.{also}")
    if also:
        return DoesNotFitError(message, where=CHIPS, hint=also.strip())
    other = next((name for name in OPTIMIZERS if name != search.optimizer and _smaller(search, name)), "")
    less = f" With --optimizer {other} it fits here." if other else _last_resort(search)
    return DoesNotFitError(message, where=CHIPS, hint=f"More chips do not help.{less}")


def _last_resort(search: Search) -> str:
    """The first technique with which something less than the network can be trained here."""
    found = ((name, trained) for name, trained in last_resorts().items() if _helps(search, name))
    return next((f" With --with {name}, {trained}, it fits here." for name, trained in found), "")


def _smaller(search: Search, optimizer: str) -> bool:
    """Whether some plan fits with another optimizer."""
    try:
        other = search_of(search.bound, search.load, optimizer, search.dtype)
        return bool(replace(other, techniques=search.techniques).fits.any())
    except InputError:
        return False


def _unsuited(search: Search) -> InputError:
    """Of plans with the degrees that techniques ask for, why the first is no use; if none has them, that."""
    grid, names = search.grid, ", ".join(search.applied.names)
    rows = np.flatnonzero(unchanged(search.applied, search.case))
    message = f"no plan of the search space has the degrees and the recipe that {names} requires"
    if rows.size:
        first = rows[np.lexsort([getattr(grid, name)[rows] for name in reversed(ORDER)])[0]]
        case = replace(search.case, plans=grid.pick(np.array([first])))
        message = f"no plan is left: {search.applied.reject_reason(case)}"
    return InputError(
        message, where="strategy.techniques", hint="Leave it out, or simulate a plan with `gnomon simulate train`."
    )


def _full_tier(search: Search) -> DoesNotFitError:
    """Hosts have no room for what techniques keep there, in the first tier that is full for all plans."""
    kept, room = tier_bytes(search.tier_peaks, search.case), rooms(search.pool.machine)
    full = {tier: rows[search.allowed] for tier, rows in search.full_tiers.items()}
    tier = next((tier for tier, rows in full.items() if rows.all()), next(tier for tier in full if full[tier].any()))
    least = format_bytes(float(kept[tier][search.allowed].min()))
    usable = format_bytes(room[tier]) if search.pool.host else "none"
    where = "memory" if tier == HOST else tier
    message = (
        f"no plan of {search.model.name} fits the hosts' {where}: the smallest keeps {least} there, of {usable} usable"
    )
    return DoesNotFitError(message, where=CHIPS, hint="Use more nodes, or offload a smaller share.")


def _helps(search: Search, words: str) -> bool:
    together = (*search.techniques, words)
    return joins(together) and bool(replace(search, techniques=together, whole=None).fits.any())


def _enough(search: Search) -> int:
    """The least chips, in whole nodes, on which some plan fits; none where no number of them is enough. Plans may
    leave chips idle, so the plans of many nodes hold those of fewer, and the smallest that fits says how many."""
    node = search.pool.node_size
    for times in LARGER:
        pool = replace(search.pool, count=max(search.pool.count // node, 1) * times * node, per_node=node)
        bound = replace(search.bound, pool=pool)
        wider = search_of(bound, search.load, search.optimizer, search.dtype, lean=True)
        lean = replace(wider, techniques=search.techniques)
        if lean.fits.any():
            return -(-int(lean.grid.ranks[lean.fits].min()) // node) * node
    return 0
