"""Requests whose answers are predicted to be short come in first."""

from __future__ import annotations

import numpy as np

from gnomon.engines.base import ServingCase
from gnomon.spec import Requests
from gnomon.spec.workload import Ints
from gnomon.techniques.base import Parameter, Values
from gnomon.techniques.order import WaitingOrder

OUTPUT, BOTH = "output", "input+output"


class ShortestFirst(WaitingOrder):
    name = "shortest-first"
    title = "Shortest predicted request first"
    idea = (
        "Of the requests that wait, the one whose answer is predicted to be shortest comes in first, so that the mean "
        "time to the first token falls; long requests wait longer, under overload without end."
    )
    parameters = (
        Parameter("by", "which tokens count", default=OUTPUT, choices=(OUTPUT, BOTH)),
        Parameter("error", "of a predicted length, as a standard deviation of its logarithm", default=0.0, high=3.0),
    )
    excludes = ("deadline-first",)

    def order(self, found: Requests, values: Values) -> Ints:
        tokens = found.output_tokens + (found.input_tokens if values["by"] == BOTH else 0)
        normals = np.random.Generator(np.random.PCG64(len(found))).standard_normal(len(found))
        order: Ints = np.rint(tokens * np.exp(float(values["error"]) * normals)).astype(np.int64)
        return order

    def assumed(self, case: ServingCase, values: Values) -> str:
        return "" if float(values["error"]) else "the length of every answer is known when its request arrives"


TECHNIQUES = (ShortestFirst(),)
