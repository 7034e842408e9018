"""Refuse loads that cannot be, before anything is read or drawn."""

from __future__ import annotations

from gnomon.errors import InputError
from gnomon.spec.loads.lengths.base import Lengths
from gnomon.spec.loads.sessions import MOST_THINK_S, MOST_TURNS
from gnomon.spec.workload import MAX_TOKENS, ServingLoad
from gnomon.units import check_rate

MAX_REQUESTS = 20_000_000
DRAWN_ONLY = {"prefix": "--prefix", "adapters": "--adapters", "priorities": "--priorities"}
"""Fields of loads without a trace, and their flags."""


def check_load(load: ServingLoad) -> None:
    """Refuse numbers that no load has, and a trace beside lengths."""
    _check_lengths(load)
    if load.rate_per_s is not None:
        check_rate(load.rate_per_s, "--rate")
    if not (0 if load.trace else 1) <= load.requests <= MAX_REQUESTS:
        raise InputError(f"'{load.requests}' is not between 1 and {MAX_REQUESTS:,}", where="--requests")
    if load.seed < 0:
        raise InputError(f"'{load.seed}' is not a whole number of zero or more", where="--seed")
    if load.arrivals is not None and load.rate_per_s is None:
        hint = "Give --rate, the mean of it, or leave it out."
        raise InputError("arrivals are drawn at a rate, and there is none", where="--arrivals", hint=hint)
    _check_sessions(load)
    _check_images(load)
    for name, flag in DRAWN_ONLY.items():
        if load.trace and getattr(load, name):
            hint = "Leave it out, or give the trace that column."
            raise InputError("a trace already says what each request is", where=flag, hint=hint)


def _check_lengths(load: ServingLoad) -> None:
    lengths = {"--input": load.input_tokens, "--output": load.output_tokens}
    for flag, value in lengths.items():
        if load.trace and value is not None:
            raise InputError("a trace already gives the lengths", where=flag, hint="Leave one of them out.")
        if not load.trace and value is None:
            hint = "Describe the load by --input and --output, or by --trace."
            raise InputError("is missing, and there is no trace", where=flag, hint=hint)
        if value is None or isinstance(value, Lengths):
            continue
        if value < 1:
            raise InputError(f"'{value}' is not a positive whole number", where=flag)
        if value > MAX_TOKENS:
            raise InputError(f"'{value}' is more than {MAX_TOKENS:,} tokens", where=flag)


def _check_images(load: ServingLoad) -> None:
    """Images stand at the beginning of a prompt that nothing is shared of."""
    if load.images is None:
        return
    for flag, given in {"--prefix": load.prefix, "--turns": load.turns > 1}.items():
        if given:
            hint = f"Leave --images or {flag} out."
            raise InputError(f"images are not simulated with {flag}", where="--images", hint=hint)


def _check_sessions(load: ServingLoad) -> None:
    if not 1 <= load.turns <= MOST_TURNS:
        raise InputError(f"'{load.turns}' is not between 1 and {MOST_TURNS:,}", where="--turns")
    if not 0 <= load.think_s <= MOST_THINK_S:
        raise InputError(f"'{load.think_s:g}' is not between 0 and {MOST_THINK_S:g} seconds", where="--think")
    if load.think_s and load.turns == 1:
        hint = "Give --turns of at least 2, or leave it out."
        raise InputError("only sessions of several turns have time to think", where="--think", hint=hint)
