"""Requests go to the replica with the least work before it."""

from __future__ import annotations

from gnomon.engines.base import Case, ServingCase
from gnomon.engines.techniques import RouterMaker
from gnomon.sim.serving.routers.work import LeastWorkRouter
from gnomon.techniques.base import SERVING, Parameter, Technique, Trial, Values


class WorkBalancedRouter(Technique[ServingCase]):
    name = "work-balanced-router"
    work = (SERVING,)
    title = "Requests sent where they are done first"
    idea = (
        "A router adds up the tokens of what each replica has not finished and sends a request where it would be done "
        "first for the replica's speed, so that unlike replicas and requests of unlike lengths are balanced."
    )
    trials = (Trial(paper="hexgen-text2sql", words="work-balanced-router"),)
    parameters = (
        Parameter("answer", "prompt tokens that take as long as one of an answer", default=10.0, high=1000.0),
    )
    excludes = ("size-router",)
    searched = False
    changes = frozenset({"schedule"})

    def router(self, make: RouterMaker, case: Case, values: Values) -> RouterMaker:
        return lambda seed: LeastWorkRouter(float(values["answer"]))

    def assumed(self, case: ServingCase, values: Values) -> str:
        return "the length of every answer is known when its request arrives" if float(values["answer"]) else ""


TECHNIQUES = (WorkBalancedRouter(),)
