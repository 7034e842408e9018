"""How unevenly experts are chosen, and vLLM's balancer of them (EPLB): `enable_eplb` and `num_redundant_experts`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.engines.base import Deployment
from gnomon.errors import InputError
from gnomon.graph.popularity import Popularity
from gnomon.spec import MoeFfn

UNIFORM, ZIPF = "uniform", "zipf:"
MOST_SKEW = 3.0
"""Beyond, one expert takes almost everything; routers that were measured are below 1.5."""


def popularity_of(settings: Mapping[str, Any]) -> Popularity:
    """What the settings say; raises InputError for what they cannot."""
    said = str(settings["expert_popularity"])
    if said != UNIFORM and not said.startswith(ZIPF):
        raise _bad(said)
    try:
        skew = float(said.removeprefix(ZIPF)) if said != UNIFORM else 0.0
    except ValueError:
        raise _bad(said) from None
    if not 0 <= skew <= MOST_SKEW:
        raise _bad(said)
    balanced, redundant = bool(settings["enable_eplb"]), int(settings["num_redundant_experts"])
    if redundant and not balanced:
        raise InputError(
            "there are no redundant experts without enable_eplb",
            where="setting num_redundant_experts",
            hint="Set enable_eplb=true, or leave it out.",
        )
    return Popularity(skew=skew, balanced=balanced, redundant=redundant)


def _bad(said: str) -> InputError:
    hint = f"Write {UNIFORM}, or {ZIPF}0.6 with an exponent of 0 to {MOST_SKEW:g}."
    return InputError(f"{said!r} is not a popularity of experts", where="setting expert_popularity", hint=hint)


def without_effect(deployment: Deployment) -> tuple[str, ...]:
    """Settings of experts that no figure of a deployment depends on: how popular they are, where no rank has other
    experts than the others, and their placement, where all are as popular and none has a copy."""
    popularity = popularity_of(deployment.settings)
    spread = ("expert_popularity",) if deployment.strategy.ep == 1 and popularity.skew else ()
    placed = ("enable_eplb",) if popularity.balanced and not popularity.skew and not popularity.redundant else ()
    return (*spread, *placed)


def check_popularity(deployment: Deployment) -> None:
    """Raise InputError where experts are not spread, or their copies not equally."""
    popularity, ep = popularity_of(deployment.settings), deployment.strategy.ep
    asked = [name for name in ("expert_popularity", "enable_eplb") if deployment.settings[name] not in (UNIFORM, False)]
    if asked and not deployment.model.is_moe:
        raise InputError(f"{deployment.model.name} has no experts", where=f"setting {asked[0]}", hint="Leave it out.")
    if ep == 1 and popularity.balanced:
        raise InputError(
            "experts are not spread over ranks, so that they are not placed by popularity",
            where="setting enable_eplb",
            hint="Use --ep, or leave it out.",
        )
    for block in deployment.model.blocks:
        if isinstance(block.ffn, MoeFfn) and (block.ffn.experts + popularity.redundant) % ep:
            raise InputError(
                f"{block.ffn.experts} experts and {popularity.redundant} copies do not divide over {ep} ranks",
                where="setting num_redundant_experts",
                hint=f"Use a multiple of {ep} that makes it so.",
            )
