"""Waiting for nodes in repair, of a run that begins with all its spares.

With s spares a job waits when one more node than that is in repair, until the first is back, and nothing fails
meanwhile. In the long run that takes the share of time that Erlang's loss formula gives for s + 1 servers, which
depends on the mean repair time alone. A run that is not much longer than a repair waits for less, since its spares are
used up first; there repair times are taken to be exponential.
"""

from __future__ import annotations

import math

import numpy as np

from gnomon.sim.run.base import Interruptions
from gnomon.spec.workload import Floats

LONG = 200.0
"""Repair times after which a run is long: the share is within a percent or so of itself."""
SETTLED = 20.0
"""Repair times after which the start is forgotten, but for exp(-20): no chain of repairs relaxes in more than one."""
MOST_STATES = 256
"""Spares beyond are enough, or the share in the long run is taken."""
LEAST = 1e-200
"""A share that is none."""
SMALL = 1 / 64
"""Transitions of a first step of time."""


def erlang_b(servers: int, load: float) -> float:
    """The share of time in which all servers are busy, with `load` arrivals per service time (Erlang 1917)."""
    blocked = 1.0
    for server in range(1, servers + 1):
        blocked = load * blocked / (server + load * blocked)
        if blocked < LEAST:
            return 0.0
    return blocked


def waiting(case: Interruptions, active_s: float) -> float:
    """The share of the elapsed time that a job waits which has to be up for so long; infinity for the long run."""
    load = case.failures_per_s * case.hardware * case.repair_s
    steady = erlang_b(case.spares + 1, load)
    if not steady or active_s > LONG * case.repair_s or case.spares >= MOST_STATES:
        return steady
    # A failure with no spare left waits for the first of s + 1 repairs.
    waits_s = _without_spares_s(case, active_s) * load / (case.spares + 1)
    return waits_s / (active_s + waits_s)


def _without_spares_s(case: Interruptions, active_s: float) -> float:
    """Mean seconds up with all spares in use."""
    if active_s > SETTLED * case.repair_s:
        return _settled_s(case, active_s)
    change = _changes(case)
    doublings = max(0, int(np.ceil(np.log2(max(-change.diagonal().min() * active_s, SMALL) / SMALL))))
    step = change * (active_s / 2**doublings)
    one = np.eye(len(change))
    # Taylor: exp(step), and its integral over the step in units of the step.
    moved = one + step @ (one + step @ (one + step @ (one + step / 4) / 3) / 2)
    spent = (one + step @ (one + step @ (one + step @ (one + step / 5) / 4) / 3) / 2) * (active_s / 2**doublings)
    for _ in range(doublings):
        spent, moved = spent + moved @ spent, moved @ moved
    return float(spent[0, -1])


def _settled_s(case: Interruptions, active_s: float) -> float:
    """The same of a run that has long forgotten its start: the share of the long run, less what the start with all
    spares saves, which is the chain's bias at that state (Poisson's equation, solved from state to state)."""
    fails, load = case.failures_per_s * case.hardware, case.failures_per_s * case.hardware * case.repair_s
    last = erlang_b(case.spares, load)
    shares, rises, rise = [last], [0.0], 0.0
    for broken in range(case.spares, 0, -1):
        shares.append(shares[-1] * broken / load)
    for broken in range(case.spares):
        rise = (last + broken / case.repair_s * rise) / fails
        rises.append(rises[-1] + rise)
    return last * active_s - math.fsum(share * risen for share, risen in zip(reversed(shares), rises, strict=True))


def _changes(case: Interruptions) -> Floats:
    """Rates from each number of nodes in repair to the next and back, while the job is up."""
    states = case.spares + 1
    fails = np.full(states - 1, case.failures_per_s * case.hardware)
    returns = np.arange(1, states) / case.repair_s
    rates = np.diag(fails, 1) + np.diag(returns, -1)
    return np.asarray(rates - np.diag(rates.sum(axis=1)))
