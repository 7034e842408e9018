"""Requests whose deadline is nearest come in first."""

from __future__ import annotations

import numpy as np

from gnomon.engines.base import ServingCase
from gnomon.spec import Requests
from gnomon.spec.workload import Ints
from gnomon.techniques.base import Parameter, Trial, Values
from gnomon.techniques.order import WaitingOrder

MILLI = 1e-3


class DeadlineFirst(WaitingOrder):
    name = "deadline-first"
    title = "Nearest deadline first"
    idea = (
        "Every request, or session of requests that follow one another, has a deadline from its arrival and its "
        "predicted tokens; of those that wait, the nearest deadline comes in first, and requests with time wait longer."
    )
    trials = (Trial(paper="hexgen-text2sql", words="deadline-first"),)
    parameters = (
        Parameter("base_s", "until the deadline of any request or session", default=1.0, high=3600.0),
        Parameter("token_ms", "added for each of its output tokens", default=50.0, high=10_000.0),
    )
    excludes = ("shortest-first",)

    def order(self, found: Requests, values: Values) -> Ints:
        """Deadlines in ms from the first arrival. All turns of a session have the session's."""
        roots = found.sessions if found.follows is not None else None
        root = np.arange(len(found)) if roots is None else roots
        tokens = np.bincount(root, weights=found.output_tokens, minlength=len(found))[root]
        since_s = found.arrival_s[root] - found.arrival_s.min(initial=np.inf)
        seconds = since_s + float(values["base_s"]) + float(values["token_ms"]) * MILLI * tokens
        order: Ints = np.rint(seconds / MILLI).astype(np.int64)
        return order

    def assumed(self, case: ServingCase, values: Values) -> str:
        return "the length of every answer is known when its request, or the first of its session, arrives"


TECHNIQUES = (DeadlineFirst(),)
