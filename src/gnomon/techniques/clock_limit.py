"""Clocks held below their highest, so that chips draw less."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

from gnomon.cost.governor import LOWEST
from gnomon.cost.locked_clock import LockedMachine
from gnomon.cost.machine import Machine
from gnomon.cost.step import StepModel
from gnomon.engines.base import ServingCase
from gnomon.techniques.base import SERVING, Parameter, Rejection, Technique, Trial, Values

LEAST = round(LOWEST + 0.005, 2)
"""Of the highest clock: below it boards idle."""


class ClockLimit(Technique[ServingCase]):
    name = "clock-limit"
    work = (SERVING,)
    title = "Clocks held below their highest"
    idea = (
        "Chips run at a share of their highest clock (`nvidia-smi --lock-gpu-clocks`): prompts take longer, decode "
        "steps that wait for memory hardly do, and both draw less, so that more servers share a power budget."
    )
    trials = (
        Trial(
            paper="polca",
            words="clock-limit",
            note="What it saves is power, not time: `gnomon predict --with clock-limit` has joules per token.",
        ),
    )
    parameters = (Parameter("share", "of the highest clock", default=0.8, low=LEAST, high=1.0, tried=(0.8, 0.9)),)
    searched = False
    simulated = False

    def reject(self, case: ServingCase, values: Values) -> Iterator[Rejection]:
        yield not case.pool.chip.boost_hz, f"the highest clock of {case.pool.chip.name} is not known"

    def costs(self, found: StepModel, case: ServingCase, values: Values) -> StepModel:
        same = {one.name: getattr(found.machine, one.name) for one in fields(Machine)}
        return replace(found, machine=LockedMachine(**same, slowdown=1 / float(values["share"])))

    def assumed(self, case: ServingCase, values: Values) -> str:
        return "kernels and voltage follow the clock as an H200's were measured to"


TECHNIQUES = (ClockLimit(),)
