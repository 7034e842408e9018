"""Speculative decoding under vLLM 0.24: who writes drafts, what that costs, and what the scheduler knows of it.

N-gram lookup is in the GPU (`ngram_gpu`) or on the host (`ngram`); a draft model, EAGLE or a network's own prediction
heads (`mtp`) write one token in each of `num_speculative_tokens` passes. How many are accepted is no property of the
engine: `draft_acceptance` says it, for every position or for each, as `vllm bench` and the server's metrics report it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from gnomon.cost.drafting import DraftCost
from gnomon.engines.base import Deployment
from gnomon.engines.vllm.lora import features
from gnomon.errors import InputError
from gnomon.spec import Model, NotModelled

NONE = "none"
LOOKUP = ("ngram", "ngram_gpu")
OWN_LAYER = ("eagle", "eagle3", "mtp")
"""One layer of the network's size and its head write a token."""
METHODS = (NONE, *LOOKUP, "draft_model", *OWN_LAYER)
DRAFTS = ("speculative_method", "num_speculative_tokens", "draft_acceptance", "draft_parameters", "draft_model")
"""Settings of drafts."""
NEEDS_MODEL = ("draft_model", "eagle", "eagle3")
"""What vLLM does not start without weights that write drafts."""
NOT_ASYNC = ("ngram", "draft_model")
"""vLLM schedules these synchronously unless told otherwise."""
ROUNDED = 0.01
"""Shares of requests add up to 1, as they are written."""
USUAL_SHARE = 0.7
"""Of drafts at each position, given that those before it were accepted, where nothing is said: an assumption."""
UNTOLD_MTP = ("qwen3_next", "ernie4_5_moe", "nemotron_h")
"""Families that vLLM has prediction heads for (`MTPModelTypes`) and whose config files do not say how many."""


def groups(text: str, drafts: int) -> tuple[tuple[float, tuple[float, ...]], ...]:
    """`0.9@0.4/0.1@0.6`: 40% of requests have the first acceptance, the others the second."""
    parts = [part.partition("@") for part in str(text).split("/")]
    try:
        weights = [float(weight) if at else 1.0 for _, at, weight in parts]
    except ValueError:
        raise _bad(text, drafts) from None
    if not all(map(math.isfinite, weights)) or abs(sum(weights) - 1) > ROUNDED or min(weights) < 0:
        raise _bad(text, drafts)
    return tuple((weight, _shares(share, drafts)) for weight, (share, _, _) in zip(weights, parts, strict=True))


def _shares(text: str, drafts: int) -> tuple[float, ...]:
    """`0.8`: each draft is accepted so often once those before it are. `0.9:0.8:0.75`: the shares of steps in which
    the first, the first two, … are."""
    try:
        given = [float(part) for part in str(text).split(":")]
    except ValueError:
        raise _bad(text, drafts) from None
    found = [given[0] ** (at + 1) for at in range(drafts)] if len(given) == 1 else given
    falling = all(first >= later for first, later in pairwise(found))
    if len(found) != drafts or not falling or not all(0 <= share <= 1 for share in found):
        raise _bad(text, drafts)
    return tuple(found)


def _bad(text: str, drafts: int) -> InputError:
    return InputError(
        f"'{text}' is no acceptance of {drafts} drafts",
        where="setting draft_acceptance",
        hint="Give one share (0.8), one a position, falling (0.9:0.8:0.75), or several for shares of requests "
        "(0.9@0.4/0.1@0.6).",
    )


def fill(settings: dict[str, Any], given: Mapping[str, Any], model: Model) -> None:
    """Settings of drafts, and whether steps are then scheduled ahead."""
    if settings["speculative_method"] == NONE:
        for name in DRAFTS[1:]:
            if settings[name]:
                raise InputError(
                    "there are no drafts without speculative_method",
                    where=f"setting {name}",
                    hint=f"Set speculative_method to one of {', '.join(METHODS[1:])}, or leave it out.",
                )
        return
    _check_said(settings, given)
    settings["num_speculative_tokens"] = settings["num_speculative_tokens"] or 1
    settings["draft_acceptance"] = settings["draft_acceptance"] or str(USUAL_SHARE)
    groups(settings["draft_acceptance"], settings["num_speculative_tokens"])
    if "async_scheduling" not in given and settings["speculative_method"] in NOT_ASYNC:
        settings["async_scheduling"] = False
    _check(settings)
    _check_heads(settings, model)


def _check_said(settings: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse what is given and says nothing: no default takes its place."""
    if "num_speculative_tokens" in given and not settings["num_speculative_tokens"]:
        hint = "Give 1 or more, or leave speculative_method out."
        raise InputError("a step with drafts has at least one", where="setting num_speculative_tokens", hint=hint)
    if "draft_acceptance" in given and not settings["draft_acceptance"].strip():
        raise _bad(settings["draft_acceptance"], settings["num_speculative_tokens"] or 1)


def _check_heads(settings: Mapping[str, Any], model: Model) -> None:
    """Refuse the network's own prediction heads where it has none, and no other weights are named for them."""
    if settings["speculative_method"] != "mtp" or model.mtp or settings["draft_model"] or model.family in UNTOLD_MTP:
        return
    raise InputError(
        f"{model.name} has no layers for multi-token prediction",
        where="setting speculative_method",
        hint=f"Use one of {', '.join(method for method in METHODS[1:] if method != 'mtp')}, or leave it out.",
    )


def assumed(given: Mapping[str, Any], model: Model) -> Iterator[NotModelled]:
    """What figures with drafts assume where nothing says it; `given` has the settings as they were given."""
    if given.get("speculative_method") in (None, NONE):
        return
    if given.get("draft_acceptance") is None:
        why = f"not given: each draft is taken to be accepted {USUAL_SHARE:.0%} of the time; the figures hang on it"
        yield NotModelled(option="draft_acceptance", why=why)
    if given["speculative_method"] == "mtp" and not model.mtp:
        why = f"the file of {model.name} does not describe its prediction heads: each is priced as one of its layers"
        yield NotModelled(option="speculative_method=mtp", why=why)


def _check(settings: Mapping[str, Any]) -> None:
    method = settings["speculative_method"]
    if method == "ngram" and settings["async_scheduling"]:
        raise InputError(
            "vLLM schedules n-gram drafts of the host synchronously",
            where="setting async_scheduling",
            hint="Leave it out, or use speculative_method=ngram_gpu.",
        )
    if method != "draft_model" and settings["draft_parameters"]:
        raise InputError(
            f"{method} has no draft model of its own",
            where="setting draft_parameters",
            hint="Set speculative_method=draft_model, or leave it out.",
        )
    if method in LOOKUP and settings["draft_model"]:
        raise InputError(
            f"{method} looks drafts up and has no draft model",
            where="setting draft_model",
            hint="Leave it out.",
        )
    if method == "draft_model" and not settings["draft_parameters"]:
        raise InputError(
            "a draft model has a size",
            where="setting draft_parameters",
            hint="Give its parameters: draft_parameters=600000000.",
        )


def draft_cost(deployment: Deployment) -> DraftCost | None:
    """What writes the drafts; nothing without them."""
    settings, model = deployment.settings, deployment.model
    method, drafts = settings["speculative_method"], settings["num_speculative_tokens"]
    if method == NONE:
        return None
    if method in LOOKUP:
        figures = features()["drafts"]["figures"]
        seconds = {f"{name}_s": figures[f"{name}_us"] * 1e-6 for name in ("base", "sequence", "ragged")}
        return DraftCost(drafts=drafts, **seconds)
    if method in OWN_LAYER:
        return DraftCost(drafts=drafts, passes=drafts, share=1 / model.layers, head=1.0)
    return DraftCost(drafts=drafts, passes=drafts, share=settings["draft_parameters"] / model.parameters, head=0.0)


def limits(deployment: Deployment) -> dict[str, Any]:
    """What the scheduler knows of drafts."""
    settings = deployment.settings
    method, drafts = settings["speculative_method"], settings["num_speculative_tokens"]
    if method == NONE:
        return {}
    return {
        "drafts": drafts,
        "draft_shares": groups(settings["draft_acceptance"], drafts),
        "draft_slots": 0 if method in LOOKUP else drafts,
        "draft_ragged": method in LOOKUP,
    }
