"""A power limit below the chip's own: who may ask for which, and what it changes."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from gnomon.cost.clock import LIMIT
from gnomon.cost.governor import HELD
from gnomon.cost.profile import Profile
from gnomon.errors import InputError
from gnomon.spec import Pool

LOWEST_LIMIT = 200 / 700
"""Of a chip's own limit, the lowest that its driver takes: an H200's range is 200 to 700 W (NVML, 2026-11-18). Below it
the lowest clock draws more than the limit."""


def under_limit(pool: Pool, profile: Profile, where: str) -> tuple[Pool, Profile]:
    """Chips and profile under the pool's power limit, where it has one. A profile that does not know how much of its
    limit the board holds takes the share of those that were measured."""
    watts, chip = pool.power_limit_w, pool.chip
    if not watts:
        return pool, profile
    held = profile.power.get(LIMIT, HELD)
    least = max(profile.power["active_w"] / held, LOWEST_LIMIT * chip.tdp_w)
    if watts > chip.tdp_w:
        hint = f"Leave it out, or give at most {chip.tdp_w:g}."
        raise InputError(f"{watts:g} W is above the {chip.tdp_w:g} W of {chip.name}", where=where, hint=hint)
    if watts <= least:
        message = f"{watts:g} W is not above {ceil(least):g} W, the lowest limit that {chip.name} can hold"
        raise InputError(message, where=where, hint=f"Give more than {ceil(least):g}, up to {chip.tdp_w:g}.")
    limited = replace(pool, chip=replace(chip, tdp_w=watts))
    return limited, replace(profile, power={**profile.power, LIMIT: held})
