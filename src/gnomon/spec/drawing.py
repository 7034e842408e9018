"""A load made into requests: the same description and seed give the same requests, to the byte."""

from __future__ import annotations

import numpy as np

from gnomon.errors import InputError
from gnomon.spec import Requests, ServingLoad
from gnomon.spec.workload import MAX_ARRIVAL_S, MAX_TOKENS, Floats, RequestTrace
from gnomon.units import check_rate, format_count, format_rate

MAX_REQUESTS = 20_000_000
ONE = "Give --rate, at which it is repeated, or leave out --requests."


def draw(load: ServingLoad, trace: RequestTrace | None = None, *, repeat: bool = True) -> Requests:
    """The requests of a load, and of the trace that it names.

    With a trace: its first `requests` requests, repeated end to end when it has fewer unless `repeat` is false (0:
    just the trace), stretched or squeezed in time to the rate when there is one. Without: equal requests at Poisson
    arrivals, or all at time zero when there is no rate. A trace of one request, repeated, is equal requests too, and
    needs a rate.
    """
    check_load(load)
    drawn = _equal(load) if trace is None else _of_trace(load, trace, repeat)
    _check_end(drawn, load)
    return drawn


def arrivals(trace: RequestTrace, rate_per_s: float | None, seed: int) -> Requests:
    """The requests of a trace; where it has no times, they are drawn at a rate."""
    times = trace.arrival_s
    if times is None:
        if rate_per_s is None:
            hint = "Add --rate, or the column. Nothing was run."
            raise InputError("has no column arrival_s, and no rate to draw arrivals at", where=trace.file, hint=hint)
        times = poisson(len(trace), rate_per_s, seed)
    return Requests(times, trace.input_tokens, trace.output_tokens, name=trace.name)


def poisson(count: int, rate_per_s: float, seed: int) -> Floats:
    """Arrival times of a Poisson process, the first at zero."""
    gaps = np.random.Generator(np.random.PCG64(seed)).standard_exponential(count) / rate_per_s
    gaps[:1] = 0.0
    return np.cumsum(gaps)


def _of_trace(load: ServingLoad, trace: RequestTrace, repeat: bool) -> Requests:
    base = arrivals(trace.first(load.requests or len(trace)), load.rate_per_s, load.seed)
    taken = _repeated(base, load) if repeat else base.first(load.requests or len(base))
    return taken if load.rate_per_s is None else _at_rate(taken, load.rate_per_s, load.seed)


def check_load(load: ServingLoad) -> None:
    """Refuse numbers that no load has, and a trace beside lengths."""
    lengths = {"--input": load.input_tokens, "--output": load.output_tokens}
    for flag, value in lengths.items():
        if load.trace and value is not None:
            raise InputError("a trace already gives the lengths", where=flag, hint="Leave one of them out.")
        if not load.trace and value is None:
            hint = "Describe the load by --input and --output, or by --trace."
            raise InputError("is missing, and there is no trace", where=flag, hint=hint)
        if value is not None and value < 1:
            raise InputError(f"'{value}' is not a positive whole number", where=flag)
        if value is not None and value > MAX_TOKENS:
            raise InputError(f"'{value}' is more than {MAX_TOKENS:,} tokens", where=flag)
    if load.rate_per_s is not None:
        check_rate(load.rate_per_s, "--rate")
    if not (0 if load.trace else 1) <= load.requests <= MAX_REQUESTS:
        raise InputError(f"'{load.requests}' is not between 1 and {MAX_REQUESTS:,}", where="--requests")
    if load.seed < 0:
        raise InputError(f"'{load.seed}' is not a whole number of zero or more", where="--seed")


def _equal(load: ServingLoad) -> Requests:
    count, rate = load.requests, load.rate_per_s
    arrivals = np.zeros(count) if rate is None else poisson(count, rate, load.seed)
    when = "at once" if rate is None else f"at {format_rate(rate)}"
    return Requests(
        arrivals,
        np.full(count, load.input_tokens, dtype=np.int64),
        np.full(count, load.output_tokens, dtype=np.int64),
        name=f"{load.input_tokens} in, {load.output_tokens} out, {when}",
    )


def _check_end(drawn: Requests, load: ServingLoad) -> None:
    """Refuse arrivals that go on for so long that seconds between tokens are lost in them."""
    end_s = float(drawn.arrival_s[-1])
    if end_s <= MAX_ARRIVAL_S:
        return
    message = f"the last of {format_count(len(drawn))} requests would arrive after more than {MAX_ARRIVAL_S:.0f} s"
    if load.rate_per_s is None:
        raise InputError(message, where="--requests", hint="Give fewer.")
    least = 1.01 * load.rate_per_s * end_s / MAX_ARRIVAL_S
    hint = f"Give a rate of at least {least:.3g}, or fewer requests."
    raise InputError(f"{message} at {load.rate_per_s:g}/s", where="--rate", hint=hint)


def _repeated(base: Requests, load: ServingLoad) -> Requests:
    """As many as the load has; a repetition starts one mean gap after the last arrival before it."""
    count = load.requests or len(base)
    if count <= len(base):
        return base.first(count)
    if len(base) == 1 and load.rate_per_s is None:
        raise InputError("has one request, which says nothing of the time to the next", where=load.trace, hint=ONE)
    index = np.arange(count)
    lap, place = index // len(base), index % len(base)
    span = float(base.arrival_s[-1] - base.arrival_s[0])
    period = span * len(base) / max(len(base) - 1, 1)
    arrivals = base.arrival_s[place] + lap * period
    return Requests(arrivals, base.input_tokens[place], base.output_tokens[place], base.name)


def _at_rate(taken: Requests, rate_per_s: float, seed: int) -> Requests:
    """Arrivals with the trace's own pattern at another mean rate; drawn where all arrive at one moment."""
    own = taken.rate_per_s
    if np.isinf(own):
        arrivals = poisson(len(taken), rate_per_s, seed)
    else:
        arrivals = (taken.arrival_s - taken.arrival_s[0]) * (own / rate_per_s)
    return Requests(arrivals, taken.input_tokens, taken.output_tokens, f"{taken.name} at {format_rate(rate_per_s)}")
