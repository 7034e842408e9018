"""A training run of many days: failures, checkpoints, restarts and repairs around its steps.

goodput(case, interval_s).share          in closed form
sampled(case, ...).wall_s                runs drawn one by one

Knows seconds and counts; never a network, a chip or a file.
"""

from __future__ import annotations

from gnomon.sim.run.base import Interruptions
from gnomon.sim.run.closed_form import (
    Goodput,
    best_interval_s,
    daly_interval_s,
    goodput,
    young_interval_s,
)
from gnomon.sim.run.repairs import erlang_b, waiting
from gnomon.sim.run.sampled import Outcomes, sampled

__all__ = [
    "Goodput",
    "Interruptions",
    "Outcomes",
    "best_interval_s",
    "daly_interval_s",
    "erlang_b",
    "goodput",
    "sampled",
    "waiting",
    "young_interval_s",
]
