"""A load made into requests: the same description and seed give the same requests, to the byte."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnomon.errors import InputError
from gnomon.spec import Requests, ServingLoad
from gnomon.spec.loads.arrivals.base import ArrivalProcess
from gnomon.spec.loads.arrivals.poisson import Poisson
from gnomon.spec.loads.check import check_load as check_load
from gnomon.spec.loads.generated import generated, name_of
from gnomon.spec.loads.sessions import timed
from gnomon.spec.workload import MAX_ARRIVAL_S, RequestTrace
from gnomon.units import format_count, format_rate

ONE = "Give --rate, at which it is repeated, or leave out --requests."


def draw(
    load: ServingLoad, trace: RequestTrace | None = None, *, repeat: bool = True, closed: bool = False
) -> Requests:
    """The requests of a load, and of the trace that it names.

    With a trace: its first `requests` requests, repeated end to end when it has fewer unless `repeat` is false (0:
    just the trace), stretched or squeezed in time to the rate when there is one. Without: requests as they are
    described, at Poisson arrivals where nothing else is, or all at time zero when there is no rate. A trace of one
    request, repeated, is equal requests too, and needs a rate. In a `closed` loop no trace needs times.
    """
    check_load(load)
    if trace is not None:
        drawn = _of_trace(load, trace, repeat, closed)
    else:
        drawn = _equal(load) if load.alike else generated(load)
    _check_end(drawn, load)
    return _with_images(drawn, load, trace)


def _with_images(drawn: Requests, load: ServingLoad, trace: RequestTrace | None) -> Requests:
    """Prompts that begin with images, as many as the trace or else the load has."""
    if load.images is None:
        if trace is not None and trace.pictured:
            hint = "Leave the column out, or ask `gnomon simulate serve` or `gnomon plan serve`."
            raise InputError("requests with images are not read here", where=f"{trace.file}, column images", hint=hint)
        return replace(drawn, images=None)
    each = load.images.count if drawn.images is None else drawn.images
    return replace(drawn, input_tokens=drawn.input_tokens + each * load.images.tokens)


def arrivals(
    trace: RequestTrace, rate_per_s: float | None, seed: int, process: ArrivalProcess | None = None
) -> Requests:
    """The requests of a trace; where it has no times, or a process is given, they are drawn at a rate."""
    if trace.timed and process is None:
        return trace.requests
    if rate_per_s is None:
        hint = "Add --rate, or the column. Nothing was run."
        raise InputError("has no column arrival_s, and no rate to draw arrivals at", where=trace.file, hint=hint)
    follows = trace.requests.follows
    sessions = len(trace) if follows is None else int(np.count_nonzero(follows < 0))
    return timed(trace.requests, (process or Poisson()).times(sessions, rate_per_s * sessions / len(trace), seed))


def _of_trace(load: ServingLoad, trace: RequestTrace, repeat: bool, closed: bool) -> Requests:
    part = trace.first(load.requests or len(trace))
    base = part.requests if closed else arrivals(part, load.rate_per_s, load.seed, load.arrivals)
    taken = _repeated(base, load, closed) if repeat else base.first(load.requests or len(base))
    return taken if load.rate_per_s is None else _at_rate(taken, load.rate_per_s, load)


def _equal(load: ServingLoad) -> Requests:
    count, rate = load.requests, load.rate_per_s
    return Requests(
        np.zeros(count) if rate is None else Poisson().times(count, rate, load.seed),
        np.full(count, load.input_tokens, dtype=np.int64),
        np.full(count, load.output_tokens, dtype=np.int64),
        name=name_of(load),
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


def _repeated(base: Requests, load: ServingLoad, closed: bool) -> Requests:
    """As many as the load has; a repetition starts one mean gap after the last arrival before it. It has the same
    prefixes, and sessions of its own."""
    count = load.requests or len(base)
    if count <= len(base):
        return base.first(count)
    if len(base) == 1 and load.rate_per_s is None and not closed:
        raise InputError("has one request, which says nothing of the time to the next", where=load.trace, hint=ONE)
    index = np.arange(count)
    lap, place = index // len(base), index % len(base)
    span = float(base.arrival_s[-1] - base.arrival_s[0])
    period = span * len(base) / max(len(base) - 1, 1)
    follows = None if base.follows is None else base.follows[place]
    if follows is not None:
        follows = np.where(follows < 0, -1, follows + lap * len(base))
    taken = replace(base, follows=None).take(place)
    return replace(taken, arrival_s=base.arrival_s[place] + lap * period, follows=follows)


def _at_rate(taken: Requests, rate_per_s: float, load: ServingLoad) -> Requests:
    """Arrivals with the trace's own pattern at another mean rate; drawn where all arrive at one moment."""
    own, name = taken.rate_per_s, f"{taken.name} at {format_rate(rate_per_s)}"
    if np.isinf(own):
        times = (load.arrivals or Poisson()).times(len(taken), rate_per_s, load.seed)
    else:
        times = (taken.arrival_s - taken.arrival_s[0]) * (own / rate_per_s)
    return replace(taken, arrival_s=times, name=name)
